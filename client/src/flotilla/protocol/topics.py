"""Request bodies of the v1 API about topics, and the types of topic settings with their limits and defaults.

Managers and the fake of `flotilla.testing` decode these structs; the simple API and the control API use the same types.
A field that a request may leave out to keep the current value, or the managers' default, is UNSET.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from flotilla.limits import (
    DAY_MS,
    INT64_MAX,
    PARTITIONS_DEFAULT,
    PARTITIONS_MAX,
    REPLICATION_DEFAULT,
    REPLICATION_MAX,
    RETENTION_MS_DEFAULT,
    TOPIC_BATCH_BYTES_MIN,
    TOPIC_NAME,
    CompressionName,
)
from flotilla.records import BATCH_BYTES_MAX

STRICT = {"strict": True}  # managers accept no other JSON type for such a field: `true` is not 1
BY_SETTING = (
    "null: no limit. By default, as managers are set: "
    f"retention_ms is {RETENTION_MS_DEFAULT // DAY_MS} days, retention_bytes no limit"
)

TopicName = Annotated[str, Meta(pattern=TOPIC_NAME)]
Partitions = Annotated[int, Meta(ge=1, le=PARTITIONS_MAX, extra=STRICT)]
Replication = Annotated[int, Meta(ge=1, le=REPLICATION_MAX)]
Retention = Annotated[int, Meta(ge=0, le=INT64_MAX, extra=STRICT)]
BatchBytes = Annotated[
    int,
    Meta(ge=TOPIC_BATCH_BYTES_MIN, le=BATCH_BYTES_MAX, extra=STRICT, description="Maximum size of a batch in bytes"),
]
Compression = Annotated[CompressionName, Meta(description="Compression for producers to use: a hint")]
PartitionIndex = Annotated[int, Meta(ge=0, le=PARTITIONS_MAX - 1)]
Offset = Annotated[int, Meta(ge=0, le=INT64_MAX)]
Owner = Annotated[
    str,
    Meta(
        max_length=500,
        pattern=r"^[^\x00-\x1f\x7f]*$(?!\n)",  # a database has to store it
        description="The resource that owns the topic; only the owner may change or delete it",
    ),
]


class Body(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """A request body."""

    def given(self) -> dict[str, Any]:
        """Return the fields that were sent or have a default."""
        return {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not UNSET}


class NewTopic(Body, frozen=True, kw_only=True):
    """A topic to create."""

    name: TopicName
    partitions: Partitions = PARTITIONS_DEFAULT
    replication: Replication = REPLICATION_DEFAULT
    retention_ms: Annotated[Retention | UnsetType | None, Meta(description=BY_SETTING)] = UNSET
    retention_bytes: Annotated[Retention | UnsetType | None, Meta(description=BY_SETTING)] = UNSET
    batch_bytes_max: BatchBytes | None = None
    compression: Compression | None = None


class TopicChanges(Body, frozen=True, kw_only=True):
    """Settings of a topic to change; omitted ones keep their value. Partitions cannot be decreased."""

    partitions: Partitions | UnsetType | None = UNSET
    retention_ms: Retention | UnsetType | None = UNSET
    retention_bytes: Retention | UnsetType | None = UNSET
    batch_bytes_max: BatchBytes | UnsetType | None = UNSET
    compression: Compression | UnsetType | None = UNSET

    def given(self) -> dict[str, Any]:
        """Return the settings to change; a number of partitions cannot be unset."""
        found = super().given()
        return {name: value for name, value in found.items() if name != "partitions" or value is not None}


class TopicBody(Body, frozen=True, kw_only=True):
    """The desired state of a topic, from the operator; omitted retention and batch settings keep their value."""

    partitions: Annotated[int, Meta(ge=1, le=PARTITIONS_MAX)] = PARTITIONS_DEFAULT
    replication: Replication = REPLICATION_DEFAULT
    retention_ms: Annotated[int, Meta(ge=0, le=INT64_MAX, description=BY_SETTING)] | UnsetType | None = UNSET
    retention_bytes: Annotated[int, Meta(ge=0, le=INT64_MAX, description=BY_SETTING)] | UnsetType | None = UNSET
    batch_bytes_max: BatchBytes | UnsetType | None = UNSET
    compression: Compression | UnsetType | None = UNSET
    owner: Owner | None = None


class DeletePoint(Body, frozen=True, kw_only=True):
    """The offset below which the records of a partition are deleted."""

    partition: PartitionIndex
    offset: Annotated[
        Annotated[int, Meta(ge=0, le=INT64_MAX, extra=STRICT)] | Literal["latest"],
        Meta(description="Delete the records below this offset; `latest`: all current records"),
    ]


class DeleteRecords(Body, frozen=True, kw_only=True):
    """Records to delete."""

    partitions: Annotated[list[DeletePoint], Meta(min_length=1, max_length=PARTITIONS_MAX)]
