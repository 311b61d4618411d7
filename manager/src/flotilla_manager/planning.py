"""Plan of the reconciler: a pure function of the database and of the brokers' reports.

`plan` compares the desired state (snapshot) with the observed state (reports), and returns the missing changes. It is
called repeatedly, so lost commands and interrupted writers need no special handling. Commands are in the order in which
a broker must get them: peers, deletes, puts, leaders. A delete comes before a put, because the replica of a topic that
was deleted and created again cannot be created beside the old one.

Invariants:

- A replica is deleted only if the database *shows* that it is obsolete: its topic is being deleted, or its partition is
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
class DeleteReplica(_ReplicaCommand):
    """Delete a replica and its records."""


@dataclass(frozen=True, kw_only=True)
class PutReplica(_ReplicaCommand):
    """Create a replica, or change the retention and the batch limit of an existing one."""

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


Command = UpdatePeers | DeleteReplica | PutReplica | Campaign | TransferLeadership


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


def plan(snapshot: Snapshot, reports: Mapping[str, Report], recent: Collection[Command] = frozenset()) -> Plan:
    """Return the commands and topic changes that are missing. Commands about leaders in `recent` are not repeated."""
    everyone = sorted(reports.values(), key=lambda report: report.broker)
    ours = [report for report in everyone if report.cluster_id in {None, snapshot.cluster_id}]
    inputs = _PlanInput(snapshot, {report.broker: report for report in ours if report.fresh})
    differences = tuple(dict.fromkeys(_differences(inputs, ours)))
    if len(differences) > OUTDATED_MAX:
        differences = (*differences[:OUTDATED_MAX], f"and {len(differences) - OUTDATED_MAX} more")
    if differences:
        return Plan(outdated=differences)
    campaigns = [command for command in _campaigns(inputs) if command not in recent]
    transfers = [command for command in _transfers(inputs) if command not in recent][:TRANSFERS_MAX]
    commands: list[Command] = [*_peer_updates(inputs), *_deletes(inputs), *_puts(inputs), *campaigns, *transfers]
    return Plan(commands=tuple(commands), topic_changes=tuple(_topic_changes(inputs)))


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


# -- desired and observed state ---------------------------------------------------------------------------


class _PlanInput:
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

    def in_service(self, topic: Topic, partition: Partition) -> dict[str, Replica]:
        """Return the undamaged replicas of the current epoch, by broker."""
        found = {member: self.held(member, topic, partition) for member in partition.members}
        return {member: one for member, one in found.items() if one is not None and not one.broken}

    def preferred(self, partition: Partition) -> str | None:
        """Return the preferred leader: the first member whose broker is eligible."""
        known = self.snapshot.brokers_by_id
        return next((one for one in partition.members if one in known and known[one].is_eligible), None)

    def live_partitions(self) -> Iterator[tuple[Topic, Partition]]:
        """Yield the partitions of all topics that are being created or ready."""
        for topic in self.snapshot.topics:
            if topic.state in LIVE_STATES:
                for partition in topic.partitions:
                    yield topic, partition


def _has_majority(replicas: Collection[object], partition: Partition) -> bool:
    return 2 * len(replicas) > len(partition.members)


# -- outdated database ---------------------------------------------------------------------------


def _differences(inputs: _PlanInput, reports: Iterable[Report]) -> Iterator[str]:
    """Yield what brokers know and the database does not."""
    for report in reports:
        label = inputs.label(report.broker)
        if report.writer_epoch > (known := inputs.snapshot.writer.epoch):
            yield (
                f"broker {label} has received commands of writer epoch {report.writer_epoch}; "
                f"the database has epoch {known}"
            )
        for replica in sorted(report.replicas, key=key_of):
            if (unknown := _unknown(inputs, replica)) is not None:
                yield f"broker {label} holds a replica of {unknown}"


def _unknown(inputs: _PlanInput, replica: Replica) -> str | None:
    """Describe what the database does not know of a replica; None for deleted topics and known replicas."""
    topic = inputs.snapshot.topics_by_id.get(replica.topic_id)
    where = f"topic '{replica.topic}' ({replica.topic_id})"
    if topic is None:
        return f"{where}, which is not in the database"
    if topic.state == TopicState.DELETED:
        return None
    partition = inputs.partitions.get((replica.topic_id, replica.partition))
    where = f"partition {replica.partition} of {where}"
    if partition is None:
        return f"{where}; the database has {len(topic.partitions)} partitions of it"
    if replica.epoch > partition.epoch:
        return f"{where} in epoch {replica.epoch}; the database has epoch {partition.epoch}"
    if replica.epoch == partition.epoch and set(replica.members) != set(partition.members):
        theirs, ours = inputs.list_labels(replica.members), inputs.list_labels(partition.members)
        return f"{where} in epoch {replica.epoch} with members {theirs}; the database has members {ours}"
    return None


# -- commands -------------------------------------------------------------------------------------------------


def _peer_updates(inputs: _PlanInput) -> Iterator[UpdatePeers]:
    versions = {with_names: peers_of(inputs.snapshot, with_names=with_names) for with_names in (False, True)}
    for broker, report in inputs.reports.items():
        known = inputs.snapshot.brokers_by_id.get(broker)
        if known is None or known.removed:
            continue
        peers = versions[known.name is not None]
        if report.peers != peers:
            yield UpdatePeers(broker=broker, peers=peers)


def _deletes(inputs: _PlanInput) -> Iterator[DeleteReplica]:
    for broker, report in inputs.reports.items():
        for replica in sorted(report.replicas, key=key_of):
            if _is_obsolete(inputs, broker, replica):
                topic_id, partition, epoch = key_of(replica)
                yield DeleteReplica(broker=broker, topic_id=topic_id, partition=partition, epoch=epoch)


def _is_obsolete(inputs: _PlanInput, broker: str, replica: Replica) -> bool:
    """Return whether the database shows that a replica is obsolete."""
    topic = inputs.snapshot.topics_by_id[replica.topic_id]
    if topic.state not in LIVE_STATES:
        return True
    partition = inputs.partitions[replica.topic_id, replica.partition]
    if replica.epoch >= partition.epoch:
        return False
    successors = inputs.in_service(topic, partition)
    # Members of the later epoch elect a leader only when a quorum holds the committed records of the earlier epoch.
    # A member may need its records of the earlier epoch until it holds the later one.
    is_led = any(successor.leads and successor.settled for successor in successors.values())
    is_done = is_led and _has_majority(successors, partition)
    return is_done and (broker in successors or broker not in partition.members)


def _puts(inputs: _PlanInput) -> Iterator[PutReplica]:
    """Create missing replicas of the first epoch, and change the settings of others.

    An empty replica of a later epoch could be elected without the records of the earlier one, which would be deleted.
    """
    for topic, partition in inputs.live_partitions():
        for broker in partition.members:
            held = inputs.held(broker, topic, partition)
            if held is None and partition.epoch != PARTITION_EPOCH_FIRST:
                continue
            if broker in inputs.reports and not _has_current_settings(held, topic):
                yield put_replica(topic, partition, broker)


def _has_current_settings(replica: Replica | None, topic: Topic) -> bool:
    """Return whether a replica needs no `PutReplica`. A damaged replica would reject it."""
    if replica is None:
        return False
    known = (replica.retention_ms, replica.retention_bytes, replica.batch_bytes_max)
    return replica.broken or known == (topic.retention_ms, topic.retention_bytes, topic.batch_bytes_max)


def put_replica(topic: Topic, partition: Partition, member: str) -> PutReplica:
    """Return the command that creates a member's replica, or changes its settings to those of the topic."""
    return PutReplica(
        broker=member,
        topic_id=topic.id,
        partition=partition.index,
        epoch=partition.epoch,
        topic=topic.name,
        members=partition.members,
        retention_ms=topic.retention_ms,
        retention_bytes=topic.retention_bytes,
        batch_bytes_max=topic.batch_bytes_max,
    )


def _campaigns(inputs: _PlanInput) -> Iterator[Campaign]:
    """Start elections in partitions without a leader that have a quorum."""
    for topic, partition in inputs.live_partitions():
        in_service = inputs.in_service(topic, partition)
        preferred = inputs.preferred(partition)
        led = any(replica.leads or replica.leader is not None for replica in in_service.values())
        if not led and preferred in in_service and _has_majority(in_service, partition):
            yield Campaign(broker=preferred, topic_id=topic.id, partition=partition.index, epoch=partition.epoch)


def _transfers(inputs: _PlanInput) -> Iterator[TransferLeadership]:
    """Transfer leadership to preferred leaders, where all members agree on the current leader."""
    for topic, partition in inputs.live_partitions():
        in_service = inputs.in_service(topic, partition)
        leaders = [broker for broker, replica in in_service.items() if replica.leads]
        target = inputs.preferred(partition)
        if len(in_service) < len(partition.members) or len(leaders) != 1 or target is None or target in leaders:
            continue
        if in_service[target].leader == leaders[0] and in_service[target].lag <= TRANSFER_LAG_ENTRIES_MAX:
            yield TransferLeadership(
                broker=leaders[0],
                topic_id=topic.id,
                partition=partition.index,
                epoch=partition.epoch,
                target=target,
            )


def _topic_changes(inputs: _PlanInput) -> Iterator[TopicChange]:
    for topic in inputs.snapshot.topics:
        if topic.state == TopicState.CREATING and _has_all_replicas(inputs, topic):
            yield TopicChange(topic_id=topic.id, state=TopicState.READY)
        if topic.state == TopicState.DELETING and _has_no_replica(inputs, topic):
            yield TopicChange(topic_id=topic.id, state=TopicState.DELETED)


def _has_all_replicas(inputs: _PlanInput, topic: Topic) -> bool:
    return all(len(inputs.in_service(topic, one)) == len(one.members) for one in topic.partitions)


def _has_no_replica(inputs: _PlanInput, topic: Topic) -> bool:
    """Return whether no active broker holds a replica; others delete theirs when they return."""
    active = (broker.id for broker in inputs.snapshot.brokers if broker.active and not broker.removed)
    return topic.id not in inputs.topics_held and all(broker in inputs.reports for broker in active)
