"""In-memory state of the fake: topics with their partitions, and brokers.

A topic that is created again under the same name gets another id. Replicas are simulated: they are placed on brokers
round-robin, and the first replica is the leader.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from flotilla.groups.state import GroupTopic, Topology
from flotilla.limits import (
    BODY_BYTES_MAX_DEFAULT,
    MESSAGE_BYTES_MAX_DEFAULT,
    PARTITION_EPOCH_FIRST,
    PARTITIONS_TOTAL_MAX,
    RETENTION_MS_DEFAULT,
    TOPICS_MAX,
)
from flotilla.protocol.errors import Refusal, not_found
from flotilla.protocol.responses import (
    BrokerResponse,
    LimitsResponse,
    MetadataResponse,
    PartitionResponse,
    TopicResponse,
)
from flotilla.protocol.simple import EXISTS, NO_TOPIC
from flotilla.testing.partition import Partition

BY_ID = "id:"
_ID_BYTES = 16
_SHOWN_MAX = 200


@dataclass(frozen=True)
class Broker:
    """A simulated broker: a port of the fake."""

    id: str
    name: str
    host: str
    cordoned: bool = False  # it does not lead
    removed: bool = False

    @property
    def url(self) -> str:
        """URL for clients."""
        return f"http://{self.host}"


@dataclass(kw_only=True)
class Settings:
    """Mutable settings of a topic."""

    retention_ms: int | None = RETENTION_MS_DEFAULT
    retention_bytes: int | None = None
    batch_bytes_max: int | None = None
    compression: str | None = None


@dataclass(kw_only=True)
class Topic:
    """A topic."""

    name: str
    id: str
    replication: int
    settings: Settings
    partitions: list[Partition] = field(default_factory=list)


class ClusterState:
    """Topics and brokers."""

    def __init__(self, brokers: Collection[Broker], random_bytes: Callable[[int], bytes]) -> None:
        self._brokers = {broker.id: broker for broker in brokers}
        self.topics: dict[str, Topic] = {}  # by name, in the order of creation
        self.version = 1
        self._random_bytes = random_bytes
        self._cluster_id = self.draw_id()

    def draw_id(self) -> str:
        """Generate a random id."""
        return self._random_bytes(_ID_BYTES).hex()

    @property
    def brokers(self) -> list[Broker]:
        """Registered brokers."""
        return [broker for broker in self._brokers.values() if not broker.removed]

    def find_broker(self, host: str, *, removed: bool = False) -> Broker | None:
        """Find a registered or a removed broker by name, address or id."""
        fitting = (one for one in self._brokers.values() if one.removed is removed)
        return next((one for one in fitting if host in {one.id, one.name, one.host, one.url}), None)

    def put_broker(self, broker: Broker) -> None:
        """Update a broker."""
        self._brokers[broker.id] = broker
        self.version += 1

    @property
    def topology(self) -> Topology:
        """Topics as consumer groups see them."""
        return {name: GroupTopic(topic.id, len(topic.partitions)) for name, topic in self.topics.items()}

    # -- topics -------------------------------------------------------------------------------------------

    def create(self, name: str, partitions: int, replication: int, settings: Settings) -> Topic:
        """Create a topic. Raises Refusal."""
        if name in self.topics:
            raise Refusal("exists", EXISTS)
        self._check_limits(partitions, topics=1)
        replicas = min(replication, len(self.brokers))
        topic = Topic(name=name, id=self.draw_id(), replication=replicas, settings=settings)
        topic.partitions += (Partition() for _ in range(partitions))
        self.topics[name] = topic
        self.version += 1
        return topic

    def grow(self, topic: Topic, partitions: int) -> None:
        """Add partitions. Raises Refusal."""
        more = partitions - len(topic.partitions)
        if more < 0:
            text = f"Topic '{topic.name}' has {len(topic.partitions)} partitions; the number cannot be decreased."
            raise Refusal("conflict", text)
        self._check_limits(more)
        topic.partitions += (Partition() for _ in range(more))
        self.version += 1

    def delete(self, name: str) -> None:
        """Delete a topic. Raises Refusal."""
        topic = self.topics.pop(name, None)
        if topic is None:
            raise not_found("topic", NO_TOPIC)
        self.version += 1
        for partition in topic.partitions:
            partition.close()

    def _check_limits(self, partitions: int, topics: int = 0) -> None:
        if len(self.topics) + topics > TOPICS_MAX:
            text = f"{len(self.topics)} topics exist; the limit is {TOPICS_MAX}. Delete unused topics."
            raise Refusal("bad_request", text)
        total = sum(len(topic.partitions) for topic in self.topics.values())
        if total + partitions > PARTITIONS_TOTAL_MAX:
            text = f"{total} partitions exist, and the request adds {partitions}; the limit is {PARTITIONS_TOTAL_MAX}. "
            text += "Delete unused topics, or request fewer partitions."
            raise Refusal("bad_request", text)

    def by_id(self, topic_id: str) -> Topic | None:
        """Return a topic by its id, or None."""
        return next((topic for topic in self.topics.values() if topic.id == topic_id), None)

    def require(self, name: str) -> Topic:
        """Return a topic by its name. Raises Refusal of the v1 API."""
        topic = self.topics.get(name)
        if topic is None:
            raise not_found("topic", f"topic {name[:_SHOWN_MAX]!r} does not exist")
        return topic

    def require_partition(self, name: str, index: int) -> tuple[Topic, Partition]:
        """Return a partition by the name of its topic, or by `id:` and the topic id. Raises Refusal."""
        topic = self.by_id(name.removeprefix(BY_ID)) if name.startswith(BY_ID) else self.topics.get(name)
        if topic is None or index >= len(topic.partitions):
            text = f"topic {name[:_SHOWN_MAX]!r} does not exist or has no partition {index}"
            raise Refusal("unknown_partition", text)
        return topic, topic.partitions[index]

    # -- descriptions -------------------------------------------------------------------------------------

    def replicas(self, topic: Topic, index: int) -> list[str]:
        """Return the ids of the brokers with a replica; the first one is the leader."""
        brokers = self.brokers
        held = [brokers[(index + at) % len(brokers)] for at in range(min(topic.replication, len(brokers)))]
        return [broker.id for broker in sorted(held, key=lambda broker: broker.cordoned)]

    def count_replicas(self, broker: Broker) -> int:
        """Count the replicas of a broker."""
        return sum(
            broker.id in self.replicas(topic, index)
            for topic in self.topics.values()
            for index in range(len(topic.partitions))
        )

    def describe(self, topic: Topic) -> dict[str, Any]:
        """Describe a topic for the v1 API."""
        return self._describe(topic).to_dict()

    def _describe(self, topic: Topic) -> TopicResponse:
        settings = topic.settings
        return TopicResponse(
            name=topic.name,
            id=topic.id,
            replication=topic.replication,
            retention_ms=settings.retention_ms,
            retention_bytes=settings.retention_bytes,
            batch_bytes_max=settings.batch_bytes_max,
            compression=settings.compression,
            owner=None,
            partitions=[
                PartitionResponse(
                    index=at, epoch=PARTITION_EPOCH_FIRST, replicas=(held := self.replicas(topic, at)), leader=held[0]
                )
                for at in range(len(topic.partitions))
            ],
        )

    def metadata(self, names: list[str] | None) -> dict[str, Any]:
        """Return the metadata of all topics, or of the named ones."""
        found = self.topics.values() if names is None else filter(None, map(self.topics.get, dict.fromkeys(names)))
        return MetadataResponse(
            version=self.version,
            cluster_id=self._cluster_id,
            topics=[self._describe(topic) for topic in found],
            missing=[name for name in names or () if name not in self.topics],
            brokers=[
                BrokerResponse(id=one.id, name=one.name, url=one.url, rack=None, active=True, cordoned=one.cordoned)
                for one in self.brokers
            ],
            limits=LimitsResponse(body_bytes_max=BODY_BYTES_MAX_DEFAULT, message_bytes_max=MESSAGE_BYTES_MAX_DEFAULT),
        ).to_dict()
