"""What frames of the kinds OPEN, CHECKPOINT_* and CLEANED carry, and the file that says what the folder is.

Encoded by position with msgspec, which checks every type on the way in. A later version may add fields with
defaults at the end of a record; a store of an unknown format is refused as a whole.
"""

from enum import StrEnum

import msgspec

FORMAT = 1


class Durability(StrEnum):
    """What a completed flush stands for."""

    FSYNC = "fsync"  # on stable storage
    OS = "os"  # with the operating system: survives the process, not the machine
    MEMORY = "memory"  # in this process only


class GroupRecord(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """Everything about a group but its entries."""

    number: int
    meta: bytes
    term: int = 0
    vote: bytes = b""
    first_index: int = 1
    anchor_term: int = 0  # term of the entry before the first
    first_offset: int = 0
    last_index: int = 0
    last_term: int = 0
    next_offset: int = 0
    state_index: int = 0  # `state` tells what entries up to here came to
    state: bytes = b""
    quarantined: str = ""


class SegmentRecord(msgspec.Struct, frozen=True, array_like=True):
    """A segment that is not written to any more."""

    id: int
    cold: bool  # written by the cleaner
    end: int  # frames lie before this position


class CheckpointHead(msgspec.Struct, frozen=True, array_like=True):
    """Opens a checkpoint."""

    next_group: int
    segments: list[SegmentRecord]


class Cleaned(msgspec.Struct, frozen=True, array_like=True):
    """The cleaner has put what lived in some segments into others."""

    removed: list[int]
    added: list[SegmentRecord]


class StoreRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The file `store.json`."""

    format: int
    salt: int
    durability: Durability
    boot_id: str
    begun: bool  # False: made, but nothing was ever promised about what is in it
    clean: bool  # closed in order, with everything synced

    def differs_from(self, other: "StoreRecord") -> bool:
        """Tell whether it has to be written. With fsync, what tells of the last run is of no interest.

        So a log on a full disk, where nothing new can be written, can still be opened and closed.
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
