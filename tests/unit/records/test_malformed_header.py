"""Invalid headers are refused with the violated rule."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flotilla.records import (
    BASE_OFFSET_MAX,
    BASE_SEQUENCE_MAX,
    BATCH_BYTES_MAX,
    BODY_BYTES_MAX,
    RECORDS_MAX,
    BadHeader,
    BadMagic,
    BatchHeader,
    BatchInvalid,
    BatchTooLarge,
    BatchTruncated,
    Compression,
    UnsupportedVersion,
    check,
    decode,
    encode,
    split,
)
from unit.records.forge import (
    KEYS,
    MIB,
    NULLS,
    TIMESTAMPS,
    ZSTD,
    batch_around,
    memory_below,
    offsets,
    with_fields,
)

BATCH = encode(
    [b"first", b"", b"third"],
    keys=[b"k1", None, b""],
    headers=[(("h", b"1"),), (), ()],
    timestamps_ms=[5, 6, 7],
    producer_id=bytes(range(16)),
    base_sequence=9,
)
PACKED = encode([b"again and again"] * 100, compression=Compression.ZSTD)
UINT32_MAX = 2**32 - 1


@pytest.mark.parametrize("batch", [BATCH, PACKED], ids=["plain", "zstd"])
def test_truncated_batch_is_refused(batch: bytearray) -> None:
    for length in range(len(batch)):
        for read in (check, decode):
            with pytest.raises(BatchTruncated, match=f"got {length}$"):
                read(batch[:length])


@pytest.mark.parametrize("batch", [BATCH, PACKED], ids=["plain", "zstd"])
def test_flipped_bit_is_refused_outside_the_assigned_fields(batch: bytearray) -> None:
    """The checksum covers everything except base offset, append time and itself."""
    for bit in range(len(batch) * 8):
        flipped = bytearray(batch)
        flipped[bit // 8] ^= 1 << bit % 8
        sign_bit = bit in {15 * 8 + 7, 23 * 8 + 7}
        if 8 <= bit // 8 < 24 and not sign_bit:
            assert decode(flipped).values == decode(batch).values
        else:
            with pytest.raises(BatchInvalid):
                check(flipped)


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused(garbage: bytes) -> None:
    for read in (check, decode, BatchHeader.from_bytes):
        with pytest.raises(BatchInvalid):
            read(garbage)


@given(st.binary(min_size=88, max_size=300))
def test_arbitrary_bytes_after_the_magic_are_refused(garbage: bytes) -> None:
    for read in (check, decode, lambda batch: list(split(batch))):
        with pytest.raises(BatchInvalid):
            read(b"FLTB\x01\x00\x60\x00" + garbage)


def test_wrong_magic_is_refused() -> None:
    with pytest.raises(BadMagic, match="464c5442, got 00000000"):
        check(with_fields(BATCH, magic=0))


@pytest.mark.parametrize("version", [0, 2, 255])
def test_unsupported_version_is_refused(version: int) -> None:
    with pytest.raises(UnsupportedVersion, match=f"version {version}; version 1 is supported"):
        check(with_fields(BATCH, version=version))


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        (0b0000_0010, "compression is 2"),
        (0b0000_0011, "compression is 3"),
        (NULLS, "bit 3 .* needs bit 2"),
        (0b0100_0000, "bits 6 and 7 must be 0"),
        (0b1000_0000, "bits 6 and 7 must be 0"),
    ],
)
def test_undefined_attributes_are_refused(attributes: int, text: str) -> None:
    with pytest.raises(BadHeader, match=text):
        check(with_fields(encode([b"v"]), attributes=attributes))


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"header_bytes": 95}, "header_bytes is 95"),
        ({"header_bytes": 104}, "header_bytes is 104"),
        ({"reserved": 1}, "reserved field at byte 76 is 1"),
        ({"base_offset": -1}, "base_offset is -1"),
        ({"base_offset": BASE_OFFSET_MAX + 1}, "base_offset is"),
        ({"append_time_ms": -1}, "append_time_ms is -1"),
        ({"producer_epoch": -1}, "producer_epoch is -1"),
        ({"base_sequence": -1}, "base_sequence is -1"),
        ({"base_sequence": BASE_SEQUENCE_MAX + 1}, "base_sequence is"),
        ({"timestamp_min_ms": 8}, "timestamp_min_ms is 8, above timestamp_max_ms, 7"),
        ({"count": 0}, "count is 0"),
        ({"total_bytes": 0}, "total_bytes is 0"),
        ({"total_bytes": len(BATCH) - 8}, "total_bytes is"),
        ({"total_bytes": len(BATCH) - 1}, "total_bytes is"),
        ({"total_bytes": len(BATCH) + 8}, "total_bytes is"),
        ({"stored_bytes": 0}, "total_bytes is"),
        ({"stored_bytes": UINT32_MAX}, "total_bytes is"),
        ({"stored_bytes": len(BATCH) - 97}, "stored_bytes is"),
        ({"body_bytes": 0}, "body_bytes is 0"),
        ({"body_bytes": len(BATCH) - 97}, "must be a multiple of 8"),
        ({"body_bytes": len(BATCH) - 88}, "must equal body_bytes"),
        ({"count": 100}, "100 records need at least"),
        ({"count": RECORDS_MAX}, "records need at least"),
    ],
)
def test_inconsistent_header_field_is_refused(fields: dict[str, int], text: str) -> None:
    with pytest.raises(BadHeader, match=text):
        check(with_fields(BATCH, **fields))


@pytest.mark.parametrize("fields", [{"timestamp_min_ms": 0}, {"timestamp_max_ms": 0}])
def test_timestamp_range_without_timestamps_is_refused(fields: dict[str, int]) -> None:
    with pytest.raises(BadHeader, match="without timestamps both must be -1"):
        check(with_fields(encode([b"v"]), **fields))


def test_compressed_body_must_be_smaller() -> None:
    with pytest.raises(BadHeader, match="compressed, it must be below body_bytes"):
        check(batch_around(offsets(0, 0), attributes=ZSTD))


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"total_bytes": BATCH_BYTES_MAX + 8}, "total_bytes is 8388616; at most 8388608"),
        ({"total_bytes": UINT32_MAX}, "total_bytes is 4294967295"),
        ({"body_bytes": BODY_BYTES_MAX + 8}, "body_bytes is 33554440; at most 33554432"),
        ({"body_bytes": UINT32_MAX}, "body_bytes is 4294967295"),
        ({"count": RECORDS_MAX + 1}, "count is 1000001; at most 1000000"),
        ({"count": UINT32_MAX}, "count is 4294967295"),
    ],
)
@pytest.mark.parametrize("batch", [BATCH, PACKED], ids=["plain", "zstd"])
def test_field_above_its_limit_is_refused_without_allocating(
    batch: bytearray, fields: dict[str, int], text: str
) -> None:
    """Limits are checked before anything large is allocated."""
    forged = with_fields(batch, **fields)
    with memory_below(MIB), pytest.raises(BatchTooLarge, match=text):
        decode(forged)


@pytest.mark.parametrize(
    ("attributes", "needed"),
    [(0, 16), (KEYS, 32), (KEYS | NULLS, 40), (TIMESTAMPS, 40)],
)
def test_minimum_body_size_includes_every_column(attributes: int, needed: int) -> None:
    """Too high a count would use up offsets and sequences without records."""
    with pytest.raises(BadHeader, match=f"3 records need at least {needed}"):
        check(batch_around(bytes(needed - 8), count=3, attributes=attributes))
