"""What a replica notes about itself, in the log, so that it starts again without asking anybody."""

import struct
from typing import Annotated, NamedTuple

import msgspec

from flotilla_broker.raft import EntryRefused

TOPIC_ID_BYTES = 16
_KEY = struct.Struct("<16sII")
_VERSION = 1


class GroupKey(NamedTuple):
    """Which Raft group: a partition of a topic, in one epoch. A topic made again under the same name has another id."""

    topic_id: bytes
    partition: int
    epoch: int

    def to_bytes(self) -> bytes:
        """The key as it travels."""
        return _KEY.pack(*self)

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> "GroupKey":
        """Read a key; raises struct.error."""
        return cls(*_KEY.unpack(data))

    def __str__(self) -> str:
        return f"{self.topic_id.hex()}/{self.partition}@{self.epoch}"


Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 32) - 1)]
BrokerId = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]


class ReplicaMeta(msgspec.Struct, frozen=True, tag="replica"):
    """One replica: of what, with whom, how long records stay, and how large batches may be.

    Notes that are on disks stay readable: what is added has a default.
    """

    topic: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,199}$")]
    topic_id: Annotated[bytes, msgspec.Meta(min_length=TOPIC_ID_BYTES, max_length=TOPIC_ID_BYTES)]
    partition: Count
    epoch: Count
    members: Annotated[tuple[BrokerId, ...], msgspec.Meta(min_length=1, max_length=7)]
    retention_ms: Annotated[int, msgspec.Meta(ge=0)] | None = 7 * 24 * 3600 * 1000
    retention_bytes: Annotated[int, msgspec.Meta(ge=0)] | None = None
    version: int = _VERSION
    batch_bytes_max: Annotated[int, msgspec.Meta(ge=1)] | None = None  # None: no other limit than that of all batches

    @property
    def key(self) -> GroupKey:
        """Which group."""
        return GroupKey(self.topic_id, self.partition, self.epoch)

    @property
    def names(self) -> tuple[str, str]:
        """What clients call the topic: by its name, or by its id, which no other topic ever has."""
        return self.topic, f"id:{self.topic_id.hex()}"

    def to_bytes(self) -> bytes:
        """The note as it is stored."""
        return msgspec.msgpack.encode(self)

    @classmethod
    def from_bytes(cls, data: bytes) -> "ReplicaMeta":
        """Read a note; raises msgspec.DecodeError."""
        return msgspec.msgpack.decode(data, type=cls)


class _Kind(msgspec.Struct):
    type: str = ""


def kind_of(note: bytes) -> str:
    """Tell what a group's note is about, even if it cannot be read otherwise."""
    try:
        return msgspec.msgpack.decode(note, type=_Kind).type
    except msgspec.DecodeError:
        return ""


class ReplicaState(msgspec.Struct, frozen=True, array_like=True):
    """The summary of a replica's entries up to an index."""

    start_offset: int  # records below are gone, though some may share an entry with one that is there
    time_ms: int  # of the last entry: append times do not go back
    sealed_index: int  # of the entry that ended the epoch; 0 if none has
    producers: bytes
    version: int = _VERSION

    def to_bytes(self) -> bytes:
        """The summary as it is stored and sent."""
        return msgspec.msgpack.encode(self)

    @classmethod
    def from_bytes(cls, data: bytes) -> "ReplicaState":
        """Read a summary; raises EntryRefused. A replica that has none yet begins at nothing."""
        if not data:
            return cls(0, 0, 0, b"")
        try:
            state = msgspec.msgpack.decode(data, type=cls)
        except msgspec.DecodeError as error:
            raise EntryRefused(f"the summary of a replica cannot be read: {error}") from error
        if state.version != _VERSION:
            raise EntryRefused(f"the summary of a replica has version {state.version}; {_VERSION} is known")
        return state
