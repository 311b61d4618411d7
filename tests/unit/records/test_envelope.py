"""Functions of servers: check, assign and split, without decoding a body and without copies."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flotilla.records import (
    BASE_OFFSET_MAX,
    AssignmentInvalid,
    BadMagic,
    BadPadding,
    BatchHeader,
    BatchTruncated,
    CrcMismatch,
    TrailingBytes,
    assign,
    check,
    decode,
    encode,
    split,
)
from unit.records.forge import MIB, ZSTD, batch_around, memory_below, with_fields
from unit.records.strategies import Records, records

INT64_MAX = 2**63 - 1


@given(records(count_max=5), st.integers(0, BASE_OFFSET_MAX), st.integers(0, INT64_MAX))
def test_assign_changes_sixteen_bytes_and_keeps_the_checksum_valid(
    drawn: Records, base_offset: int, append_time_ms: int
) -> None:
    """An entry is whole client batches; the leader changes only base offset and append time."""
    batch = drawn.encode()
    before = bytes(batch)
    assign(batch, base_offset, append_time_ms)
    header = check(batch)
    assert (header.base_offset, header.append_time_ms) == (base_offset, append_time_ms)
    assert header.next_offset == base_offset + len(drawn.values)
    assert batch[:8] == before[:8]
    assert batch[24:] == before[24:]


def test_assign_writes_through_a_view() -> None:
    batch = encode([b"v"])
    assign(memoryview(batch), 3, 4)
    assert check(batch).base_offset == 3


@pytest.mark.parametrize(
    ("base_offset", "append_time_ms"),
    [(-1, 0), (BASE_OFFSET_MAX + 1, 0), (2**64, 0), (0, -1), (0, INT64_MAX + 1)],
)
def test_assign_refuses_out_of_range_values_without_writing(base_offset: int, append_time_ms: int) -> None:
    batch = encode([b"v"])
    before = bytes(batch)
    with pytest.raises(AssignmentInvalid, match="must be in"):
        assign(batch, base_offset, append_time_ms)
    assert batch == before


def test_assign_refuses_a_buffer_that_is_not_a_batch() -> None:
    with pytest.raises(BatchTruncated):
        assign(bytearray(95), 0, 0)
    with pytest.raises(BadMagic):
        assign(bytearray(96), 0, 0)


def test_check_does_not_validate_the_body() -> None:
    """Servers do not decode bodies: their content is up to producers and consumers."""
    batch = encode([b"v"])
    batch[96] = 255  # the first offset
    assert check(with_fields(batch)).count == 1


def test_check_refuses_trailing_bytes() -> None:
    batch = encode([b"v"])
    with pytest.raises(TrailingBytes, match="the batch has 112 bytes, got 120"):
        check(batch + bytes(8))


def test_check_refuses_a_wrong_checksum() -> None:
    batch = encode([b"v"])
    batch[24] ^= 1
    with pytest.raises(CrcMismatch, match="CRC"):
        check(batch)


def test_check_refuses_nonzero_padding() -> None:
    batch = batch_around(b"13 bytes long", attributes=ZSTD, body_bytes=16)
    assert check(batch).stored_bytes == 13
    for position in range(96 + 13, len(batch)):
        dirty = bytearray(batch)
        dirty[position] = 1
        with pytest.raises(BadPadding):
            check(with_fields(dirty))


def test_check_and_split_copy_nothing() -> None:
    batch = encode([bytes(1024)] * 4096)
    with memory_below(MIB // 8):
        for part in split(batch):
            check(part)
        check(memoryview(batch))


@given(st.lists(records(count_max=3), max_size=5))
def test_split_returns_concatenated_batches(drawn: list[Records]) -> None:
    """A Raft entry is one or more whole client batches; a fetch response has the stored bytes."""
    batches = [bytes(one.encode()) for one in drawn]
    assert [bytes(part) for part in split(b"".join(batches))] == batches


def test_batches_from_split_can_be_assigned_in_place() -> None:
    entry = encode([b"a", b"b"]) + encode([b"c"])
    next_offset = 10
    for part in split(entry):
        assign(part, next_offset, 77)
        next_offset = check(part).next_offset
    assert [record.offset for part in split(entry) for record in decode(part)] == [10, 11, 12]


@pytest.mark.parametrize("cut", [1, 8, 95, 96, 111])
def test_split_error_has_the_position_of_a_truncated_batch(cut: int) -> None:
    whole, tail = encode([b"a"]), encode([b"b"])[:cut]
    parts = split(whole + tail)
    assert bytes(next(parts)) == whole
    with pytest.raises(BatchTruncated, match="the batch at byte 112"):
        next(parts)


def test_split_error_has_the_position_of_invalid_data() -> None:
    with pytest.raises(BadMagic, match="the batch at byte 112"):
        list(split(encode([b"a"]) + bytes(200)))


def test_header_is_read_from_a_longer_buffer() -> None:
    assert BatchHeader.from_bytes(encode([b"a", b"b"]) + b"more").count == 2


def test_header_round_trips() -> None:
    batch = encode([b"a"], producer_id=b"0123456789abcdef", producer_epoch=5, base_sequence=6, timestamps_ms=[7])
    assert BatchHeader.from_bytes(batch).to_bytes() == batch[:96]
