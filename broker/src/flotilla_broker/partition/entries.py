"""What an entry of a partition holds: records, or one of a few instructions to the replicas.

The first byte tells. 0: whole batches, byte for byte as their producers made them, one behind the other. 1 alone:
the no-op with which a leader begins. 1 and more: an instruction. No other byte is ever stored.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec

from flotilla.records import BatchHeader, BatchInvalid, check, split
from flotilla_broker.raft import Entry, EntryRefused

RECORDS = b"\0"
NOOP = b"\1"

_Number = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


class Seal(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """The epoch ends: no records follow."""


class Trim(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Records below this offset are gone: their time is over, or somebody deleted them. It may lie in a batch."""

    offset: _Number


class Expire(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Producers that sent nothing since are forgotten."""

    before_ms: _Number


Instruction = Seal | Trim | Expire
Content = Sequence[BatchHeader] | Instruction | None  # records, an instruction, or the no-op

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Instruction] = msgspec.msgpack.Decoder(Instruction)


@dataclass(frozen=True, slots=True)
class Parsed:
    """An entry that was checked."""

    index: int
    content: Content


def encode_instruction(instruction: Instruction) -> bytes:
    """Make the payload of an instruction."""
    return NOOP + _encoder.encode(instruction)


def parse(entry: Entry, next_offset: int) -> Content:
    """Check an entry that follows the record before `next_offset`; raises EntryRefused."""
    payload = entry.payload
    if payload[:1] == RECORDS:
        return _parse_records(entry, next_offset)
    if payload[:1] != NOOP:
        raise EntryRefused(f"entry {entry.index} begins with byte {bytes(payload[:1]).hex()!r}; 00 and 01 are known")
    if entry.next_offset != next_offset:
        raise EntryRefused(f"entry {entry.index} has no records, and yet goes to offset {entry.next_offset}")
    if len(payload) == 1:
        return None
    try:
        return _decoder.decode(payload[1:])
    except msgspec.DecodeError as error:
        raise EntryRefused(f"entry {entry.index} holds no instruction that is known: {error}") from error


def _parse_records(entry: Entry, next_offset: int) -> Sequence[BatchHeader]:
    """The base offset is not the expected one: whoever sent this has another log than we have."""
    headers = []
    try:
        for batch in split(entry.payload[1:]):
            header = check(batch)
            if header.base_offset != next_offset:
                raise EntryRefused(
                    f"entry {entry.index} has a batch at offset {header.base_offset}; {next_offset} is expected"
                )
            next_offset = header.next_offset
            headers.append(header)
    except BatchInvalid as error:
        raise EntryRefused(f"entry {entry.index} holds a bad batch: {error}") from error
    if entry.next_offset != next_offset or not headers:
        raise EntryRefused(f"entry {entry.index} goes to offset {next_offset} and says {entry.next_offset}")
    return headers
