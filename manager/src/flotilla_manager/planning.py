"""What the writer orders brokers to do: a pure decision, from the database and from what brokers report.

`plan` compares what should be (a snapshot) with what is (reports), and says what to change. It is asked again and
again; each time it says only what is still missing, so that an order that was lost, or a writer that died half-way,
costs nothing. Orders stand in the order in which one broker should get them: addresses, closes, opens, leaders. A close
comes first because a topic that was made again under its old name cannot be opened beside the old one.

What is safe:

- A replica is closed only if the database *knows* that it is gone: its topic is being deleted, or its partition is in a
  later epoch that a majority of its members hold and one of them leads. What the database does not know stays.
- If brokers know more than the database (a backup was restored), `behind` says what, and nothing is ordered or changed.
  Such knowledge does not age: old reports count here as well.
- Reports of another cluster are ignored. Old reports (not `fresh`) say nothing about what a broker holds now.

The snapshot has to be read after the reports arrived. With an older one, what another writer has just decided would
look as if the database were behind.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from flotilla_manager.model import Partition, Replica, Snapshot, Topic, TopicState, key_of

HAND_OVERS_MAX = 4  # per plan: each stops a partition for a moment, and all at once would be felt
HAND_OVER_LAG_ENTRIES_MAX = 0  # a target that lacks nothing that is committed leads at once
BEHIND_MAX = 20  # sentences; one is enough to stop, some help to see what happened

_WANTED = (TopicState.CREATING, TopicState.READY)


@dataclass(frozen=True, kw_only=True)
class Address:
    """Where a broker is reached, as other brokers are told."""

    broker: str
    host: str
    port: int
    peer_host: str
    peer_port: int
    tls: bool = False


Book = tuple[Address, ...]


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a broker said last, and what the writer remembers of it."""

    broker: str
    cluster_id: str | None  # None: it belongs to no cluster yet
    writer_epoch: int  # the highest that it has seen
    replicas: tuple[Replica, ...]
    fresh: bool = True  # it is recent: the broker holds just this
    book: Book | None = None  # the addresses that this writer has given it; None if it gave none


@dataclass(frozen=True, kw_only=True)
class SendBook:
    """Tell a broker where the brokers are reached."""

    broker: str
    book: Book


@dataclass(frozen=True, kw_only=True)
class _ReplicaOrder:
    """An order about one replica of one broker."""

    broker: str
    topic_id: str
    partition: int
    epoch: int


@dataclass(frozen=True, kw_only=True)
class CloseReplica(_ReplicaOrder):
    """Remove a replica and its records."""


@dataclass(frozen=True, kw_only=True)
class OpenReplica(_ReplicaOrder):
    """Have a replica, with this retention and this limit for batches."""

    topic: str
    members: tuple[str, ...]
    retention_ms: int | None
    retention_bytes: int | None
    batch_bytes_max: int | None = None


@dataclass(frozen=True, kw_only=True)
class Stand(_ReplicaOrder):
    """Stand for election now, rather than when a timeout has passed."""


@dataclass(frozen=True, kw_only=True)
class HandOver(_ReplicaOrder):
    """Make another member leader."""

    target: str


Order = SendBook | CloseReplica | OpenReplica | Stand | HandOver


@dataclass(frozen=True, kw_only=True)
class TopicChange:
    """A topic has reached its next state."""

    topic_id: str
    state: TopicState


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to do. If `behind` says anything, it is nothing."""

    orders: tuple[Order, ...] = ()
    topic_changes: tuple[TopicChange, ...] = ()
    behind: tuple[str, ...] = ()  # sentences: what brokers know and the database does not
    foreign: tuple[str, ...] = ()  # brokers of another cluster

    @property
    def is_empty(self) -> bool:
        """Tell whether everything is as it should be, as far as brokers report."""
        return not (self.orders or self.topic_changes or self.behind)


def plan(snapshot: Snapshot, reports: Mapping[str, Report], recent: Collection[Order] = frozenset()) -> Plan:
    """Say what to do. Of the orders about leaders, those that were given recently are not given again."""
    everyone = sorted(reports.values(), key=lambda report: report.broker)
    ours = [report for report in everyone if report.cluster_id in {None, snapshot.cluster_id}]
    foreign = tuple(report.broker for report in everyone if report.cluster_id not in {None, snapshot.cluster_id})
    view = _View(snapshot, {report.broker: report for report in ours if report.fresh})
    behind = tuple(dict.fromkeys(_behind(view, ours)))
    if len(behind) > BEHIND_MAX:
        behind = (*behind[:BEHIND_MAX], f"and {len(behind) - BEHIND_MAX} more")
    if behind:
        return Plan(behind=behind, foreign=foreign)
    stands = [order for order in _stands(view) if order not in recent]
    hand_overs = [order for order in _hand_overs(view) if order not in recent][:HAND_OVERS_MAX]
    orders: list[Order] = [*_books(view), *_closes(view), *_opens(view), *stands, *hand_overs]
    return Plan(orders=tuple(orders), topic_changes=tuple(_topic_changes(view)), foreign=foreign)


def book_of(snapshot: Snapshot) -> Book:
    """Collect where the brokers are reached."""
    return tuple(
        Address(
            broker=one.id,
            host=one.host,
            port=one.port,
            peer_host=one.peer_host,
            peer_port=one.peer_port,
            tls=one.tls,
        )
        for one in sorted(snapshot.brokers, key=lambda one: one.id)
        if not one.removed
    )


# -- what is, beside what should be ---------------------------------------------------------------------------


class _View:
    """A snapshot and the fresh reports, ready to be asked."""

    def __init__(self, snapshot: Snapshot, reports: Mapping[str, Report]) -> None:
        self.snapshot = snapshot
        self.reports = reports
        self.partitions = {(topic.id, one.index): one for topic in snapshot.topics for one in topic.partitions}
        self.topics_held = {replica.topic_id for report in reports.values() for replica in report.replicas}
        self._replicas = {(name, *key_of(one)): one for name, report in reports.items() for one in report.replicas}

    def held(self, broker: str, topic: Topic, partition: Partition) -> Replica | None:
        """Find a broker's replica of the current epoch, broken or not."""
        return self._replicas.get((broker, topic.id, partition.index, partition.epoch))

    def sound(self, topic: Topic, partition: Partition) -> dict[str, Replica]:
        """Find the replicas of the current epoch that work, by broker."""
        found = {member: self.held(member, topic, partition) for member in partition.members}
        return {member: one for member, one in found.items() if one is not None and not one.broken}

    def preferred(self, partition: Partition) -> str | None:
        """Tell who should lead: the first member that may. Whoever should take no replicas should not lead either."""
        known = self.snapshot.brokers_by_id
        return next((one for one in partition.members if one in known and known[one].may_hold_more), None)

    def wanted(self) -> Iterator[tuple[Topic, Partition]]:
        """Go through all partitions that should be there."""
        for topic in self.snapshot.topics:
            for partition in topic.partitions if topic.state in _WANTED else ():
                yield topic, partition


def _has_majority(replicas: Collection[object], partition: Partition) -> bool:
    return 2 * len(replicas) > len(partition.members)


# -- whether the database is behind ---------------------------------------------------------------------------


def _behind(view: _View, reports: Iterable[Report]) -> Iterator[str]:
    """Say what brokers know and the database does not."""
    for report in reports:
        if report.writer_epoch > (known := view.snapshot.writer.epoch):
            yield (
                f"broker {report.broker} has had orders of writer epoch {report.writer_epoch}, "
                f"and the database knows only {known}"
            )
        for replica in sorted(report.replicas, key=key_of):
            if (unknown := _unknown(view, replica)) is not None:
                yield f"broker {report.broker} holds a replica of {unknown}"


def _unknown(view: _View, replica: Replica) -> str | None:
    """Say what of a replica the database does not know. Of deleted topics it has forgotten all but that they are."""
    topic = view.snapshot.topics_by_id.get(replica.topic_id)
    where = f"topic '{replica.topic}' ({replica.topic_id})"
    if topic is None:
        return f"{where}, which the database does not know"
    if topic.state == TopicState.DELETED:
        return None
    partition = view.partitions.get((replica.topic_id, replica.partition))
    where = f"partition {replica.partition} of {where}"
    if partition is None:
        return f"{where}, which has only {len(topic.partitions)} in the database"
    if replica.epoch > partition.epoch:
        return f"{where} in epoch {replica.epoch}, and the database knows only epoch {partition.epoch}"
    if replica.epoch == partition.epoch and set(replica.members) != set(partition.members):
        theirs, ours = ", ".join(sorted(replica.members)), ", ".join(sorted(partition.members))
        return f"{where} in epoch {replica.epoch} with the members {theirs}; in the database they are {ours}"
    return None


# -- orders ---------------------------------------------------------------------------------------------------


def _books(view: _View) -> Iterator[SendBook]:
    book = book_of(view.snapshot)
    for broker, report in view.reports.items():
        known = view.snapshot.brokers_by_id.get(broker)
        if report.book != book and known is not None and not known.removed:
            yield SendBook(broker=broker, book=book)


def _closes(view: _View) -> Iterator[CloseReplica]:
    for broker, report in view.reports.items():
        for replica in sorted(report.replicas, key=key_of):
            if _is_gone(view, broker, replica):
                topic_id, partition, epoch = key_of(replica)
                yield CloseReplica(broker=broker, topic_id=topic_id, partition=partition, epoch=epoch)


def _is_gone(view: _View, broker: str, replica: Replica) -> bool:
    """Tell whether the database knows that a replica is not needed any more."""
    topic = view.snapshot.topics_by_id[replica.topic_id]
    if topic.state not in _WANTED:
        return True
    partition = view.partitions[replica.topic_id, replica.partition]
    if replica.epoch >= partition.epoch:
        return False
    successors = view.sound(topic, partition)
    # Members of the later epoch elect a leader only when a majority holds what the earlier one had committed; each of
    # them may need its own records of the earlier one until it holds the later one itself.
    is_led = any(successor.leads and successor.settled for successor in successors.values())
    is_done = is_led and _has_majority(successors, partition)
    return is_done and (broker in successors or broker not in partition.members)


def _opens(view: _View) -> Iterator[OpenReplica]:
    for topic, partition in view.wanted():
        for broker in partition.members:
            if broker in view.reports and not _is_as_wanted(view.held(broker, topic, partition), topic):
                yield OpenReplica(
                    broker=broker,
                    topic_id=topic.id,
                    partition=partition.index,
                    epoch=partition.epoch,
                    topic=topic.name,
                    members=partition.members,
                    retention_ms=topic.retention_ms,
                    retention_bytes=topic.retention_bytes,
                    batch_bytes_max=topic.batch_bytes_max,
                )


def _is_as_wanted(replica: Replica | None, topic: Topic) -> bool:
    """Tell whether there is nothing to open. A broken replica would refuse it: opening does not mend it."""
    if replica is None:
        return False
    known = (replica.retention_ms, replica.retention_bytes, replica.batch_bytes_max)
    return replica.broken or known == (topic.retention_ms, topic.retention_bytes, topic.batch_bytes_max)


def _stands(view: _View) -> Iterator[Stand]:
    """Give partitions without any leader the one that they should have, where a majority is there to elect it."""
    for topic, partition in view.wanted():
        sound = view.sound(topic, partition)
        preferred = view.preferred(partition)
        led = any(replica.leads or replica.leader is not None for replica in sound.values())
        if not led and preferred in sound and _has_majority(sound, partition):
            yield Stand(broker=preferred, topic_id=topic.id, partition=partition.index, epoch=partition.epoch)


def _hand_overs(view: _View) -> Iterator[HandOver]:
    """Bring leaders back to where they should be, where every member is there and agrees who leads now."""
    for topic, partition in view.wanted():
        sound = view.sound(topic, partition)
        leaders = [broker for broker, replica in sound.items() if replica.leads]
        target = view.preferred(partition)
        if len(sound) < len(partition.members) or len(leaders) != 1 or target is None or target in leaders:
            continue
        if sound[target].leader == leaders[0] and sound[target].lag <= HAND_OVER_LAG_ENTRIES_MAX:
            yield HandOver(
                broker=leaders[0],
                topic_id=topic.id,
                partition=partition.index,
                epoch=partition.epoch,
                target=target,
            )


def _topic_changes(view: _View) -> Iterator[TopicChange]:
    for topic in view.snapshot.topics:
        if topic.state == TopicState.CREATING and _is_open(view, topic):
            yield TopicChange(topic_id=topic.id, state=TopicState.READY)
        if topic.state == TopicState.DELETING and _is_nowhere(view, topic):
            yield TopicChange(topic_id=topic.id, state=TopicState.DELETED)


def _is_open(view: _View, topic: Topic) -> bool:
    return all(len(view.sound(topic, one)) == len(one.members) for one in topic.partitions)


def _is_nowhere(view: _View, topic: Topic) -> bool:
    """Tell whether every active broker says that it has nothing of a topic; others are told when they return."""
    active = (broker.id for broker in view.snapshot.brokers if broker.active and not broker.removed)
    return topic.id not in view.topics_held and all(broker in view.reports for broker in active)
