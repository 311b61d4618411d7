"""Parameters of the simple API. Partition indexes are checked later, against the topic."""

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from flotilla.limits import (
    GIVEN_NAME_LENGTH_MAX,
    INT64_MAX,
    PARTITIONS_DEFAULT,
    REPLICATION_DEFAULT,
    SEQUENCE_MAX,
    TOPIC_NAME_LENGTH_MAX,
)
from flotilla.protocol.topics import BatchBytes, Compression, Partitions, Replication, Retention, TopicName

Name = Annotated[TopicName, Meta(description=f"Letters, digits, '.', '_', '-'; up to {TOPIC_NAME_LENGTH_MAX}")]
AnyName = Annotated[str, Meta(max_length=GIVEN_NAME_LENGTH_MAX, description="The name of a topic", examples=["orders"])]
Id = Annotated[str, Meta(max_length=200, description="Id from the registration")]
Index = Annotated[int, Meta(description="Number of the partition, from 0", examples=[0])]


class Params(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Parameters of a call."""


class NoParams(Params, frozen=True):
    """A call without parameters."""


class CreateTopic(Params, frozen=True):
    """A new topic."""

    name: Annotated[Name, Meta(examples=["orders"])]
    number_of_partitions: Annotated[Partitions, Meta(examples=[PARTITIONS_DEFAULT])] = PARTITIONS_DEFAULT
    replication: Annotated[Replication, Meta(examples=[REPLICATION_DEFAULT])] = REPLICATION_DEFAULT
    retention_ms: Retention | UnsetType | None = UNSET  # the managers' setting
    retention_bytes: Retention | UnsetType | None = UNSET
    batch_bytes_max: BatchBytes | None = None
    compression: Compression | None = None

    @property
    def retention(self) -> dict[str, int | None]:
        """The given retention settings."""
        given = {"retention_ms": self.retention_ms, "retention_bytes": self.retention_bytes}
        return {name: value for name, value in given.items() if not isinstance(value, UnsetType)}


class NamedTopic(Params, frozen=True):
    """A topic."""

    name: AnyName


class RegisterProducer(Params, frozen=True):
    """A producer of a topic, which is created if it does not exist."""

    topic: Annotated[Name, Meta(examples=["orders"])]


class Produce(Params, frozen=True):
    """A message."""

    topic: AnyName
    producer_id: Id
    message: Annotated[str, Meta(description="The message, as text", examples=["hello"])] | None = None
    message_base64: Annotated[str, Meta(description="The message in base64")] | None = None
    partition_index: Index | None = None
    sequence: (
        Annotated[
            int,
            Meta(ge=0, le=SEQUENCE_MAX, description="Number of the producer's message in this partition, from 0"),
        ]
        | None
    ) = None
    producer_epoch: Annotated[int, Meta(ge=0, le=INT64_MAX, description="Increment it to restart at sequence 0")] = 0


class RegisterConsumer(Params, frozen=True):
    """A consumer of a topic, or of one of its partitions."""

    topic: AnyName
    partition_index: Index | None = None
    start: Literal["earliest", "latest"] = "earliest"


class Consume(Params, frozen=True):
    """The next message of a consumer."""

    topic: AnyName
    consumer_id: Id
    partition_index: Index | None = None


class ProducerHeartbeat(Params, frozen=True):
    """A heartbeat of a producer."""

    producer_id: Id


class ConsumerHeartbeat(Params, frozen=True):
    """A heartbeat of a consumer."""

    consumer_id: Id


class Page(Params, frozen=True):
    """A page of a list."""

    after: Annotated[str, Meta(pattern="^[0-9A-Za-z]{0,64}$(?!\\n)", description="Start after this id")] = ""
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 1000


class BrokerHost(Params, frozen=True):
    """A broker, by the address of its API or by its id."""

    broker_host: Annotated[str, Meta(min_length=1, max_length=300, examples=["127.0.0.1:8090"])]


SAMPLES: dict[type[Params], dict[str, str | int]] = {
    CreateTopic: {"name": "orders", "number_of_partitions": 2},
    NamedTopic: {"name": "orders"},
    RegisterProducer: {"topic": "orders"},
    Produce: {"topic": "orders", "producer_id": "id from /producer/register", "message": "hello"},
    RegisterConsumer: {"topic": "orders"},
    Consume: {"topic": "orders", "consumer_id": "id from /consumer/register"},
    ProducerHeartbeat: {"producer_id": "id from /producer/register"},
    ConsumerHeartbeat: {"consumer_id": "id from /consumer/register"},
    BrokerHost: {"broker_host": "127.0.0.1:8090"},
}
"""Example values for the API docs. A call without a sample has no required parameters."""
