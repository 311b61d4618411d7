"""Where new partitions go: a pure decision, from the brokers and from what they already hold.

A partition is placed on one broker after the other. The rules, each only where the ones before leave a choice:

1. Only brokers that may hold more, and never twice the same.
2. Racks are used evenly: as many different ones as there are. A broker without a rack counts as a rack of its own.
3. The broker with the fewest replicas of all topics, so that a new broker fills up and an even start stays even.
4. The broker with the fewest replicas of this topic, and then the lowest id.

The first member of a partition is the one that should lead, and the others follow in the order in which they should
take its place: fewest leaderships first, then fewest of this topic, then fewest in its rack, then the lowest id.
Leaders are chosen among members that were chosen before them, so that leaderships may differ by 2 where replicas
differ by 1.

The same question always has the same answer, in whatever order brokers and topics are given. Nothing is moved: what
exists is only counted. A topic that cannot have all its replicas is refused as a whole; it never starts with fewer.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from flotilla_manager.model import Broker, Topic, TopicState

REPLICATION_MAX = 7  # what brokers accept as members of one group

Members = tuple[str, ...]


class CannotPlace(Exception):
    """The partitions cannot be placed now; the message says what is missing."""


def place(partitions: int, replication: int, brokers: Sequence[Broker], topics: Iterable[Topic]) -> tuple[Members, ...]:
    """Choose the members of a new topic's partitions; raise CannotPlace if that is not possible now."""
    if partitions < 1:
        raise CannotPlace(f"a topic has at least 1 partition, not {partitions}")
    able, replicas = _able(replication, brokers)
    load = _Load(brokers, topics)
    return tuple(load.put(able, replicas) for _ in range(partitions))


def grow(topic: Topic, partitions: int, brokers: Sequence[Broker], topics: Iterable[Topic]) -> tuple[Members, ...]:
    """Choose the members of the partitions that a topic lacks to have `partitions`; those it has stay as they are."""
    held = len(topic.partitions)
    if partitions < held:
        raise CannotPlace(f"topic '{topic.name}' has {held} partitions; their number can grow, but not shrink")
    if partitions == held:
        return ()
    able, replicas = _able(topic.replication, brokers)
    load = _Load(brokers, {one.id: one for one in (*topics, topic)}.values(), topic)
    return tuple(load.put(able, replicas) for _ in range(partitions - held))


def _able(replication: int, brokers: Sequence[Broker]) -> tuple[tuple[str, ...], int]:
    """Find the brokers that may hold more, and how many of them a partition gets."""
    registered = [broker for broker in brokers if broker.wanted and not broker.removed]
    lived_in = {(broker.host, broker.port) for broker in registered if broker.active}
    # A broker that lost its disk is back under a new id, at its old address: who it was does not come back there.
    registered = [broker for broker in registered if broker.active or (broker.host, broker.port) not in lived_in]
    needed = min(replication, len(registered))
    if replication < 1:
        raise CannotPlace(f"a topic has at least 1 replica, not {replication}")
    if not registered:
        raise CannotPlace("a topic needs a broker, and none is registered")
    if needed > REPLICATION_MAX:
        raise CannotPlace(f"a topic has at most {REPLICATION_MAX} replicas, not {replication}")
    able = tuple(broker.id for broker in registered if broker.may_hold_more)
    if len(able) < needed:
        raise CannotPlace(_shortage(needed, registered))
    return able, needed


def _shortage(needed: int, registered: Sequence[Broker]) -> str:
    active = [broker for broker in registered if broker.active]
    cordoned = sum(broker.cordoned for broker in active)
    replicas, brokers = ("replica", "broker") if needed == 1 else ("replicas", "brokers")
    text = f"a topic with {needed} {replicas} needs {needed} active {brokers}; "
    text += f"{len(active)} of {len(registered)} {'is' if len(active) == 1 else 'are'} active"
    return text + (f", and {cordoned} of these {'is' if cordoned == 1 else 'are'} cordoned" if cordoned else "")


class _Load:
    """What brokers hold while partitions are placed one after the other."""

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
    """Name a broker's rack; one without a rack is a rack of its own, which no rack's name can be mistaken for."""
    return (False, broker.id) if broker.rack is None else (True, broker.rack)
