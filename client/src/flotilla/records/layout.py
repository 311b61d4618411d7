"""Layout of a batch: constants, limits, and the codec of its header.

A batch is a header of 96 bytes, a body, and zeros up to a multiple of 8, all little-endian. `BatchHeader.from_bytes`
accepts a header only if each field is in its range and the fields are consistent; so the sizes of a `BatchHeader` can
be used without further checks.

Other modules check the rest: `envelope.check` the checksum, and `decoding.decode` the columns.
"""

import enum
import struct
import sys
from dataclasses import dataclass
from typing import Final, Self

from flotilla.records.errors import (
    BadHeader,
    BadMagic,
    BatchTooLarge,
    BatchTruncated,
    UnsupportedVersion,
)

if sys.byteorder != "little":
    # This package and Arrow use the columns in place, in the byte order of the host. Swapping bytes would need a copy.
    raise ImportError("flotilla.records works on little-endian hosts only")

Buffer = bytes | bytearray | memoryview

MAGIC: Final = b"FLTB"
VERSION: Final = 1
HEADER_BYTES: Final = 96
ALIGNMENT_BYTES: Final = 8
"""Every section starts at a multiple of this, as Arrow recommends for buffers."""
PRODUCER_ID_BYTES: Final = 16
NO_PRODUCER: Final = bytes(PRODUCER_ID_BYTES)
"""Producer id of batches that are not retried."""
NO_TIMESTAMP_MS: Final = -1
"""Minimum and maximum timestamp of a batch without timestamps."""

BATCH_BYTES_MAX: Final = 8 * 1024 * 1024
"""Size of an encoded batch."""
BODY_BYTES_MAX: Final = 32 * 1024 * 1024
"""Size of a decompressed body."""
RECORDS_MAX: Final = 1_000_000
"""Records of a batch."""
INT64_MAX: Final = 2**63 - 1
BASE_OFFSET_MAX: Final = INT64_MAX - RECORDS_MAX
"""The offset after a batch always fits an int64."""
BASE_SEQUENCE_MAX: Final = INT64_MAX - RECORDS_MAX
"""The sequence after a batch always fits an int64."""

COMPRESSION_MASK: Final = 0b0000_0011
HAS_KEYS: Final = 0b0000_0100
HAS_NULL_KEYS: Final = 0b0000_1000
HAS_HEADERS: Final = 0b0001_0000
HAS_TIMESTAMPS: Final = 0b0010_0000
UNKNOWN_ATTRIBUTES: Final = 0b1100_0000

CRC_AT: Final = 24
"""Position of the checksum."""
CRC_HEAD: Final = slice(0, 8)
CRC_REST: Final = slice(28, None)
"""The checksum covers these two ranges, but not the fields that the leader assigns, nor itself."""

_HEADER: Final = struct.Struct("<4sBBHqqII16sqqIIIIqq")
_ASSIGNED: Final = struct.Struct("<qq")
_ASSIGNED_AT: Final = 8
_CRC: Final = struct.Struct("<I")
_OFFSET_BYTES: Final = 4
_TIMESTAMP_BYTES: Final = 8


class Compression(enum.IntEnum):
    """Compression of the body."""

    NONE = 0
    ZSTD = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchHeader:
    """Header of a batch.

    `base_offset` and `append_time_ms` are 0 until the leader assigns them. The other fields are set by the producer.
    """

    attributes: int
    base_offset: int = 0
    append_time_ms: int = 0
    crc: int = 0
    total_bytes: int
    producer_id: bytes = NO_PRODUCER
    producer_epoch: int = 0
    base_sequence: int = 0
    count: int
    body_bytes: int
    stored_bytes: int
    timestamp_min_ms: int = NO_TIMESTAMP_MS
    timestamp_max_ms: int = NO_TIMESTAMP_MS

    @classmethod
    def from_bytes(cls, buffer: Buffer) -> Self:
        """Decode and check the header at the start of `buffer`; the following bytes are ignored.

        Raises:
            BatchInvalid: one of its subclasses, by cause.
        """
        view = byte_view(buffer)
        if view.nbytes < HEADER_BYTES:
            raise BatchTruncated(f"a batch header has {HEADER_BYTES} bytes, got {view.nbytes}")
        fields = _HEADER.unpack_from(view)
        magic, version, attributes, header_bytes, base_offset, append_time_ms, crc, total_bytes = fields[:8]
        producer_id, producer_epoch, base_sequence, count, body_bytes, stored_bytes, reserved = fields[8:15]
        _check_format(magic, version, header_bytes, reserved)
        header = cls(
            attributes=attributes,
            base_offset=base_offset,
            append_time_ms=append_time_ms,
            crc=crc,
            total_bytes=total_bytes,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            count=count,
            body_bytes=body_bytes,
            stored_bytes=stored_bytes,
            timestamp_min_ms=fields[15],
            timestamp_max_ms=fields[16],
        )
        _check_attributes(attributes)
        _check_limits(header)
        _check_sizes(header)
        _check_numbers(header)
        return header

    def to_bytes(self) -> bytes:
        """Encode the header, without checks."""
        return _HEADER.pack(
            MAGIC,
            VERSION,
            self.attributes,
            HEADER_BYTES,
            self.base_offset,
            self.append_time_ms,
            self.crc,
            self.total_bytes,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.count,
            self.body_bytes,
            self.stored_bytes,
            0,
            self.timestamp_min_ms,
            self.timestamp_max_ms,
        )

    @property
    def compression(self) -> Compression:
        """Compression of the body."""
        return Compression(self.attributes & COMPRESSION_MASK)

    @property
    def next_offset(self) -> int:
        """Offset after the last record."""
        return self.base_offset + self.count

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record."""
        return self.base_sequence + self.count - 1


def byte_view(buffer: Buffer) -> memoryview:
    """Return a view of the bytes of `buffer`."""
    return memoryview(buffer).cast("B")


def padded(size: int) -> int:
    """Round a size up to a multiple of 8."""
    return -(-size // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def offsets_bytes(count: int) -> int:
    """Return the size of the offsets of a column of `count` items, without padding."""
    return _OFFSET_BYTES * (count + 1)


def validity_bytes(count: int) -> int:
    """Return the size of a bitmap of `count` bits, without padding."""
    return -(-count // 8)


def timestamps_bytes(count: int) -> int:
    """Return the size of `count` timestamps; it needs no padding."""
    return _TIMESTAMP_BYTES * count


def write_crc(batch: bytearray, crc: int) -> None:
    """Write the checksum."""
    _CRC.pack_into(batch, CRC_AT, crc)


def write_assigned(batch: bytearray | memoryview, base_offset: int, append_time_ms: int) -> None:
    """Write the fields that the leader assigns."""
    _ASSIGNED.pack_into(batch, _ASSIGNED_AT, base_offset, append_time_ms)


def _check_format(magic: bytes, version: int, header_bytes: int, reserved: int) -> None:
    if magic != MAGIC:
        raise BadMagic(f"bad magic: a batch starts with {MAGIC.hex()}, got {magic.hex()}")
    if version != VERSION:
        raise UnsupportedVersion(f"the batch has version {version}; version {VERSION} is supported")
    if header_bytes != HEADER_BYTES:
        raise BadHeader(f"header_bytes is {header_bytes}; version {VERSION} has {HEADER_BYTES}")
    if reserved != 0:
        raise BadHeader(f"the reserved field at byte 76 is {reserved}; it must be 0")


def _check_attributes(attributes: int) -> None:
    if attributes & UNKNOWN_ATTRIBUTES:
        raise BadHeader(f"attributes are {attributes:#010b}; bits 6 and 7 must be 0")
    if attributes & COMPRESSION_MASK > Compression.ZSTD:
        raise BadHeader(f"compression is {attributes & COMPRESSION_MASK}; 0 (none) and 1 (zstd) are known")
    if attributes & HAS_NULL_KEYS and not attributes & HAS_KEYS:
        raise BadHeader(f"attributes are {attributes:#010b}; bit 3 (null keys) needs bit 2 (keys)")


def _check_limits(header: BatchHeader) -> None:
    """Check limits, before `_check_sizes`: a batch that exceeds a limit is too large, whatever else is invalid."""
    if header.total_bytes > BATCH_BYTES_MAX:
        raise BatchTooLarge(f"total_bytes is {header.total_bytes}; at most {BATCH_BYTES_MAX} are allowed")
    if header.body_bytes > BODY_BYTES_MAX:
        raise BatchTooLarge(f"body_bytes is {header.body_bytes}; at most {BODY_BYTES_MAX} are allowed")
    if header.count > RECORDS_MAX:
        raise BatchTooLarge(f"count is {header.count}; at most {RECORDS_MAX} records are allowed")
    if header.count == 0:
        raise BadHeader("count is 0; a batch has at least one record")


def _check_sizes(header: BatchHeader) -> None:
    total_bytes, body_bytes, stored_bytes = header.total_bytes, header.body_bytes, header.stored_bytes
    if total_bytes != HEADER_BYTES + padded(stored_bytes):
        raise BadHeader(
            f"total_bytes is {total_bytes}; header, {stored_bytes} stored bytes and padding "
            f"make {HEADER_BYTES + padded(stored_bytes)}"
        )
    if body_bytes % ALIGNMENT_BYTES:
        raise BadHeader(f"body_bytes is {body_bytes}; it must be a multiple of {ALIGNMENT_BYTES}")
    needed = _body_bytes_min(header.count, header.attributes)
    if body_bytes < needed:
        raise BadHeader(f"body_bytes is {body_bytes}; {header.count} records need at least {needed}")
    if header.attributes & COMPRESSION_MASK:
        if stored_bytes >= body_bytes:
            raise BadHeader(f"stored_bytes is {stored_bytes}; compressed, it must be below body_bytes, {body_bytes}")
    elif stored_bytes != body_bytes:
        raise BadHeader(f"stored_bytes is {stored_bytes}; uncompressed, it must equal body_bytes, {body_bytes}")


def _body_bytes_min(count: int, attributes: int) -> int:
    """Return the size of a body with empty values, keys and headers."""
    columns = 1 + bool(attributes & HAS_KEYS) + bool(attributes & HAS_HEADERS)
    size = columns * padded(offsets_bytes(count))
    if attributes & HAS_NULL_KEYS:
        size += padded(validity_bytes(count))
    if attributes & HAS_TIMESTAMPS:
        size += timestamps_bytes(count)
    return size


def _check_numbers(header: BatchHeader) -> None:
    if not 0 <= header.base_offset <= BASE_OFFSET_MAX:
        raise BadHeader(f"base_offset is {header.base_offset}; it must be in 0..{BASE_OFFSET_MAX}")
    if header.append_time_ms < 0:
        raise BadHeader(f"append_time_ms is {header.append_time_ms}; it must not be negative")
    if header.producer_epoch < 0:
        raise BadHeader(f"producer_epoch is {header.producer_epoch}; it must not be negative")
    if not 0 <= header.base_sequence <= BASE_SEQUENCE_MAX:
        raise BadHeader(f"base_sequence is {header.base_sequence}; it must be in 0..{BASE_SEQUENCE_MAX}")
    first, last = header.timestamp_min_ms, header.timestamp_max_ms
    if header.attributes & HAS_TIMESTAMPS:
        if first > last:
            raise BadHeader(f"timestamp_min_ms is {first}, above timestamp_max_ms, {last}")
    elif (first, last) != (NO_TIMESTAMP_MS, NO_TIMESTAMP_MS):
        raise BadHeader(f"timestamps are {first} to {last}; without timestamps both must be {NO_TIMESTAMP_MS}")
