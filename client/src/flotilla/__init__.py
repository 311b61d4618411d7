"""Flotilla: a partitioned, replicated message log.

The names in `__all__` are the public interface of the client; docs/client-reference.md lists them. They are loaded on
first use, because servers import this package without the client. These modules are public, too:

- `flotilla.testing`: `FakeFlotilla`, an in-memory system for tests (docs/testing.md)
- `flotilla.records`: encode and decode record batches (docs/record-batch.md)
- `flotilla.arrow`: `SCHEMA`, the Arrow schema of tables (docs/tables.md)
- `flotilla.myqueue`: queues with `enqueue` and `dequeue` (docs/myqueue.md)

All other modules are internal: they are shared by the client, the command and the servers, and change without notice.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flotilla.client.admin.blocking import Brokers, Groups, Tokens, Topics
    from flotilla.client.admin.brokers import AsyncBrokers
    from flotilla.client.admin.groups import AsyncGroups
    from flotilla.client.admin.results import (
        AssignedPartition,
        BrokerDescription,
        BrokerPartition,
        GroupDescription,
        GroupListing,
        GroupMember,
        GroupOffset,
        GroupPartition,
        GroupReset,
        NewToken,
        PartitionDescription,
        PartitionOffsets,
        TokenInfo,
    )
    from flotilla.client.admin.tokens import AsyncTokens
    from flotilla.client.admin.topics import AsyncTopics
    from flotilla.client.aio import AsyncClient
    from flotilla.client.appender import Appender, AsyncAppender
    from flotilla.client.async_consumer import AsyncConsumer
    from flotilla.client.blocking import Client
    from flotilla.client.cluster import PartitionInfo, TopicInfo
    from flotilla.client.config import ConsumerOptions, OnGone, ProducerOptions, Route
    from flotilla.client.consumer import Consumer
    from flotilla.client.deliveries import Deliveries, Delivery, Receipt
    from flotilla.client.errors import (
        BufferFull,
        ClientClosed,
        ClientForked,
        ConfigInvalid,
        DataInvalid,
        DeliveryFailed,
        DeliveryUnknown,
        ExtraMissing,
        FlotillaError,
        MemberGone,
        NotAllowed,
        NotFound,
        OffsetOutOfRange,
        OutcomeUnknown,
        RecordInvalid,
        Refused,
        ServerUnreachable,
        TableTooLarge,
        TopicExists,
        TopicMissing,
    )
    from flotilla.client.positions import ConsumerBatch, ConsumerRecord, TopicPartition
    from flotilla.client.producer import AsyncProducer, Producer, ProducerStats
    from flotilla.client.ranges import RangeOptions

__version__ = "0.3.0"
__all__ = [
    "Appender",
    "AssignedPartition",
    "AsyncAppender",
    "AsyncBrokers",
    "AsyncClient",
    "AsyncConsumer",
    "AsyncGroups",
    "AsyncProducer",
    "AsyncTokens",
    "AsyncTopics",
    "BrokerDescription",
    "BrokerPartition",
    "Brokers",
    "BufferFull",
    "Client",
    "ClientClosed",
    "ClientForked",
    "ConfigInvalid",
    "Consumer",
    "ConsumerBatch",
    "ConsumerOptions",
    "ConsumerRecord",
    "DataInvalid",
    "Deliveries",
    "Delivery",
    "DeliveryFailed",
    "DeliveryUnknown",
    "ExtraMissing",
    "FlotillaError",
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "GroupOffset",
    "GroupPartition",
    "GroupReset",
    "Groups",
    "MemberGone",
    "NewToken",
    "NotAllowed",
    "NotFound",
    "OffsetOutOfRange",
    "OnGone",
    "OutcomeUnknown",
    "PartitionDescription",
    "PartitionInfo",
    "PartitionOffsets",
    "Producer",
    "ProducerOptions",
    "ProducerStats",
    "RangeOptions",
    "Receipt",
    "RecordInvalid",
    "Refused",
    "Route",
    "ServerUnreachable",
    "TableTooLarge",
    "TokenInfo",
    "Tokens",
    "TopicExists",
    "TopicInfo",
    "TopicMissing",
    "TopicPartition",
    "Topics",
    "__version__",
]

_NAMES_BY_MODULE = {
    "admin.blocking": ("Brokers", "Groups", "Tokens", "Topics"),
    "admin.brokers": ("AsyncBrokers",),
    "admin.groups": ("AsyncGroups",),
    "admin.results": (
        "AssignedPartition", "BrokerDescription", "BrokerPartition", "GroupDescription", "GroupListing", "GroupMember",
        "GroupOffset", "GroupPartition", "GroupReset", "NewToken", "PartitionDescription", "PartitionOffsets",
        "TokenInfo",
    ),
    "admin.tokens": ("AsyncTokens",),
    "admin.topics": ("AsyncTopics",),
    "aio": ("AsyncClient",),
    "appender": ("Appender", "AsyncAppender"),
    "async_consumer": ("AsyncConsumer",),
    "blocking": ("Client",),
    "cluster": ("PartitionInfo", "TopicInfo"),
    "config": ("ConsumerOptions", "OnGone", "ProducerOptions", "Route"),
    "consumer": ("Consumer",),
    "deliveries": ("Deliveries", "Delivery", "Receipt"),
    "errors": (
        "BufferFull", "ClientClosed", "ClientForked", "ConfigInvalid", "DataInvalid", "DeliveryFailed",
        "DeliveryUnknown", "ExtraMissing", "FlotillaError", "MemberGone", "NotAllowed", "NotFound", "OffsetOutOfRange",
        "OutcomeUnknown", "RecordInvalid", "Refused", "ServerUnreachable", "TableTooLarge", "TopicExists",
        "TopicMissing",
    ),
    "positions": ("ConsumerBatch", "ConsumerRecord", "TopicPartition"),
    "producer": ("AsyncProducer", "Producer", "ProducerStats"),
    "ranges": ("RangeOptions",),
}  # fmt: skip
_MODULES = {name: f"flotilla.client.{module}" for module, names in _NAMES_BY_MODULE.items() for name in names}


def __getattr__(name: str) -> object:
    """Load a public name of the client on first use."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'flotilla' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(module), name)
    return found


def __dir__() -> list[str]:
    """List the public names, loaded or not."""
    return sorted({*globals(), *__all__})
