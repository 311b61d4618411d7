"""What managers know of the system: frozen values, made from the database and decided upon by pure functions."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from flotilla.access.tokens import Token


class TopicState(StrEnum):
    """Where a topic is in its life. Only ready ones are shown; deleted ones are remembered for late brokers."""

    CREATING = "creating"
    READY = "ready"
    DELETING = "deleting"
    DELETED = "deleted"


@dataclass(frozen=True, kw_only=True)
class Partition:
    """One partition in its current epoch. The first member is the one that should lead."""

    index: int
    epoch: int
    members: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Topic:
    """A topic. One that is made again under the same name has another id."""

    id: str  # 32 hexadecimal digits
    name: str
    state: TopicState
    serial: int = 0  # counts topics in the order of their creation; given by the database
    partitions: tuple[Partition, ...]
    retention_ms: int | None
    retention_bytes: int | None
    owner: str | None = None  # the resource that owns it, which alone may change or delete it
    batch_bytes_max: int | None = None  # the largest batch; without one, the limit of all topics
    compression: str | None = None  # what producers should use: a hint

    @property
    def replication(self) -> int:
        """How many replicas its partitions have."""
        return max((len(partition.members) for partition in self.partitions), default=0)


@dataclass(frozen=True, kw_only=True)
class Broker:
    """A broker that has registered."""

    id: str  # 32 hexadecimal digits
    host: str
    port: int
    peer_host: str
    peer_port: int
    rack: str | None = None
    active: bool = True  # its heartbeats arrive; decided by the writer alone
    cordoned: bool = False  # somebody said that it should take no new replicas and lead nothing
    wanted: bool = True  # an operator's word; False while it is to be removed
    removed: bool = False  # somebody removed it; its heartbeats do not bring it back
    tls: bool = False  # clients speak TLS with it

    @property
    def address(self) -> str:
        """Its host and port, as people write them."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """Where clients reach it."""
        return f"{'https' if self.tls else 'http'}://{self.address}"

    @property
    def may_hold_more(self) -> bool:
        """Whether new replicas may be placed here."""
        return self.active and self.wanted and not self.cordoned and not self.removed


@dataclass(frozen=True)
class Writer:
    """The manager that decides about topology. `beat` changes while it lives."""

    epoch: int
    url: str
    beat: int


@dataclass(frozen=True)
class Snapshot:
    """The whole topology at one version. A new version means that something in it has changed."""

    version: int
    cluster_id: str  # 32 hexadecimal digits, drawn when the database was made
    writer: Writer
    topics: tuple[Topic, ...]  # in the order of creation; of deleted ones, only what brokers have to be told
    brokers: tuple[Broker, ...]
    tokens: tuple[Token, ...] = ()  # who may call; the oldest first

    @cached_property
    def ready(self) -> dict[str, Topic]:
        """The topics that can be used, by name, in the order of creation."""
        return {topic.name: topic for topic in self.topics if topic.state == TopicState.READY}

    @cached_property
    def topics_by_id(self) -> dict[str, Topic]:
        """All topics, whatever their state."""
        return {topic.id: topic for topic in self.topics}

    @cached_property
    def brokers_by_id(self) -> dict[str, Broker]:
        """All brokers."""
        return {broker.id: broker for broker in self.brokers}


@dataclass(frozen=True, kw_only=True)
class Producer:
    """A registration of a producer with a topic."""

    id: str  # 32 hexadecimal digits
    topic_id: str
    active: bool = True
    seen_ms: int = 0


@dataclass(frozen=True, kw_only=True)
class Consumer:
    """A registration of a consumer, and where it is. `version` counts changes: whoever changes names the old one."""

    id: str
    topic_id: str
    partition: int | None  # consumes this one alone
    version: int
    cursor: int  # the partition that is next in turn
    positions: tuple[int, ...]  # the next offset of each partition
    active: bool = True
    seen_ms: int = 0


@dataclass(frozen=True, kw_only=True)
class Advance:
    """A consumer's step: from one version to the next, in one partition."""

    consumer_id: str
    version: int  # the one it starts from
    cursor: int
    partition: int
    position: int  # the next offset from now on


@dataclass(frozen=True, kw_only=True)
class ManagerInfo:
    """A manager, as the others know it."""

    name: str
    role: str
    url: str
    active: bool
    seen_ms: int


@dataclass(frozen=True, kw_only=True)
class Replica:
    """What a broker reports of a replica that it holds."""

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
    """Name a replica's group: topic id, partition, epoch."""
    return replica.topic_id, replica.partition, replica.epoch


def replicas_per_broker(topics: Iterable[Topic]) -> dict[str, int]:
    """Count the replicas that brokers hold, or are to hold."""
    counts: dict[str, int] = {}
    for topic in topics:
        for partition in topic.partitions if topic.state != TopicState.DELETED else ():
            for member in partition.members:
                counts[member] = counts.get(member, 0) + 1
    return counts
