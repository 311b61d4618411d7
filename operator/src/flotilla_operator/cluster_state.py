"""State of the cluster as managers report it: topics, brokers and the last heartbeats. Pure.

`ClusterState` is one response of the control API. `view_partition` combines the reports of all replicas of a partition.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import msgspec

from flotilla_operator.brokers.addresses import pod_of

READY = "ready"
LAG_MAX = 1000  # entries that an in-sync replica may be behind
SLACK_S = 2.0  # managers mark a broker inactive up to this time after its heartbeat limit


class Partition(msgspec.Struct, frozen=True):
    """A partition, with the ids of the brokers that hold its replicas."""

    index: int
    epoch: int
    members: tuple[str, ...]


class Topic(msgspec.Struct, frozen=True):
    """A topic in the metadata of the managers."""

    id: str
    name: str
    state: str
    partitions: tuple[Partition, ...]
    retention_ms: int | None = None
    retention_bytes: int | None = None
    owner: str | None = None
    batch_bytes_max: int | None = None
    compression: str | None = None

    @property
    def replication(self) -> int:
        """Number of replicas of its partitions."""
        return max((len(one.members) for one in self.partitions), default=0)


class Broker(msgspec.Struct, frozen=True):
    """A registered broker."""

    id: str
    host: str
    port: int = 0
    rack: str | None = None
    active: bool = True
    cordoned: bool = False
    wanted: bool = True
    removed: bool = False

    @property
    def pod(self) -> str:
        """The name of its pod."""
        return pod_of(self.host)


class Replica(msgspec.Struct, frozen=True):
    """A replica in the last heartbeat of its broker."""

    topic_id: str
    partition: int
    epoch: int
    leader: str | None = None
    leads: bool = False
    settled: bool = False
    first_offset: int = 0
    next_offset: int = 0
    size_bytes: int = 0
    lag: int = 0

    @property
    def is_in_sync(self) -> bool:
        """Whether it leads, or follows a leader closely."""
        return self.leads or (self.leader is not None and self.lag <= LAG_MAX)


class Disk(msgspec.Struct, frozen=True):
    """Disk usage of a broker."""

    used_bytes: int = 0


class Report(msgspec.Struct, frozen=True):
    """Last heartbeat of a broker.

    `heartbeat_limit_s` follows from the interval of its heartbeats; managers of 0.2 omit it.
    """

    seconds_ago: float
    heartbeat_limit_s: float = 3.0
    disk: Disk = Disk()
    replicas: tuple[Replica, ...] = ()
    broken: tuple[Replica, ...] = ()

    @property
    def fresh_s(self) -> float:
        """Age after which the report is outdated."""
        return self.heartbeat_limit_s + SLACK_S

    @property
    def is_fresh(self) -> bool:
        """Whether it describes the current state."""
        return self.seconds_ago <= self.fresh_s


class ClusterState(msgspec.Struct, frozen=True, dict=True):
    """Topics, brokers and reports at one version of the topology."""

    version: int
    cluster_id: str
    topics: tuple[Topic, ...] = ()
    brokers: tuple[Broker, ...] = ()
    reports: dict[str, Report] = {}

    @cached_property
    def topics_by_name(self) -> dict[str, Topic]:
        """Topics that exist or are being created, without those that are being deleted."""
        return {one.name: one for one in self.topics if one.state in {READY, "creating"}}

    @cached_property
    def address_count(self) -> int:
        """Number of addresses for replicas. A broker that lost its disk registers again at the same address."""
        return len({(one.host, one.port) for one in self.brokers if one.wanted and not one.removed})

    @cached_property
    def replicas(self) -> dict[tuple[str, int, str], Replica]:
        """Replicas in fresh reports, by topic id, partition and broker."""
        return {
            (one.topic_id, one.partition, broker): one
            for broker, report in self.reports.items()
            if report.is_fresh
            for one in report.replicas
        }

    @cached_property
    def partitions_by_broker(self) -> dict[str, tuple[str, ...]]:
        """Partitions, such as orders/0, by the id of each broker that has a replica according to the metadata."""
        found: dict[str, list[str]] = {}
        for topic in self.topics:
            for one in topic.partitions:
                for member in one.members:
                    found.setdefault(member, []).append(f"{topic.name}/{one.index}")
        return {broker: tuple(partitions) for broker, partitions in found.items()}

    @property
    def is_complete(self) -> bool:
        """Whether all active brokers have a fresh report. After a start, managers have none."""
        active = [one.id for one in self.brokers if one.active and not one.removed]
        return all(one in self.reports and self.reports[one].is_fresh for one in active)

    def count_leaders(self, broker: str) -> int:
        """Count the partitions that a broker leads."""
        report = self.reports.get(broker)
        return sum(one.leads for one in report.replicas) if report is not None and report.is_fresh else 0

    def partitions(self) -> Iterator[tuple[Topic, Partition]]:
        """Iterate over the partitions of all topics in use."""
        for topic in self.topics_by_name.values():
            for one in topic.partitions:
                yield topic, one


def decode_state(data: bytes) -> ClusterState:
    """Decode a response of the control API; raises msgspec.DecodeError."""
    return msgspec.json.decode(data, type=ClusterState)


@dataclass(frozen=True)
class PartitionView:
    """Current state of a partition. Brokers are ids."""

    index: int
    members: tuple[str, ...]
    leader: str | None
    out_of_sync: tuple[str, ...]  # brokers whose replica is unavailable or not in sync
    lag: int
    messages: int
    bytes: int

    @property
    def is_fully_replicated(self) -> bool:
        """Whether it has a leader, and every replica is in sync."""
        return self.leader is not None and not self.out_of_sync


def view_partition(state: ClusterState, topic: Topic, partition: Partition) -> PartitionView:
    """Combine the reports of all replicas of a partition."""
    replicas = {
        member: replica
        for member in partition.members
        if (replica := state.replicas.get((topic.id, partition.index, member))) is not None
        and replica.epoch == partition.epoch
    }
    leaders = [member for member, replica in replicas.items() if replica.leads and replica.settled]
    # A leader that has just failed is reported for some seconds beside its successor: the latest report counts.
    leader = min(leaders, key=lambda member: state.reports[member].seconds_ago, default=None)
    leading = replicas.get(leader) if leader is not None else None
    source = leading or max(replicas.values(), key=lambda one: one.next_offset, default=None)
    in_sync = {member for member, replica in replicas.items() if replica.is_in_sync}
    return PartitionView(
        index=partition.index,
        members=partition.members,
        leader=leader,
        out_of_sync=tuple(member for member in partition.members if member not in in_sync),
        lag=max((replica.lag for replica in replicas.values()), default=0),
        messages=source.next_offset - source.first_offset if source is not None else 0,
        bytes=source.size_bytes if source is not None else 0,
    )
