"""Batches as JSON: round trips, and errors with the position of the record."""

import base64
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flotilla.protocol.errors import Refusal
from flotilla.protocol.json_batches import read_batch, write_records
from flotilla.records import assign, check, decode, encode
from unit.records.forge import batch_around, with_fields

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
RECORDS = st.lists(
    st.fixed_dictionaries(
        {"value": st.one_of(TEXTS, st.binary(max_size=20))},
        optional={
            "key": st.one_of(TEXTS, st.binary(max_size=20)),
            "headers": st.lists(
                st.tuples(st.text("abc", min_size=1, max_size=5), st.binary(max_size=9)), min_size=1, max_size=3
            ),
        },
    ),
    min_size=1,
    max_size=8,
)


def to_json(name: str, value: str | bytes) -> dict[str, str]:
    if isinstance(value, str):
        return {name: value}
    return {f"{name}_base64": base64.b64encode(value).decode()}


def to_bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def body(records: list[dict[str, Any]], **more: Any) -> bytes:  # noqa: ANN401 - any JSON
    written = []
    for one in records:
        found: dict[str, Any] = to_json("value", one["value"])
        if "key" in one:
            found.update(to_json("key", one["key"]))
        if "headers" in one:
            found["headers"] = [{"name": name, **to_json("value", value)} for name, value in one["headers"]]
        written.append(found)
    return msgspec.json.encode({"records": written, **more})


@given(RECORDS)
def test_json_records_are_encoded_in_the_batch(records: list[dict[str, Any]]) -> None:
    found = list(decode(read_batch(body(records))))
    assert [one.value for one in found] == [to_bytes(one["value"]) for one in records]
    assert [one.key for one in found] == [to_bytes(one["key"]) if "key" in one else None for one in records]
    assert [one.headers for one in found] == [tuple(one.get("headers", ())) for one in records]


@given(RECORDS, st.integers(0, 10))
def test_records_round_trip_through_json(records: list[dict[str, Any]], skip: int) -> None:
    batch = read_batch(body(records))
    assign(batch, base_offset=5, append_time_ms=7)
    found, next_offset = write_records(bytes(batch), 5 + skip)
    assert next_offset == max(5 + skip, 5 + len(records))
    assert [one["offset"] for one in found] == list(range(5 + skip, 5 + len(records)))
    assert {one["append_time_ms"] for one in found} <= {7}
    again = [{name: one[name] for name in one if name not in {"offset", "append_time_ms"}} for one in found]
    if again:
        values = list(decode(read_batch(msgspec.json.encode({"records": again}))).values)
        assert values == [to_bytes(one["value"]) for one in records[skip:]]


def test_producer_and_timestamps_are_encoded() -> None:
    given_ = {"records": [{"value": "a", "timestamp_ms": -5}], "producer_id": "ab" * 16, "base_sequence": 9}
    batch = read_batch(msgspec.json.encode({**given_, "producer_epoch": 3}))
    header = check(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (b"\xab" * 16, 3, 9)
    assert write_records(bytes(batch), 0)[0][0]["timestamp_ms"] == -5


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("", "bad_request", "not a batch in JSON"),
        ("[]", "bad_request", "Expected `object`"),
        ('{"records": []}', "bad_request", "length >= 1"),
        ('{"records": [{}]}', "bad_batch", "the value of record 0 is missing"),
        (
            '{"records": [{"value": "a"}, {"value": "a", "value_base64": "YQ=="}]}',
            "bad_batch",
            "record 1 is given twice",
        ),
        ('{"records": [{"value_base64": "!"}]}', "bad_batch", "not base64"),
        ('{"records": [{"value": "a", "colour": "red"}]}', "bad_request", "colour"),
        ('{"records": [{"value": "a", "timestamp_ms": 1}, {"value": "a"}]}', "bad_batch", "timestamp_ms"),
        ('{"records": [{"value": "a", "headers": [{"name": ""}]}]}', "bad_batch", "header of record 0 is missing"),
        ('{"records": [{"value": "a"}], "producer_id": "ab"}', "bad_request", "producer_id"),
        ('{"records": [{"value": "\\ud800"}]}', "bad_request", "JSON"),
    ],
)
def test_invalid_json_batch_error_names_the_record(text: str, code: str, words: str) -> None:
    with pytest.raises(Refusal) as caught:
        read_batch(text.encode())
    assert caught.value.code == code
    assert words in str(caught.value)


def test_undecodable_batch_is_skipped_and_damaged_batch_is_refused() -> None:
    good = encode([b"good"])
    assign(good, base_offset=2, append_time_ms=1)
    poisoned = bytes(with_fields(batch_around(b"nonsense" * 2, count=2), base_offset=0))
    found, next_offset = write_records(poisoned + bytes(good), 0)
    assert ([one["value"] for one in found], next_offset) == (["good"], 3)
    damaged = bytearray(good)
    damaged[-1] ^= 1
    with pytest.raises(Refusal, match="cannot be read"):
        write_records(poisoned + bytes(damaged), 0)
