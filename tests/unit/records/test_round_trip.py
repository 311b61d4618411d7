"""Encoding and decoding return the same records in the same order, with all options."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flotilla.records import (
    BASE_SEQUENCE_MAX,
    NO_TIMESTAMP_MS,
    RECORDS_MAX,
    Compression,
    Record,
    assign,
    check,
    decode,
    encode,
)
from unit.records.strategies import Records, records


@given(records(), st.sampled_from(Compression))
def test_records_round_trip(drawn: Records, compression: Compression) -> None:
    assert Records.from_batch(drawn.encode(compression)) == drawn


@given(records(count_max=5), st.sampled_from([bytes, bytearray, memoryview]))
def test_batch_is_decoded_from_bytes_bytearray_or_view(
    drawn: Records, kind: type[bytes] | type[bytearray] | type[memoryview]
) -> None:
    assert decode(kind(drawn.encode())).values == drawn.values


@given(records())
def test_header_describes_the_records(drawn: Records) -> None:
    batch = drawn.encode()
    header = check(batch)
    timestamps = drawn.timestamps_ms or [NO_TIMESTAMP_MS]
    assert header.count == len(drawn.values)
    assert header.total_bytes == len(batch)
    assert (header.timestamp_min_ms, header.timestamp_max_ms) == (min(timestamps), max(timestamps))


@given(records())
def test_encoding_is_deterministic_and_aligned(drawn: Records) -> None:
    """A duplicate is detected by its checksum, so a retry must have the same bytes."""
    batch = drawn.encode()
    assert drawn.encode() == batch
    assert len(batch) % 8 == 0


@given(
    st.binary(min_size=16, max_size=16),
    st.integers(0, 2**63 - 1),
    st.integers(0, BASE_SEQUENCE_MAX),
    st.integers(1, 20),
)
def test_producer_id_epoch_and_sequence_round_trip(producer_id: bytes, epoch: int, sequence: int, count: int) -> None:
    """Duplicates are detected by producer id, epoch and sequence."""
    batch = encode([b"v"] * count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    header = check(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (producer_id, epoch, sequence)
    assert header.last_sequence == sequence + count - 1


def test_records_are_numbered_from_the_base_offset() -> None:
    batch = encode([b"a", b"b"], keys=[None, b"k"], timestamps_ms=[5, 6], headers=[(), (("h", b"1"),)])
    assign(batch, 40, 1_000)
    opened = decode(batch)
    assert len(opened) == 2
    assert list(opened) == [
        Record(40, 5, None, b"a", (), 1_000),
        Record(41, 6, b"k", b"b", (("h", b"1"),), 1_000),
    ]
    assert opened.header.next_offset == 42


def test_absent_columns_are_none() -> None:
    opened = decode(encode([b"v"]))
    assert (opened.keys, opened.headers, opened.timestamps_ms) == (None, None, None)
    assert next(iter(opened)) == Record(0, None, None, b"v", (), 0)


def test_lists_are_cached() -> None:
    opened = decode(encode([b"v"], keys=[b"k"], headers=[()], timestamps_ms=[1]))
    assert opened.values is opened.values
    assert opened.keys is opened.keys
    assert opened.headers is opened.headers
    assert opened.timestamps_ms is opened.timestamps_ms


@pytest.mark.parametrize("count", [1, 7, 8, 9, 63, 64, 65])
@pytest.mark.parametrize("every", [1, 2, 8])
def test_null_keys_are_decoded_at_every_bitmap_position(count: int, every: int) -> None:
    keys = [None if index % every == 0 else b"k" for index in range(count)]
    assert decode(encode([b""] * count, keys=keys)).keys == keys


@pytest.mark.parametrize("compression", Compression)
def test_maximum_number_of_records_fits(compression: Compression) -> None:
    opened = decode(encode([b""] * RECORDS_MAX, compression=compression))
    assert len(opened.values) == RECORDS_MAX


def test_incompressible_body_is_stored_uncompressed() -> None:
    """A compressed body is always smaller than the uncompressed one."""
    batch = encode([b"a"], compression=Compression.ZSTD)
    assert check(batch).compression is Compression.NONE
    assert batch == encode([b"a"])


def test_frame_of_equal_size_is_stored_uncompressed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flotilla.records.encoding.compress", lambda body, _level: bytes(len(body)))
    assert encode([b"a"], compression=Compression.ZSTD) == encode([b"a"])


@pytest.mark.parametrize("level", [1, 3, 19])
def test_compressible_body_is_stored_as_one_frame(level: int) -> None:
    values = [f"line {number} of a log".encode() for number in range(300)]
    batch = encode(values, compression=Compression.ZSTD, level=level)
    header = check(batch)
    assert header.compression is Compression.ZSTD
    assert header.stored_bytes < header.body_bytes
    assert len(batch) == header.total_bytes < len(encode(values))
    assert decode(batch).values == values


def test_columns_are_read_only_views() -> None:
    opened = decode(encode([b"ab", b"c"], keys=[b"k", None], timestamps_ms=[1, 2]))
    assert opened.key_column is not None
    assert opened.key_column.validity is not None
    assert opened.timestamp_column is not None
    views = [
        opened.value_column.offsets,
        opened.value_column.data,
        opened.key_column.validity,
        opened.timestamp_column,
    ]
    assert all(view.readonly for view in views)
    assert all(one <= other for one, other in pairwise(opened.value_column.offsets))
    assert opened.value_column.offsets.tolist() == [0, 2, 3]
    assert bytes(opened.value_column.data) == b"abc"
