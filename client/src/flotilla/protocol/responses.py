"""Topics, brokers and limits in responses: their fields, in the order in which they are sent.

Managers and the fake of `flotilla.testing` share them, so that both respond alike. The client has structs of its own,
with defaults for fields that earlier managers do not send.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from flotilla.limits import PARTITIONS_MAX, PARTITIONS_TOTAL_MAX, TOPICS_MAX
from flotilla.records import BATCH_BYTES_MAX, RECORDS_MAX


class _Response(msgspec.Struct):
    """A JSON object of a response."""

    def to_dict(self) -> dict[str, Any]:
        """Convert to JSON types."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found


class PartitionResponse(_Response, kw_only=True):
    """A partition; the leader is a hint."""

    index: int
    epoch: int
    replicas: Sequence[str]
    leader: str


class TopicResponse(_Response, kw_only=True):
    """A topic in the v1 API."""

    name: str
    id: str
    replication: int
    retention_ms: int | None
    retention_bytes: int | None
    batch_bytes_max: int | None
    compression: str | None
    owner: str | None
    partitions: list[PartitionResponse]


class BrokerResponse(_Response, kw_only=True):
    """A broker in the metadata."""

    id: str
    name: str | None
    url: str
    rack: str | None
    active: bool
    cordoned: bool


class LimitsResponse(_Response, kw_only=True):
    """Limits in the metadata; those without a default are settings of the managers."""

    batch_bytes_max: int = BATCH_BYTES_MAX
    batch_records_max: int = RECORDS_MAX
    body_bytes_max: int
    message_bytes_max: int
    partitions_max: int = PARTITIONS_MAX
    partitions_total_max: int = PARTITIONS_TOTAL_MAX
    topics_max: int = TOPICS_MAX


class MetadataResponse(_Response, kw_only=True):
    """The metadata of a cluster."""

    version: int
    cluster_id: str
    topics: list[TopicResponse]
    missing: list[str]
    brokers: list[BrokerResponse]
    limits: LimitsResponse


class SimpleBrokerResponse(_Response, kw_only=True):
    """A broker in the simple API."""

    broker_id: str
    broker_host: str
    broker_name: str | None
    rack: str | None
    status: str
    deactivated: bool
    replicas: int
