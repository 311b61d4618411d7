"""Topics, offsets, brokers, limits and tokens in responses: their fields, in the order in which they are sent.

Managers and the fake of `flotilla.testing` share them, so that both respond alike. The client has structs of its own,
with defaults for fields that earlier managers do not send. `group_responses` has those of consumer groups.
"""

from collections.abc import Sequence
from typing import Any, Self

import msgspec
from msgspec import UNSET, UnsetType

from flotilla.access import Token
from flotilla.limits import PARTITIONS_MAX, PARTITIONS_TOTAL_MAX, TOPICS_MAX
from flotilla.records import BATCH_BYTES_MAX, RECORDS_MAX


class Response(msgspec.Struct):
    """A JSON object of a response."""

    def to_dict(self) -> dict[str, Any]:
        """Convert to JSON types."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found


class PartitionResponse(Response, kw_only=True):
    """A partition; the leader is a hint."""

    index: int
    epoch: int
    replicas: Sequence[str]
    leader: str


class TopicResponse(Response, kw_only=True):
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


class PartitionOffsetsResponse(Response, kw_only=True):
    """Offsets of a partition; `offset` is sent if the request has a timestamp."""

    index: int
    first_offset: int
    next_offset: int
    offset: int | UnsetType = UNSET


class TopicOffsetsResponse(Response, kw_only=True):
    """Offsets of all partitions of a topic."""

    topic: str
    partitions: list[PartitionOffsetsResponse]


class DeletedPartitionResponse(Response, kw_only=True):
    """Offsets of a partition after its records were deleted."""

    partition: int
    first_offset: int
    next_offset: int


class DeleteRecordsResponse(Response, kw_only=True):
    """Partitions of a topic after records were deleted."""

    topic: str
    partitions: list[DeletedPartitionResponse]


class BrokerResponse(Response, kw_only=True):
    """A broker in the metadata."""

    id: str
    name: str | None
    url: str
    rack: str | None
    active: bool
    cordoned: bool


class LimitsResponse(Response, kw_only=True):
    """Limits in the metadata; those without a default are settings of the managers."""

    batch_bytes_max: int = BATCH_BYTES_MAX
    batch_records_max: int = RECORDS_MAX
    body_bytes_max: int
    message_bytes_max: int
    partitions_max: int = PARTITIONS_MAX
    partitions_total_max: int = PARTITIONS_TOTAL_MAX
    topics_max: int = TOPICS_MAX


class MetadataResponse(Response, kw_only=True):
    """The metadata of a cluster."""

    version: int
    cluster_id: str
    topics: list[TopicResponse]
    missing: list[str]
    brokers: list[BrokerResponse]
    limits: LimitsResponse


class SimpleBrokerResponse(Response, kw_only=True):
    """A broker in the simple API."""

    broker_id: str
    broker_host: str
    broker_name: str | None
    rack: str | None
    status: str
    deactivated: bool
    replicas: int


class TokenResponse(Response, kw_only=True):
    """A token, without its text and digest."""

    id: str
    name: str
    grants: list[str]
    bytes_per_s: int | None
    requests_per_s: int | None
    in_flight_bytes: int | None
    created_ms: int
    expires_ms: int | None

    @classmethod
    def of(cls, token: Token) -> Self:
        """Describe a token."""
        return cls(
            id=token.id,
            name=token.name,
            grants=[str(grant) for grant in token.grants],
            bytes_per_s=token.bytes_per_s,
            requests_per_s=token.requests_per_s,
            in_flight_bytes=token.in_flight_bytes,
            created_ms=token.created_ms,
            expires_ms=token.expires_ms,
        )

    def with_text(self, text: str) -> dict[str, Any]:
        """Convert to JSON types, with the text of a new token."""
        return {"token": text, **self.to_dict()}
