"""Payloads of entries: valid ones, and all others, which are rejected."""

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
from flotilla_broker.raft import Entry, EntryInvalid


def entry(payload: bytes, next_offset: int = 10) -> Entry:
    return Entry(3, 1, next_offset, 0, memoryview(payload))


def batch(base_offset: int, *values: bytes) -> bytes:
    data = encode(list(values))
    assign(data, base_offset, 5)
    return bytes(data)


def test_batches_follow_each_other_with_contiguous_offsets() -> None:
    payload = RECORDS + batch(10, b"a", b"b") + batch(12, b"c")
    content = parse(entry(payload, 13), 10)
    assert isinstance(content, list)
    assert [(header.base_offset, header.count) for header in content] == [(10, 2), (12, 1)]


@pytest.mark.parametrize("instruction", [Seal(), Trim(0), Trim((1 << 63) - 1), Expire(7)])
def test_instruction_round_trips(instruction: Instruction) -> None:
    assert parse(entry(encode_instruction(instruction)), 10) == instruction


def test_no_op_has_no_content() -> None:
    assert parse(entry(NOOP), 10) is None


@pytest.mark.parametrize(
    ("payload", "next_offset", "why"),
    [
        (RECORDS + batch(11, b"a"), 12, "offset 11: must be 10"),
        (RECORDS + batch(10, b"a") + batch(10, b"a"), 12, "offset 10: must be 11"),
        (RECORDS + batch(10, b"a"), 12, "has next offset 12: its records end at 11"),
        (RECORDS, 10, "its records end at"),
        (RECORDS + batch(10, b"a")[:-1], 11, "invalid batch"),
        (RECORDS + batch(10, b"a") + b"\0", 11, "invalid batch"),
        (RECORDS + batch(10, b"abc").replace(b"abc", b"abd"), 11, "invalid batch"),
        (NOOP, 11, "no records"),
        (encode_instruction(Trim(1)), 11, "no records"),
        (NOOP + b"\x92\x02\xff", 10, "unknown instruction"),
        (NOOP + b"\x91\x63", 10, "unknown instruction"),
        (NOOP + encode_instruction(Trim(1)), 10, "unknown instruction"),
        (b"", 10, "unknown type"),
        (b"\2\x80\x04.", 10, "unknown type '02'"),
    ],
)
def test_other_payloads_are_rejected(payload: bytes, next_offset: int, why: str) -> None:
    with pytest.raises(EntryInvalid, match=why):
        parse(entry(payload, next_offset), 10)


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_parsed_or_rejected(payload: bytes) -> None:
    for first in (b"", RECORDS, NOOP):
        try:
            content = parse(entry(first + payload), 10)
        except EntryInvalid:
            continue
        assert content is None or isinstance(content, Instruction)


# -- metadata -----------------------------------------------------------------------------------------------------


def test_group_key_round_trips() -> None:
    key = GroupKey(b"t" * 16, 3, 2)
    assert GroupKey.from_bytes(key.to_bytes()) == key
    assert str(key) == f"{(b't' * 16).hex()}/3@2"


def test_metadata_and_summary_round_trip() -> None:
    meta = ReplicaMeta("topic", bytes(16), 3, 1, ("a" * 32, "b" * 32))
    assert ReplicaMeta.from_bytes(meta.to_bytes()) == meta
    state = ReplicaState(1, 2, 3, b"table")
    assert ReplicaState.from_bytes(state.to_bytes()) == state
    assert ReplicaState.from_bytes(b"") == ReplicaState(0, 0, 0, b"")
    with pytest.raises(EntryInvalid, match="invalid replica state"):
        ReplicaState.from_bytes(b"garbage")
