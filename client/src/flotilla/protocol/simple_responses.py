"""Responses of the simple API: their fields, in the order in which they are sent, and their messages.

Managers and the fake of `flotilla.testing` share them, so that both respond alike. `"status": "success"` is added by
`simple.success`.
"""

from collections.abc import Mapping, Sequence
from typing import Self

from msgspec import UNSET, UnsetType

from flotilla.protocol.responses import Response
from flotilla.protocol.simple import write_message


class MessageResponse(Response, kw_only=True):
    """What was done."""

    message: str

    @classmethod
    def created(cls, topic: str) -> Self:
        """Return the response to the creation of a topic."""
        return cls(message=f"Topic '{topic}' created successfully.")

    @classmethod
    def deleted(cls, topic: str) -> Self:
        """Return the response to the deletion of a topic."""
        return cls(message=f"Topic '{topic}' deleted successfully.")


class RootResponse(Response, kw_only=True):
    """The version and role of a manager."""

    message: str = "Flotilla, a replicated message log."
    version: str
    role: str
    docs: str = "/docs"


class TopicNamesResponse(Response, kw_only=True):
    """Names of topics."""

    topics: Sequence[str]


class SimplePartitionResponse(Response, kw_only=True):
    """A partition; null is a field that no broker reports."""

    partition_index: int
    leader: str | None
    replicas: Sequence[str]
    size: int | None
    size_bytes: int | None
    first_offset: int | None
    next_offset: int | None

    @classmethod
    def of(
        cls,
        index: int,
        *,
        leader: str | None,
        replicas: Sequence[str],
        size_bytes: int | None,
        first_offset: int | None,
        next_offset: int | None,
    ) -> Self:
        """Describe a partition, with its number of messages."""
        return cls(
            partition_index=index,
            leader=leader,
            replicas=replicas,
            size=None if first_offset is None or next_offset is None else next_offset - first_offset,
            size_bytes=size_bytes,
            first_offset=first_offset,
            next_offset=next_offset,
        )


class SimpleTopicResponse(Response, kw_only=True):
    """The partitions of a topic."""

    topic: str
    topic_id: str
    partitions: Sequence[SimplePartitionResponse]


class ProducerIdResponse(Response, kw_only=True):
    """A registered producer."""

    producer_id: str


class ConsumerIdResponse(Response, kw_only=True):
    """A registered consumer."""

    consumer_id: str


class ProducedResponse(Response, kw_only=True):
    """The place of a stored message."""

    partition_index: int
    offset: int


class ConsumedResponse(Response, kw_only=True):
    """A message, as text or as base64, and its place."""

    message: str | UnsetType = UNSET
    message_base64: str | UnsetType = UNSET
    partition_index: int
    offset: int

    @classmethod
    def of(cls, value: bytes, partition: int, offset: int) -> Self:
        """Describe a message."""
        return cls(**write_message(value), partition_index=partition, offset=offset)


class PartitionSizeResponse(Response, kw_only=True):
    """Number of messages of a partition that a consumer has not read."""

    partition_number: int
    size: int


class SizesResponse(Response, kw_only=True):
    """Number of messages that a consumer has not read, for each partition and in total."""

    sizes: Sequence[PartitionSizeResponse]
    size: int

    @classmethod
    def of(cls, left: Mapping[int, int]) -> Self:
        """Describe numbers of messages by partition."""
        sizes = [PartitionSizeResponse(partition_number=index, size=size) for index, size in left.items()]
        return cls(sizes=sizes, size=sum(left.values()))


class ListedProducerResponse(Response, kw_only=True):
    """A registered producer in a list."""

    producer_id: str
    topic: str
    status: str


class ProducersResponse(Response, kw_only=True):
    """A page of registered producers, and the id after which the next page starts."""

    producers: Sequence[ListedProducerResponse]
    after: str | None


class ListedConsumerResponse(Response, kw_only=True):
    """A registered consumer in a list; without a partition, it reads the whole topic."""

    consumer_id: str
    topic: str
    partition_index: int | None
    status: str


class ConsumersResponse(Response, kw_only=True):
    """A page of registered consumers, and the id after which the next page starts."""

    consumers: Sequence[ListedConsumerResponse]
    after: str | None


class ListedManagerResponse(Response, kw_only=True):
    """A manager in a list."""

    name: str
    role: str
    url: str
    status: str


class ManagersResponse(Response, kw_only=True):
    """The managers."""

    managers: Sequence[ListedManagerResponse]


class BrokerChangedResponse(Response, kw_only=True):
    """A broker that was added, removed, activated or deactivated."""

    message: str
    broker_id: str

    @classmethod
    def of(cls, done: str, broker_id: str) -> Self:
        """Describe a change, such as `added`."""
        return cls(message=f"Broker {done} successfully.", broker_id=broker_id)


def status(*, is_active: bool) -> str:
    """Return the status of a client or server: whether it has sent a request or heartbeat recently."""
    return "active" if is_active else "inactive"
