"""What managers know, as the control API tells it at one version: topics, brokers, and what brokers said last. Pure."""

from collections.abc import Iterator
from functools import cached_property

import msgspec

READY = "ready"
FRESH_S = 5.0  # heartbeats come every second


class Partition(msgspec.Struct, frozen=True):
    """A partition, and the brokers that should hold it."""

    index: int
    epoch: int
    members: tuple[str, ...]


class Topic(msgspec.Struct, frozen=True):
    """A topic."""

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
        """How many replicas its partitions have."""
        return max((len(one.members) for one in self.partitions), default=0)


class Broker(msgspec.Struct, frozen=True):
    """A broker that has registered."""

    id: str
    host: str
    port: int = 0
    rack: str | None = None
    active: bool = True
    cordoned: bool = False
    wanted: bool = True
    removed: bool = False


class Replica(msgspec.Struct, frozen=True):
    """A replica, as its broker told of it."""

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


class Disk(msgspec.Struct, frozen=True):
    """How full a broker is."""

    used_bytes: int = 0


class Report(msgspec.Struct, frozen=True):
    """What a broker said last."""

    seconds_ago: float
    disk: Disk = Disk()
    replicas: tuple[Replica, ...] = ()
    broken: tuple[Replica, ...] = ()

    @property
    def is_fresh(self) -> bool:
        """Whether it tells of now."""
        return self.seconds_ago <= FRESH_S


class World(msgspec.Struct, frozen=True, dict=True):
    """All of it."""

    version: int
    cluster_id: str
    topics: tuple[Topic, ...] = ()
    brokers: tuple[Broker, ...] = ()
    reports: dict[str, Report] = {}

    @cached_property
    def topics_by_name(self) -> dict[str, Topic]:
        """Topics that are, or will be; not those that are being deleted."""
        return {one.name: one for one in self.topics if one.state in {READY, "creating"}}

    @cached_property
    def places(self) -> int:
        """How many brokers replicas can be on. One that lost its disk is back as another, at the same address."""
        return len({(one.host, one.port) for one in self.brokers if one.wanted and not one.removed})

    @cached_property
    def replicas(self) -> dict[tuple[str, int, str], Replica]:
        """What brokers that are heard of now say of their replicas, by topic id, partition and broker."""
        return {
            (one.topic_id, one.partition, broker): one
            for broker, report in self.reports.items()
            if report.is_fresh
            for one in report.replicas
        }

    @cached_property
    def held(self) -> dict[str, tuple[str, ...]]:
        """Which partitions each broker holds, or should, as in orders/0."""
        found: dict[str, list[str]] = {}
        for topic in self.topics:
            for one in topic.partitions:
                for member in one.members:
                    found.setdefault(member, []).append(f"{topic.name}/{one.index}")
        return {broker: tuple(partitions) for broker, partitions in found.items()}

    @property
    def is_complete(self) -> bool:
        """Whether managers have heard of all brokers that are there; just after they started, they have not."""
        active = [one.id for one in self.brokers if one.active and not one.removed]
        return all(one in self.reports and self.reports[one].is_fresh for one in active)

    def leaders(self, broker: str) -> int:
        """Count what a broker leads."""
        report = self.reports.get(broker)
        return sum(one.leads for one in report.replicas) if report is not None and report.is_fresh else 0

    def groups(self) -> Iterator[tuple[Topic, Partition]]:
        """Give all partitions of topics that are in use."""
        for topic in self.topics_by_name.values():
            for one in topic.partitions:
                yield topic, one


def read_world(data: bytes) -> World:
    """Read the control API's answer; raises msgspec.DecodeError."""
    return msgspec.json.decode(data, type=World)
