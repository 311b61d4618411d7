"""Payloads of the frames OPEN, CHECKPOINT_* and CLEANED, and the content of `store.json`.

msgspec encodes them by position and checks every type. A later version may add fields with defaults at the end of a
record. A log of an unknown format is rejected.
"""

from enum import StrEnum

import msgspec

FORMAT = 1


class Durability(StrEnum):
    """Guarantee of a completed flush."""

    FSYNC = "fsync"  # on stable storage
    OS = "os"  # in the page cache: survives the process, not the machine
    MEMORY = "memory"  # in this process only


class GroupRecord(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """Everything about a group except its entries."""

    number: int
    meta: bytes
    term: int = 0
    vote: bytes = b""
    first_index: int = 1
    anchor_term: int = 0  # term of the anchor
    first_offset: int = 0
    last_index: int = 0
    last_term: int = 0
    next_offset: int = 0
    state_index: int = 0  # `state` covers the entries up to here
    state: bytes = b""
    quarantined: str = ""


class SegmentRecord(msgspec.Struct, frozen=True, array_like=True):
    """A sealed segment."""

    id: int
    cold: bool  # written by the cleaner
    end: int  # position after the last frame


class CheckpointHead(msgspec.Struct, frozen=True, array_like=True):
    """First record of a checkpoint."""

    next_group: int
    segments: list[SegmentRecord]


class Cleaned(msgspec.Struct, frozen=True, array_like=True):
    """The cleaner replaced segments."""

    removed: list[int]
    added: list[SegmentRecord]


class StoreRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The file `store.json`."""

    format: int
    salt: int
    durability: Durability
    boot_id: str
    begun: bool  # False: created, but nothing was acknowledged yet
    clean: bool  # closed normally, with everything synced

    def differs_from(self, other: "StoreRecord") -> bool:
        """Whether the file must be written. With fsync, the fields about the last run do not matter.

        So a log on a full disk can still be opened and closed.
        """
        if self.durability == other.durability == Durability.FSYNC:
            return self.begun != other.begun
        return self != other


encode = msgspec.msgpack.Encoder().encode
decode_group = msgspec.msgpack.Decoder(GroupRecord).decode
decode_head = msgspec.msgpack.Decoder(CheckpointHead).decode
decode_cleaned = msgspec.msgpack.Decoder(Cleaned).decode
encode_store = msgspec.json.Encoder().encode
decode_store = msgspec.json.Decoder(StoreRecord).decode
