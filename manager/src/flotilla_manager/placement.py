"""Placement of new partitions: a pure function of the brokers and their replicas.

Replicas of a partition are placed one by one. Rules, in order of precedence:

1. Only eligible brokers (active, wanted, not cordoned, not removed), and each at most once.
2. Racks are used evenly: as many different ones as there are. A broker without a rack counts as a rack of its own.
3. The broker with the fewest replicas of all topics, so that a new broker fills up and an even start stays even.
4. The broker with the fewest replicas of this topic, and then the lowest id.

The first member of a partition is its preferred leader. Members are sorted by: fewest leaderships, fewest of this
topic, fewest in the rack, lowest id.
Leaders are chosen among members that were chosen before them, so that leaderships may differ by 2 where replicas
differ by 1.

The result is deterministic and does not depend on the order of brokers and topics. Existing replicas are counted and
not moved. A topic that cannot get all its replicas is rejected.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from flotilla.limits import REPLICATION_MAX
from flotilla_manager.model import Broker, Topic, TopicState

Members = tuple[str, ...]


class CannotPlace(Exception):
    """The partitions cannot be placed; the message has the reason."""


def place(partitions: int, replication: int, brokers: Sequence[Broker], topics: Iterable[Topic]) -> tuple[Members, ...]:
    """Choose the members of a new topic's partitions. Raises CannotPlace."""
    if partitions < 1:
        raise CannotPlace(f"partitions is {partitions}; it must be at least 1")
    able, replicas = _eligible(replication, brokers)
    load = _Load(brokers, topics)
    return tuple(load.put(able, replicas) for _ in range(partitions))


def grow(topic: Topic, partitions: int, brokers: Sequence[Broker], topics: Iterable[Topic]) -> tuple[Members, ...]:
    """Choose the members of additional partitions, up to `partitions`. Raises CannotPlace."""
    held = len(topic.partitions)
    if partitions < held:
        raise CannotPlace(f"topic '{topic.name}' has {held} partitions; the number cannot be decreased")
    if partitions == held:
        return ()
    able, replicas = _eligible(topic.replication, brokers)
    load = _Load(brokers, {one.id: one for one in (*topics, topic)}.values(), topic)
    return tuple(load.put(able, replicas) for _ in range(partitions - held))


def _eligible(replication: int, brokers: Sequence[Broker]) -> tuple[tuple[str, ...], int]:
    """Return the eligible brokers, and the replicas per partition."""
    registered = [broker for broker in brokers if broker.wanted and not broker.removed]
    lived_in = {(broker.host, broker.port) for broker in registered if broker.active}
    # A broker that lost its disk returns with a new id at its old address; the old id does not return.
    registered = [broker for broker in registered if broker.active or (broker.host, broker.port) not in lived_in]
    needed = min(replication, len(registered))
    if replication < 1:
        raise CannotPlace(f"replication is {replication}; it must be at least 1")
    if not registered:
        raise CannotPlace("no broker is registered; start brokers with --managers")
    if needed > REPLICATION_MAX:
        raise CannotPlace(f"replication is {replication}; the limit is {REPLICATION_MAX}")
    able = tuple(broker.id for broker in registered if broker.is_eligible)
    if len(able) < needed:
        raise CannotPlace(_shortage(needed, registered))
    return able, needed


def _shortage(needed: int, registered: Sequence[Broker]) -> str:
    active = [broker for broker in registered if broker.active]
    cordoned = sum(broker.cordoned for broker in active)
    replicas, brokers = ("replica", "broker") if needed == 1 else ("replicas", "brokers")
    text = f"{needed} {replicas} {'needs' if needed == 1 else 'need'} {needed} active {brokers}; "
    text += f"{len(active)} of {len(registered)} {'is' if len(active) == 1 else 'are'} active"
    return text + (f", and {cordoned} of these {'is' if cordoned == 1 else 'are'} cordoned" if cordoned else "")


class _Load:
    """Replicas and leaderships of brokers during placement."""

    def __init__(self, brokers: Iterable[Broker], topics: Iterable[Topic], growing: Topic | None = None) -> None:
        self._racks = {broker.id: _rack(broker) for broker in brokers}
        self._replicas: Counter[str] = Counter()
        self._leaderships: Counter[str] = Counter()
        self._rack_leaderships: Counter[tuple[bool, str]] = Counter()
        self._own_replicas: Counter[str] = Counter()
        self._own_leaderships: Counter[str] = Counter()
        for topic in topics:
            for partition in topic.partitions if topic.state != TopicState.DELETED else ():
                self._count(partition.members, own=growing is not None and topic.id == growing.id)

    def put(self, able: Iterable[str], replicas: int) -> Members:
        """Choose the members of one partition, and count them."""
        left, chosen = set(able), set[str]()
        racks: Counter[tuple[bool, str]] = Counter()
        for _ in range(replicas):
            best = min(left, key=lambda broker: (racks[self._racks[broker]], *self._fullness(broker)))
            left.remove(best)
            chosen.add(best)
            racks[self._racks[best]] += 1
        members = tuple(sorted(chosen, key=self._leading))
        self._count(members, own=True)
        return members

    def _fullness(self, broker: str) -> tuple[int, int, str]:
        return self._replicas[broker], self._own_replicas[broker], broker

    def _leading(self, broker: str) -> tuple[int, int, int, str]:
        in_rack = self._rack_leaderships[self._racks[broker]]
        return self._leaderships[broker], self._own_leaderships[broker], in_rack, broker

    def _count(self, members: Members, *, own: bool) -> None:
        self._replicas.update(members)
        self._leaderships.update(members[:1])
        self._rack_leaderships.update(self._racks[member] for member in members[:1] if member in self._racks)
        if own:
            self._own_replicas.update(members)
            self._own_leaderships.update(members[:1])


def _rack(broker: Broker) -> tuple[bool, str]:
    """Return a broker's rack. A broker without one is a rack of its own, distinct from all names."""
    return (False, broker.id) if broker.rack is None else (True, broker.rack)
