"""The parameters that calls for people take. Partition indexes are checked later, against the topic."""

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from flotilla.limits import PARTITIONS_MAX, REPLICATION_MAX, TOPIC_BATCH_BYTES_MIN, TOPIC_NAME
from flotilla.records import BATCH_BYTES_MAX

_NUMBER_MAX = (1 << 63) - 1
_SEQUENCE_MAX = (1 << 31) - 1
Name = Annotated[str, Meta(pattern=TOPIC_NAME, description="Letters, digits, '.', '_', '-'; up to 200")]
AnyName = Annotated[str, Meta(max_length=1000, description="The name of a topic", examples=["orders"])]
Id = Annotated[str, Meta(max_length=200, description="As it was given at the registration")]
Index = Annotated[int, Meta(description="From 0 on", examples=[0])]
Number = Annotated[int, Meta(ge=0, le=_NUMBER_MAX)]


class Params(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a call takes."""


class Nothing(Params, frozen=True):
    """A call without parameters."""


class CreateTopic(Params, frozen=True):
    """A new topic."""

    name: Annotated[Name, Meta(examples=["orders"])]
    number_of_partitions: Annotated[int, Meta(ge=1, le=PARTITIONS_MAX, examples=[2])] = 2
    replication: Annotated[int, Meta(ge=1, le=REPLICATION_MAX, examples=[3])] = 3
    retention_ms: Number | UnsetType | None = UNSET  # as managers are set
    retention_bytes: Number | UnsetType | None = UNSET
    batch_bytes_max: (
        Annotated[int, Meta(ge=TOPIC_BATCH_BYTES_MIN, le=BATCH_BYTES_MAX, description="A larger batch is refused")]
        | None
    ) = None
    compression: Literal["none", "zstd"] | None = None

    @property
    def retention(self) -> dict[str, int | None]:
        """What was said about retention."""
        given = {"retention_ms": self.retention_ms, "retention_bytes": self.retention_bytes}
        return {name: value for name, value in given.items() if not isinstance(value, UnsetType)}


class NamedTopic(Params, frozen=True):
    """One topic."""

    name: AnyName


class RegisterProducer(Params, frozen=True):
    """A producer of a topic, which is made if it is not there."""

    topic: Annotated[Name, Meta(examples=["orders"])]


class Produce(Params, frozen=True):
    """One message."""

    topic: AnyName
    producer_id: Id
    message: Annotated[str, Meta(description="The message, as text", examples=["hello"])] | None = None
    message_base64: Annotated[str, Meta(description="The message, if it is no text")] | None = None
    partition_index: Index | None = None
    sequence: (
        Annotated[
            int,
            Meta(ge=0, le=_SEQUENCE_MAX, description="Counts the producer's messages in this partition, from 0 on"),
        ]
        | None
    ) = None
    producer_epoch: Annotated[int, Meta(ge=0, le=_NUMBER_MAX, description="Raise it to begin at sequence 0 again")] = 0


class RegisterConsumer(Params, frozen=True):
    """A consumer of a topic, or of one of its partitions."""

    topic: AnyName
    partition_index: Index | None = None
    start: Literal["earliest", "latest"] = "earliest"


class Consume(Params, frozen=True):
    """The next message."""

    topic: AnyName
    consumer_id: Id
    partition_index: Index | None = None


class ProducerBeat(Params, frozen=True):
    """A producer lives."""

    producer_id: Id


class ConsumerBeat(Params, frozen=True):
    """A consumer lives."""

    consumer_id: Id


class Page(Params, frozen=True):
    """A part of a long list."""

    after: Annotated[str, Meta(pattern="^[0-9A-Za-z]{0,64}$(?!\\n)", description="Begin behind this id")] = ""
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 1000


class BrokerHost(Params, frozen=True):
    """One broker, by the address of its API or by its id."""

    broker_host: Annotated[str, Meta(min_length=1, max_length=300, examples=["127.0.0.1:8090"])]


SAMPLES: dict[type[Params], dict[str, str | int]] = {
    CreateTopic: {"name": "orders", "number_of_partitions": 2},
    NamedTopic: {"name": "orders"},
    RegisterProducer: {"topic": "orders"},
    Produce: {"topic": "orders", "producer_id": "what /producer/register gave", "message": "hello"},
    RegisterConsumer: {"topic": "orders"},
    Consume: {"topic": "orders", "consumer_id": "what /consumer/register gave"},
    ProducerBeat: {"producer_id": "what /producer/register gave"},
    ConsumerBeat: {"consumer_id": "what /consumer/register gave"},
    BrokerHost: {"broker_host": "127.0.0.1:8090"},
}
"""What the docs fill in. A call without a sample takes nothing, or nothing that it needs."""
