"""The content of an entry: records, an instruction to the replicas, or a no-op.

The first byte is the type. 0: whole batches, byte for byte as producers sent them. 1 alone: the no-op of a new leader.
1 and more bytes: an instruction. No other type exists.
"""

from collections.abc import Sequence
from typing import Annotated

import msgspec

from flotilla.records import BatchHeader, BatchInvalid, check, split
from flotilla_broker.raft import Entry, EntryInvalid

RECORDS = b"\0"
NOOP = b"\1"

_Number = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


class Seal(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """End the partition epoch: no records follow."""


class Trim(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Remove records below this offset, by retention or deletion. It may be inside a batch."""

    offset: _Number


class Expire(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Remove producers that sent nothing since this time."""

    before_ms: _Number


Instruction = Seal | Trim | Expire
Content = Sequence[BatchHeader] | Instruction | None  # records, an instruction, or the no-op

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Instruction] = msgspec.msgpack.Decoder(Instruction)


def encode_instruction(instruction: Instruction) -> bytes:
    """Encode an instruction as a payload."""
    return NOOP + _encoder.encode(instruction)


def parse(entry: Entry, next_offset: int) -> Content:
    """Parse and check an entry whose first record must have `next_offset`; raises EntryInvalid."""
    payload = entry.payload
    if payload[:1] == RECORDS:
        return _parse_records(entry, next_offset)
    if payload[:1] != NOOP:
        raise EntryInvalid(f"entry {entry.index} has unknown type {bytes(payload[:1]).hex()!r}: must be 00 or 01")
    if entry.next_offset != next_offset:
        raise EntryInvalid(
            f"entry {entry.index} has no records, but next offset {entry.next_offset}: must be {next_offset}"
        )
    if len(payload) == 1:
        return None
    try:
        return _decoder.decode(payload[1:])
    except msgspec.DecodeError as error:
        raise EntryInvalid(f"entry {entry.index} has an unknown instruction: {error}") from error


def _parse_records(entry: Entry, next_offset: int) -> Sequence[BatchHeader]:
    """Parse batches. A base offset other than the expected one means that the sender's log differs."""
    headers = []
    try:
        for batch in split(entry.payload[1:]):
            header = check(batch)
            if header.base_offset != next_offset:
                raise EntryInvalid(
                    f"entry {entry.index} has a batch at offset {header.base_offset}: must be {next_offset}"
                )
            next_offset = header.next_offset
            headers.append(header)
    except BatchInvalid as error:
        raise EntryInvalid(f"entry {entry.index} has an invalid batch: {error}") from error
    if entry.next_offset != next_offset or not headers:
        raise EntryInvalid(f"entry {entry.index} has next offset {entry.next_offset}: its records end at {next_offset}")
    return headers
