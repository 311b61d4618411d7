"""Encoding of records to a batch.

`encode` checks its arguments before it copies values, and copies every byte once. The work per record happens in C
loops (`map`, `accumulate`, `join`): no Python statement runs per value, which allows millions of records per second.

The encoding is canonical: equal arguments give equal bytes, if the batch is uncompressed (versions of zstd differ).
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from flotilla.records.compression import LEVEL_DEFAULT, LEVEL_MAX, LEVEL_MIN, compress
from flotilla.records.decoding import Column
from flotilla.records.envelope import checksum
from flotilla.records.errors import BatchTooLarge, RecordInvalid
from flotilla.records.headers import Headers, encode_column
from flotilla.records.layout import (
    BASE_SEQUENCE_MAX,
    BATCH_BYTES_MAX,
    BODY_BYTES_MAX,
    HAS_HEADERS,
    HAS_KEYS,
    HAS_NULL_KEYS,
    HAS_TIMESTAMPS,
    HEADER_BYTES,
    INT64_MAX,
    NO_PRODUCER,
    NO_TIMESTAMP_MS,
    PRODUCER_ID_BYTES,
    RECORDS_MAX,
    BatchHeader,
    Compression,
    padded,
    validity_bytes,
    write_crc,
)


def encode(
    values: Sequence[bytes],
    *,
    keys: Sequence[bytes | None] | None = None,
    headers: Sequence[Headers] | None = None,
    timestamps_ms: Sequence[int] | None = None,
    producer_id: bytes = NO_PRODUCER,
    producer_epoch: int = 0,
    base_sequence: int = 0,
    compression: Compression = Compression.NONE,
    level: int = LEVEL_DEFAULT,
) -> bytearray:
    """Encode records as one batch. It is mutable, so that the leader can `assign` its offset.

    Args:
        values: one per record, at least one.
        keys: one per record, None where a record has none; or no keys at all.
        headers: one tuple of (name, value) pairs per record; or no headers at all.
        timestamps_ms: one per record, any int64, by convention since 1970; or no timestamps at all.
        producer_id: 16 bytes; duplicates are detected by producer id, epoch and sequence.
        producer_epoch: incremented when the producer gives up on earlier batches.
        base_sequence: the sequence of the first record.
        compression: with ZSTD, a body that does not become smaller is stored uncompressed.
        level: level of zstd, 1 (fast) to 19 (small).

    Raises:
        RecordInvalid: an argument breaks a rule.
        BatchTooLarge: the records do not fit one batch.
    """
    count = _check_count(values)
    _check_identity(producer_id, producer_epoch, base_sequence)
    _check_compression(compression, level)
    body = _Body()
    _add_values(body, values)
    if keys is not None:
        _add_keys(body, keys, count)
    if headers is not None:
        _check_rows("headers", headers, count)
        body.add_attribute(HAS_HEADERS)
        body.add_column(encode_column(headers))
    timestamp_min_ms = timestamp_max_ms = NO_TIMESTAMP_MS
    if timestamps_ms is not None:
        timestamp_min_ms, timestamp_max_ms = _add_timestamps(body, timestamps_ms, count)
    identity = (producer_id, producer_epoch, base_sequence)
    return _finish(body, count, identity, compression, level, (timestamp_min_ms, timestamp_max_ms))


def encode_columns(
    values: Column,
    *,
    keys: Column | None = None,
    headers: Column | None = None,
    producer_id: bytes = NO_PRODUCER,
    producer_epoch: int = 0,
    base_sequence: int = 0,
    compression: Compression = Compression.NONE,
    level: int = LEVEL_DEFAULT,
) -> bytearray:
    """Encode columns as one batch: the same bytes as from `encode`, without an object per record.

    There is one value per record, and at least one. Keys have a validity bitmap only if some are null; null keys are
    empty. Headers are encoded with `encode_headers`. Offsets start at 0, and end at the length of the data. The other
    arguments are those of `encode`.

    Raises:
        RecordInvalid: an argument breaks a rule.
        BatchTooLarge: the records do not fit one batch.
    """
    count = len(values.offsets) - 1
    if count < 1:
        raise RecordInvalid("values is empty; a batch has at least one record")
    if count > RECORDS_MAX:
        raise BatchTooLarge(f"{count} records do not fit one batch; at most {RECORDS_MAX} are allowed")
    _check_identity(producer_id, producer_epoch, base_sequence)
    _check_compression(compression, level)
    body = _Body()
    body.add_packed("values", values, count)
    if keys is not None:
        body.add_attribute(HAS_KEYS)
        if keys.validity is not None:
            body.add_attribute(HAS_NULL_KEYS)
            body.add_section([bytes(keys.validity)], validity_bytes(count))
        body.add_packed("keys", keys, count)
    if headers is not None:
        body.add_attribute(HAS_HEADERS)
        body.add_packed("headers", headers, count)
    identity = (producer_id, producer_epoch, base_sequence)
    return _finish(body, count, identity, compression, level, (NO_TIMESTAMP_MS, NO_TIMESTAMP_MS))


@dataclass(slots=True)
class _Body:
    """The sections so far, as pieces: they are copied once, when all are known."""

    attributes: int = 0
    size: int = 0
    pieces: list[bytes] = field(default_factory=list)

    def add_attribute(self, attribute: int) -> None:
        self.attributes |= attribute

    def add_section(self, pieces: Sequence[bytes], size: int) -> None:
        """Add pieces of `size` bytes in all, and their padding."""
        self.pieces.extend(pieces)
        self.pieces.append(bytes(padded(size) - size))
        self.size += padded(size)
        if self.size > BODY_BYTES_MAX:
            raise BatchTooLarge(f"the body would have {self.size} bytes or more; at most {BODY_BYTES_MAX} are allowed")

    def add_column(self, items: Sequence[bytes]) -> None:
        offsets = list(accumulate(map(len, items), initial=0))
        if offsets[-1] > BODY_BYTES_MAX:
            # Checked here, because larger values may not fit the offsets.
            raise BatchTooLarge(f"a column has {offsets[-1]} bytes; at most {BODY_BYTES_MAX} are allowed in a body")
        packed = array("i", offsets).tobytes()
        self.add_section([packed], len(packed))
        self.add_section(items, offsets[-1])

    def add_packed(self, name: str, column: Column, count: int) -> None:
        """Add an encoded column. Its offsets are checked, because readers rely on them."""
        offsets = column.offsets.tolist()
        if len(offsets) != count + 1:
            raise RecordInvalid(f"{name} has {len(offsets) - 1} items for {count} values; expected one per value")
        if offsets[0] != 0 or offsets[-1] != len(column.data) or offsets != sorted(offsets):
            raise RecordInvalid(f"the offsets of {name} must rise from 0 to the length of its data")
        packed = column.offsets.tobytes()
        self.add_section([packed], len(packed))
        self.add_section([bytes(column.data)], len(column.data))


def _add_values(body: _Body, values: Sequence[bytes]) -> None:
    _check_types("value", values, {bytes}, "bytes")
    body.add_column(values)


def _add_keys(body: _Body, keys: Sequence[bytes | None], count: int) -> None:
    _check_rows("keys", keys, count)
    _check_types("key", keys, {bytes, type(None)}, "bytes or None")
    body.add_attribute(HAS_KEYS)
    if None in keys:
        body.add_attribute(HAS_NULL_KEYS)
        body.add_section([_validity(keys)], validity_bytes(count))
    body.add_column([key or b"" for key in keys])


def _validity(keys: Sequence[bytes | None]) -> bytes:
    """Return Arrow's bitmap: bit i % 8 of byte i // 8 is set if key i is not null."""
    # Little-endian, the bitmap is one integer, whose binary digits are the flags of the keys in reverse order.
    digits = "".join(["0" if key is None else "1" for key in reversed(keys)])
    return int(digits, 2).to_bytes(validity_bytes(len(keys)), "little")


def _add_timestamps(body: _Body, timestamps_ms: Sequence[int], count: int) -> tuple[int, int]:
    _check_rows("timestamps_ms", timestamps_ms, count)
    _check_types("timestamp", timestamps_ms, {int}, "int")
    first, last = min(timestamps_ms), max(timestamps_ms)
    if first < -INT64_MAX - 1 or last > INT64_MAX:
        raise RecordInvalid(f"timestamps_ms go from {first} to {last}; they must fit 64 bits")
    packed = array("q", timestamps_ms).tobytes()
    body.add_attribute(HAS_TIMESTAMPS)
    body.add_section([packed], len(packed))
    return first, last


def _finish(
    body: _Body,
    count: int,
    identity: tuple[bytes, int, int],
    compression: Compression,
    level: int,
    times_ms: tuple[int, int],
) -> bytearray:
    stored, used = _store(body, compression, level)
    stored_bytes = body.size if used is Compression.NONE else len(stored[0])
    producer_id, producer_epoch, base_sequence = identity
    header = BatchHeader(
        attributes=body.attributes | used,
        total_bytes=HEADER_BYTES + padded(stored_bytes),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        count=count,
        body_bytes=body.size,
        stored_bytes=stored_bytes,
        timestamp_min_ms=times_ms[0],
        timestamp_max_ms=times_ms[1],
    )
    return _assemble(header, stored)


def _store(body: _Body, compression: Compression, level: int) -> tuple[list[bytes], Compression]:
    """Return the pieces of the stored body and its compression; uncompressed if compression does not save bytes."""
    if compression is Compression.ZSTD:
        frame = compress(b"".join(body.pieces), level)
        if len(frame) < body.size:
            return [frame, bytes(padded(len(frame)) - len(frame))], Compression.ZSTD
    return body.pieces, Compression.NONE


def _assemble(header: BatchHeader, stored: list[bytes]) -> bytearray:
    if header.total_bytes > BATCH_BYTES_MAX:
        raise BatchTooLarge(f"the batch would have {header.total_bytes} bytes; at most {BATCH_BYTES_MAX} are allowed")
    batch = bytearray().join([header.to_bytes(), *stored])
    write_crc(batch, checksum(memoryview(batch)))
    return batch


def _check_count(values: Sequence[bytes]) -> int:
    if not isinstance(values, Sequence):
        raise RecordInvalid(f"values is a {type(values).__name__}; expected a sequence of bytes")
    if not values:
        raise RecordInvalid("values is empty; a batch has at least one record")
    if len(values) > RECORDS_MAX:
        raise BatchTooLarge(f"{len(values)} records do not fit one batch; at most {RECORDS_MAX} are allowed")
    return len(values)


def _check_rows(name: str, rows: Sequence[object], count: int) -> None:
    if not isinstance(rows, Sequence):
        raise RecordInvalid(f"{name} is a {type(rows).__name__}; expected a sequence")
    if len(rows) != count:
        raise RecordInvalid(f"{name} has {len(rows)} items for {count} values; expected one per value")


def _check_types(name: str, items: Sequence[object], allowed: set[type], expected: str) -> None:
    """Check exact types, so that no subclass can return a wrong length; without an error, in one pass in C."""
    if set(map(type, items)) <= allowed:
        return
    index, item = next((index, item) for index, item in enumerate(items) if type(item) not in allowed)
    raise RecordInvalid(f"{name} {index} is a {type(item).__name__}; expected {expected}")


def _check_identity(producer_id: bytes, producer_epoch: int, base_sequence: int) -> None:
    if type(producer_id) is not bytes or len(producer_id) != PRODUCER_ID_BYTES:
        raise RecordInvalid(f"producer_id must be {PRODUCER_ID_BYTES} bytes")
    _check_number("producer_epoch", producer_epoch, INT64_MAX)
    _check_number("base_sequence", base_sequence, BASE_SEQUENCE_MAX)


def _check_compression(compression: Compression, level: int) -> None:
    if not isinstance(compression, Compression):
        raise RecordInvalid(f"compression is a {type(compression).__name__}; expected a Compression")
    if type(level) is not int or not LEVEL_MIN <= level <= LEVEL_MAX:
        raise RecordInvalid(f"level must be an int from {LEVEL_MIN} to {LEVEL_MAX}")


def _check_number(name: str, number: int, largest: int) -> None:
    if type(number) is not int or not 0 <= number <= largest:
        raise RecordInvalid(f"{name} must be an int from 0 to {largest}")
