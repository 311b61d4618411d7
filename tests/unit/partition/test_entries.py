"""What an entry may hold, and everything else, which is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flotilla.records import assign, encode
from flotilla_broker.partition.entries import (
    NOOP,
    RECORDS,
    Expire,
    Instruction,
    Seal,
    Trim,
    encode_instruction,
    parse,
)
from flotilla_broker.partition.meta import GroupKey, ReplicaMeta, ReplicaState
from flotilla_broker.raft import Entry, EntryRefused


def entry(payload: bytes, next_offset: int = 10) -> Entry:
    return Entry(3, 1, next_offset, 0, memoryview(payload))


def batch(base_offset: int, *values: bytes) -> bytes:
    data = encode(list(values))
    assign(data, base_offset, 5)
    return bytes(data)


def test_batches_lie_one_behind_the_other_with_dense_offsets() -> None:
    payload = RECORDS + batch(10, b"a", b"b") + batch(12, b"c")
    content = parse(entry(payload, 13), 10)
    assert isinstance(content, list)
    assert [(header.base_offset, header.count) for header in content] == [(10, 2), (12, 1)]


@pytest.mark.parametrize("instruction", [Seal(), Trim(0), Trim((1 << 63) - 1), Expire(7)])
def test_an_instruction_is_what_it_was(instruction: Instruction) -> None:
    assert parse(entry(encode_instruction(instruction)), 10) == instruction


def test_the_no_op_says_nothing() -> None:
    assert parse(entry(NOOP), 10) is None


@pytest.mark.parametrize(
    ("payload", "next_offset", "why"),
    [
        (RECORDS + batch(11, b"a"), 12, "offset 11; 10 is expected"),
        (RECORDS + batch(10, b"a") + batch(10, b"a"), 12, "offset 10; 11 is expected"),
        (RECORDS + batch(10, b"a"), 12, "goes to offset 11 and says 12"),
        (RECORDS, 10, "goes to offset"),
        (RECORDS + batch(10, b"a")[:-1], 11, "bad batch"),
        (RECORDS + batch(10, b"a") + b"\0", 11, "bad batch"),
        (RECORDS + batch(10, b"abc").replace(b"abc", b"abd"), 11, "bad batch"),
        (NOOP, 11, "no records"),
        (encode_instruction(Trim(1)), 11, "no records"),
        (NOOP + b"\x92\x02\xff", 10, "no instruction"),
        (NOOP + b"\x91\x63", 10, "no instruction"),
        (NOOP + encode_instruction(Trim(1)), 10, "no instruction"),
        (b"", 10, "begins with byte"),
        (b"\2\x80\x04.", 10, "begins with byte '02'"),
    ],
)
def test_everything_else_is_refused(payload: bytes, next_offset: int, why: str) -> None:
    with pytest.raises(EntryRefused, match=why):
        parse(entry(payload, next_offset), 10)


@given(st.binary(max_size=200))
def test_no_bytes_do_anything_but_parse_or_be_refused(payload: bytes) -> None:
    for first in (b"", RECORDS, NOOP):
        try:
            content = parse(entry(first + payload), 10)
        except EntryRefused:
            continue
        assert content is None or isinstance(content, Instruction)


# -- notes --------------------------------------------------------------------------------------------------------


def test_a_key_travels_as_bytes() -> None:
    key = GroupKey(b"t" * 16, 3, 2)
    assert GroupKey.from_bytes(key.to_bytes()) == key
    assert str(key) == f"{(b't' * 16).hex()}/3@2"


def test_a_note_and_a_summary_are_what_they_were() -> None:
    meta = ReplicaMeta("topic", bytes(16), 3, 1, ("a" * 32, "b" * 32))
    assert ReplicaMeta.from_bytes(meta.to_bytes()) == meta
    state = ReplicaState(1, 2, 3, b"table")
    assert ReplicaState.from_bytes(state.to_bytes()) == state
    assert ReplicaState.from_bytes(b"") == ReplicaState(0, 0, 0, b"")
    with pytest.raises(EntryRefused, match="cannot be read"):
        ReplicaState.from_bytes(b"garbage")
