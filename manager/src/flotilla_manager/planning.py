"""Plan of the reconciler: a pure function of the database and of the brokers' reports.

`plan` compares the desired state (snapshot) with the observed state (reports), and returns the missing changes. It is
called repeatedly, so lost commands and interrupted writers need no special handling. Commands are in the order in which
a broker must get them: peers, closes, opens, leaders. A close comes before an open, because a topic that was deleted
and created again cannot be opened beside the old one.

Invariants:

- A replica is closed only if the database *shows* that it is obsolete: its topic is being deleted, or its partition is
  in a later epoch that a quorum of its members holds and one of them leads. Unknown replicas stay.
- If brokers know more than the database (a backup was restored), `outdated` lists the differences and the plan has no
  commands. This knowledge does not age: stale reports count here, too.
- Reports of another cluster are ignored. Stale reports (not `fresh`) are not used for the current replicas.

The snapshot must be read after the reports. An older one would make the database look behind after a change by another
writer.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from flotilla.limits import PARTITION_EPOCH_FIRST
from flotilla_manager.model import LIVE_STATES, Partition, Replica, Snapshot, Topic, TopicState, key_of

TRANSFERS_MAX = 4  # per plan: each one interrupts a partition briefly
TRANSFER_LAG_ENTRIES_MAX = 0  # a target that has all committed entries takes over at once
OUTDATED_MAX = 20  # listed differences


@dataclass(frozen=True, kw_only=True)
class Address:
    """Addresses of a broker, as sent to other brokers."""

    broker: str
    host: str
    port: int
    peer_host: str
    peer_port: int
    tls: bool = False
    name: str = ""


Peers = tuple[Address, ...]


@dataclass(frozen=True, kw_only=True)
class Report:
    """Last heartbeat of a broker, as input of the plan."""

    broker: str
    cluster_id: str | None  # None: it belongs to no cluster yet
    writer_epoch: int  # highest one that it has seen
    replicas: tuple[Replica, ...]
    fresh: bool = True  # the replicas are current
    peers: Peers | None = None  # peers that this writer sent to it; None if none


@dataclass(frozen=True, kw_only=True)
class UpdatePeers:
    """Send the addresses of all brokers to a broker."""

    broker: str
    peers: Peers


@dataclass(frozen=True, kw_only=True)
class _ReplicaCommand:
    """A command about one replica of one broker."""

    broker: str
    topic_id: str
    partition: int
    epoch: int


@dataclass(frozen=True, kw_only=True)
class CloseReplica(_ReplicaCommand):
    """Remove a replica and its records."""


@dataclass(frozen=True, kw_only=True)
class OpenReplica(_ReplicaCommand):
    """Open a replica, or change its retention and batch limit."""

    topic: str
    members: tuple[str, ...]
    retention_ms: int | None
    retention_bytes: int | None
    batch_bytes_max: int | None = None


@dataclass(frozen=True, kw_only=True)
class Campaign(_ReplicaCommand):
    """Start an election now, without waiting for the election timeout."""


@dataclass(frozen=True, kw_only=True)
class TransferLeadership(_ReplicaCommand):
    """Transfer leadership to another member."""

    target: str


Command = UpdatePeers | CloseReplica | OpenReplica | Campaign | TransferLeadership


@dataclass(frozen=True, kw_only=True)
class TopicChange:
    """Change of a topic's state."""

    topic_id: str
    state: TopicState


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Commands and changes. With `outdated`, both are empty."""

    commands: tuple[Command, ...] = ()
    topic_changes: tuple[TopicChange, ...] = ()
    outdated: tuple[str, ...] = ()  # what the database lacks, if it is outdated
    foreign: tuple[str, ...] = ()  # brokers of another cluster

    @property
    def is_empty(self) -> bool:
        """Whether the observed state matches the desired state."""
        return not (self.commands or self.topic_changes or self.outdated)


def plan(snapshot: Snapshot, reports: Mapping[str, Report], recent: Collection[Command] = frozenset()) -> Plan:
    """Plan. Commands about leaders in `recent` are not repeated."""
    everyone = sorted(reports.values(), key=lambda report: report.broker)
    ours = [report for report in everyone if report.cluster_id in {None, snapshot.cluster_id}]
    foreign = tuple(report.broker for report in everyone if report.cluster_id not in {None, snapshot.cluster_id})
    observed = _Observed(snapshot, {report.broker: report for report in ours if report.fresh})
    differences = tuple(dict.fromkeys(_differences(observed, ours)))
    if len(differences) > OUTDATED_MAX:
        differences = (*differences[:OUTDATED_MAX], f"and {len(differences) - OUTDATED_MAX} more")
    if differences:
        return Plan(outdated=differences, foreign=foreign)
    campaigns = [command for command in _campaigns(observed) if command not in recent]
    transfers = [command for command in _transfers(observed) if command not in recent][:TRANSFERS_MAX]
    commands: list[Command] = [*_peer_updates(observed), *_closes(observed), *_opens(observed), *campaigns, *transfers]
    return Plan(commands=tuple(commands), topic_changes=tuple(_topic_changes(observed)), foreign=foreign)


def peers_of(snapshot: Snapshot, *, with_names: bool = True) -> Peers:
    """Return the addresses of all brokers. Brokers before 0.3 reject names, and announce none."""
    return tuple(
        Address(
            broker=one.id,
            host=one.host,
            port=one.port,
            peer_host=one.peer_host,
            peer_port=one.peer_port,
            tls=one.tls,
            name=(one.name or "") if with_names else "",
        )
        for one in sorted(snapshot.brokers, key=lambda one: one.id)
        if not one.removed
    )


# -- observed and desired state ---------------------------------------------------------------------------


class _Observed:
    """The snapshot and the fresh reports of one plan, with lookups."""

    def __init__(self, snapshot: Snapshot, reports: Mapping[str, Report]) -> None:
        self.snapshot = snapshot
        self.reports = reports
        self.partitions = {(topic.id, one.index): one for topic in snapshot.topics for one in topic.partitions}
        self.topics_held = {replica.topic_id for report in reports.values() for replica in report.replicas}
        self._replicas = {(name, *key_of(one)): one for name, report in reports.items() for one in report.replicas}

    def label(self, broker: str) -> str:
        """Return the name of a broker for users; its id if it is not registered."""
        known = self.snapshot.brokers_by_id.get(broker)
        return known.label if known is not None else broker

    def list_labels(self, brokers: Iterable[str]) -> str:
        """Return the names of brokers for users, in the order of their ids."""
        return ", ".join(map(self.label, sorted(brokers)))

    def held(self, broker: str, topic: Topic, partition: Partition) -> Replica | None:
        """Return a broker's replica of the current epoch, damaged or not."""
        return self._replicas.get((broker, topic.id, partition.index, partition.epoch))

    def sound(self, topic: Topic, partition: Partition) -> dict[str, Replica]:
        """Return the undamaged replicas of the current epoch, by broker."""
        found = {member: self.held(member, topic, partition) for member in partition.members}
        return {member: one for member, one in found.items() if one is not None and not one.broken}

    def preferred(self, partition: Partition) -> str | None:
        """Return the preferred leader: the first member whose broker is eligible."""
        known = self.snapshot.brokers_by_id
        return next((one for one in partition.members if one in known and known[one].is_eligible), None)

    def wanted(self) -> Iterator[tuple[Topic, Partition]]:
        """Yield all partitions that should exist."""
        for topic in self.snapshot.topics:
            for partition in topic.partitions if topic.state in LIVE_STATES else ():
                yield topic, partition


def _has_majority(replicas: Collection[object], partition: Partition) -> bool:
    return 2 * len(replicas) > len(partition.members)


# -- outdated database ---------------------------------------------------------------------------


def _differences(observed: _Observed, reports: Iterable[Report]) -> Iterator[str]:
    """Yield what brokers know and the database does not."""
    for report in reports:
        label = observed.label(report.broker)
        if report.writer_epoch > (known := observed.snapshot.writer.epoch):
            yield (
                f"broker {label} has received commands of writer epoch {report.writer_epoch}; "
                f"the database has epoch {known}"
            )
        for replica in sorted(report.replicas, key=key_of):
            if (unknown := _unknown(observed, replica)) is not None:
                yield f"broker {label} holds a replica of {unknown}"


def _unknown(observed: _Observed, replica: Replica) -> str | None:
    """Describe what the database does not know of a replica; None for deleted topics and known replicas."""
    topic = observed.snapshot.topics_by_id.get(replica.topic_id)
    where = f"topic '{replica.topic}' ({replica.topic_id})"
    if topic is None:
        return f"{where}, which is not in the database"
    if topic.state == TopicState.DELETED:
        return None
    partition = observed.partitions.get((replica.topic_id, replica.partition))
    where = f"partition {replica.partition} of {where}"
    if partition is None:
        return f"{where}; the database has {len(topic.partitions)} partitions of it"
    if replica.epoch > partition.epoch:
        return f"{where} in epoch {replica.epoch}; the database has epoch {partition.epoch}"
    if replica.epoch == partition.epoch and set(replica.members) != set(partition.members):
        theirs, ours = observed.list_labels(replica.members), observed.list_labels(partition.members)
        return f"{where} in epoch {replica.epoch} with members {theirs}; the database has members {ours}"
    return None


# -- commands -------------------------------------------------------------------------------------------------


def _peer_updates(observed: _Observed) -> Iterator[UpdatePeers]:
    versions = {with_names: peers_of(observed.snapshot, with_names=with_names) for with_names in (False, True)}
    for broker, report in observed.reports.items():
        known = observed.snapshot.brokers_by_id.get(broker)
        if known is None or known.removed:
            continue
        peers = versions[known.name is not None]
        if report.peers != peers:
            yield UpdatePeers(broker=broker, peers=peers)


def _closes(observed: _Observed) -> Iterator[CloseReplica]:
    for broker, report in observed.reports.items():
        for replica in sorted(report.replicas, key=key_of):
            if _is_gone(observed, broker, replica):
                topic_id, partition, epoch = key_of(replica)
                yield CloseReplica(broker=broker, topic_id=topic_id, partition=partition, epoch=epoch)


def _is_gone(observed: _Observed, broker: str, replica: Replica) -> bool:
    """Return whether the database shows that a replica is obsolete."""
    topic = observed.snapshot.topics_by_id[replica.topic_id]
    if topic.state not in LIVE_STATES:
        return True
    partition = observed.partitions[replica.topic_id, replica.partition]
    if replica.epoch >= partition.epoch:
        return False
    successors = observed.sound(topic, partition)
    # Members of the later epoch elect a leader only when a quorum holds the committed records of the earlier epoch.
    # A member may need its records of the earlier epoch until it holds the later one.
    is_led = any(successor.leads and successor.settled for successor in successors.values())
    is_done = is_led and _has_majority(successors, partition)
    return is_done and (broker in successors or broker not in partition.members)


def _opens(observed: _Observed) -> Iterator[OpenReplica]:
    """Create missing replicas of the first epoch, and change the settings of others.

    An empty replica of a later epoch could be elected without the records of the earlier one, which would be closed.
    """
    for topic, partition in observed.wanted():
        for broker in partition.members:
            held = observed.held(broker, topic, partition)
            if held is None and partition.epoch != PARTITION_EPOCH_FIRST:
                continue
            if broker in observed.reports and not _is_as_wanted(held, topic):
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
    """Return whether a replica needs no open command. A damaged replica would reject it."""
    if replica is None:
        return False
    known = (replica.retention_ms, replica.retention_bytes, replica.batch_bytes_max)
    return replica.broken or known == (topic.retention_ms, topic.retention_bytes, topic.batch_bytes_max)


def _campaigns(observed: _Observed) -> Iterator[Campaign]:
    """Start elections in partitions without a leader that have a quorum."""
    for topic, partition in observed.wanted():
        sound = observed.sound(topic, partition)
        preferred = observed.preferred(partition)
        led = any(replica.leads or replica.leader is not None for replica in sound.values())
        if not led and preferred in sound and _has_majority(sound, partition):
            yield Campaign(broker=preferred, topic_id=topic.id, partition=partition.index, epoch=partition.epoch)


def _transfers(observed: _Observed) -> Iterator[TransferLeadership]:
    """Transfer leadership to preferred leaders, where all members agree on the current leader."""
    for topic, partition in observed.wanted():
        sound = observed.sound(topic, partition)
        leaders = [broker for broker, replica in sound.items() if replica.leads]
        target = observed.preferred(partition)
        if len(sound) < len(partition.members) or len(leaders) != 1 or target is None or target in leaders:
            continue
        if sound[target].leader == leaders[0] and sound[target].lag <= TRANSFER_LAG_ENTRIES_MAX:
            yield TransferLeadership(
                broker=leaders[0],
                topic_id=topic.id,
                partition=partition.index,
                epoch=partition.epoch,
                target=target,
            )


def _topic_changes(observed: _Observed) -> Iterator[TopicChange]:
    for topic in observed.snapshot.topics:
        if topic.state == TopicState.CREATING and _is_open(observed, topic):
            yield TopicChange(topic_id=topic.id, state=TopicState.READY)
        if topic.state == TopicState.DELETING and _is_nowhere(observed, topic):
            yield TopicChange(topic_id=topic.id, state=TopicState.DELETED)


def _is_open(observed: _Observed, topic: Topic) -> bool:
    return all(len(observed.sound(topic, one)) == len(one.members) for one in topic.partitions)


def _is_nowhere(observed: _Observed, topic: Topic) -> bool:
    """Return whether no active broker holds a replica; others close theirs when they return."""
    active = (broker.id for broker in observed.snapshot.brokers if broker.active and not broker.removed)
    return topic.id not in observed.topics_held and all(broker in observed.reports for broker in active)
