"""Model of the topology: immutable values, loaded from the database and used by pure functions."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from flotilla.access.tokens import Token


class TopicState(StrEnum):
    """State of a topic. Clients see ready ones only; deleted ones are kept as tombstones for absent brokers."""

    CREATING = "creating"
    READY = "ready"
    DELETING = "deleting"
    DELETED = "deleted"


LIVE_STATES = (TopicState.CREATING, TopicState.READY)  # the name is taken, and the replicas should exist


@dataclass(frozen=True, kw_only=True)
class Partition:
    """A partition in its current epoch. The first member is the preferred leader."""

    index: int
    epoch: int
    members: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Topic:
    """A topic. A topic that is created again under the same name has another id."""

    id: str  # 32 hexadecimal digits
    name: str
    state: TopicState
    serial: int = 0  # order of creation; assigned by the database
    partitions: tuple[Partition, ...]
    retention_ms: int | None
    retention_bytes: int | None
    owner: str | None = None  # only requests with this owner can change or delete it
    batch_bytes_max: int | None = None  # None: the limit of all topics
    compression: str | None = None  # a hint for producers

    @property
    def replication(self) -> int:
        """Number of replicas of its partitions."""
        return max((len(partition.members) for partition in self.partitions), default=0)


@dataclass(frozen=True, kw_only=True)
class Broker:
    """A registered broker."""

    id: str  # 32 hexadecimal digits
    host: str
    port: int
    peer_host: str
    peer_port: int
    rack: str | None = None
    active: bool = True  # it sends heartbeats; set by the writer
    cordoned: bool = False  # it gets no new replicas and leads no partition
    wanted: bool = True  # False if a scale-down will remove it; set by the operator
    removed: bool = False  # heartbeats do not register it again
    tls: bool = False  # its API uses TLS
    name: str | None = None  # for users; a broker that lost its disk and its successor have the same name

    @property
    def address(self) -> str:
        """HOST:PORT, with brackets for IPv6."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """URL of its API."""
        return f"{'https' if self.tls else 'http'}://{self.address}"

    @property
    def label(self) -> str:
        """Its name in logs and messages: the one that it announces, or its address."""
        return self.name or self.address

    @property
    def is_eligible(self) -> bool:
        """Whether it may get new replicas and lead partitions."""
        return self.active and self.wanted and not self.cordoned and not self.removed


@dataclass(frozen=True)
class Writer:
    """The writer. `heartbeat` is a counter."""

    epoch: int
    url: str
    heartbeat: int


@dataclass(frozen=True)
class Snapshot:
    """The topology at one version. Every change raises the version."""

    version: int
    cluster_id: str  # 32 hexadecimal digits, generated with the database
    writer: Writer
    topics: tuple[Topic, ...]  # in order of creation, with tombstones
    brokers: tuple[Broker, ...]
    tokens: tuple[Token, ...] = ()  # oldest first

    @cached_property
    def ready(self) -> dict[str, Topic]:
        """Ready topics by name, in order of creation."""
        return {topic.name: topic for topic in self.topics if topic.state == TopicState.READY}

    @cached_property
    def topics_by_id(self) -> dict[str, Topic]:
        """All topics in any state, by id."""
        return {topic.id: topic for topic in self.topics}

    @cached_property
    def brokers_by_id(self) -> dict[str, Broker]:
        """All brokers by id."""
        return {broker.id: broker for broker in self.brokers}


@dataclass(frozen=True, kw_only=True)
class Producer:
    """Registration of a producer with a topic."""

    id: str  # 32 hexadecimal digits
    topic_id: str
    active: bool = True
    seen_ms: int = 0


@dataclass(frozen=True, kw_only=True)
class Consumer:
    """Registration of a consumer, with its positions. `version` is for compare-and-set."""

    id: str
    topic_id: str
    partition: int | None  # only this partition; None: all
    version: int
    cursor: int  # next partition to read
    positions: tuple[int, ...]  # next offset of each partition
    active: bool = True
    seen_ms: int = 0


@dataclass(frozen=True, kw_only=True)
class Advance:
    """Step of a consumer in one partition, from one version to the next."""

    consumer_id: str
    version: int  # expected current version
    cursor: int
    partition: int
    position: int  # new next offset


@dataclass(frozen=True, kw_only=True)
class ManagerInfo:
    """A manager, from its last heartbeat."""

    name: str
    role: str
    url: str
    active: bool
    seen_ms: int


@dataclass(frozen=True, kw_only=True)
class Replica:
    """A replica, as reported by its broker."""

    topic: str
    topic_id: str
    partition: int
    epoch: int
    members: tuple[str, ...]
    leader: str | None
    leads: bool = False
    settled: bool = False
    first_offset: int = 0
    next_offset: int = 0
    size_bytes: int = 0
    lag: int = 0
    retention_ms: int | None = None
    retention_bytes: int | None = None
    batch_bytes_max: int | None = None
    broken: bool = False


def key_of(replica: Replica) -> tuple[str, int, int]:
    """Return the key of a replica: topic id, partition, epoch."""
    return replica.topic_id, replica.partition, replica.epoch


def replicas_per_broker(topics: Iterable[Topic]) -> dict[str, int]:
    """Count the replicas that are placed on each broker."""
    counts: dict[str, int] = {}
    for topic in topics:
        for partition in topic.partitions if topic.state != TopicState.DELETED else ():
            for member in partition.members:
                counts[member] = counts.get(member, 0) + 1
    return counts
