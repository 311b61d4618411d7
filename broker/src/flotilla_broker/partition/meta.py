"""Metadata and state of a replica, stored in the log, so that a restart needs no manager."""

import struct
from typing import Annotated, NamedTuple

import msgspec

from flotilla.limits import REPLICATION_MAX, TOPIC_NAME_RULE
from flotilla_broker.raft import EntryInvalid

TOPIC_ID_BYTES = 16
_KEY = struct.Struct("<16sII")
_VERSION = 1


class GroupKey(NamedTuple):
    """Identity of a Raft group: topic id, partition, partition epoch."""

    topic_id: bytes
    partition: int
    epoch: int

    def to_bytes(self) -> bytes:
        """Encode the key."""
        return _KEY.pack(*self)

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> "GroupKey":
        """Decode a key; raises struct.error."""
        return cls(*_KEY.unpack(data))

    def __str__(self) -> str:
        return f"{self.topic_id.hex()}/{self.partition}@{self.epoch}"


Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 32) - 1)]
BrokerId = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]


class ReplicaMeta(msgspec.Struct, frozen=True, tag="replica"):
    """Topic, partition, members, retention and batch size limit of a replica.

    Field names and defaults are part of the disk format: stored metadata without a field has its default, so a default
    is frozen, whatever new topics get. New fields need one.
    """

    topic: Annotated[str, msgspec.Meta(pattern=f"^{TOPIC_NAME_RULE}$")]
    topic_id: Annotated[bytes, msgspec.Meta(min_length=TOPIC_ID_BYTES, max_length=TOPIC_ID_BYTES)]
    partition: Count
    epoch: Count
    members: Annotated[tuple[BrokerId, ...], msgspec.Meta(min_length=1, max_length=REPLICATION_MAX)]
    retention_ms: Annotated[int, msgspec.Meta(ge=0)] | None = 7 * 24 * 3600 * 1000  # frozen
    retention_bytes: Annotated[int, msgspec.Meta(ge=0)] | None = None
    version: int = _VERSION
    batch_bytes_max: Annotated[int, msgspec.Meta(ge=1)] | None = None  # None: the general limit of batches

    @property
    def key(self) -> GroupKey:
        """Key of the Raft group."""
        return GroupKey(self.topic_id, self.partition, self.epoch)

    @property
    def names(self) -> tuple[str, str]:
        """The names of the topic in requests: its name, and `id:` with its id, which is never reused."""
        return self.topic, f"id:{self.topic_id.hex()}"

    def to_bytes(self) -> bytes:
        """Encode the metadata."""
        return msgspec.msgpack.encode(self)

    @classmethod
    def from_bytes(cls, data: bytes) -> "ReplicaMeta":
        """Decode metadata; raises msgspec.DecodeError."""
        return msgspec.msgpack.decode(data, type=cls)


class _Type(msgspec.Struct):
    type: str = ""


def type_of(meta_bytes: bytes) -> str:
    """Return the type of a group's metadata, even if the rest cannot be decoded."""
    try:
        return msgspec.msgpack.decode(meta_bytes, type=_Type).type
    except msgspec.DecodeError:
        return ""


class ReplicaState(msgspec.Struct, frozen=True, array_like=True):
    """The state of a replica after an index."""

    start_offset: int  # records below are deleted, even if their entry is still stored
    time_ms: int  # of the last entry: append times never decrease
    sealed_index: int  # of the Seal entry; 0 if there is none
    producers: bytes
    version: int = _VERSION

    def to_bytes(self) -> bytes:
        """Encode the state."""
        return msgspec.msgpack.encode(self)

    @classmethod
    def from_bytes(cls, data: bytes) -> "ReplicaState":
        """Decode a state; raises EntryInvalid. Empty data is the initial state."""
        if not data:
            return cls(0, 0, 0, b"")
        try:
            state = msgspec.msgpack.decode(data, type=cls)
        except msgspec.DecodeError as error:
            raise EntryInvalid(f"invalid replica state: {error}") from error
        if state.version != _VERSION:
            raise EntryInvalid(f"replica state has version {state.version}: this broker supports version {_VERSION}")
        return state
