"""Output formats: bytes are kept unchanged."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flotilla.client.positions import ConsumerBatch
from flotilla.command.formats import parse_format
from flotilla.records import Headers, assign, decode, encode


def batch(
    values: list[bytes],
    keys: list[bytes | None] | None = None,
    headers: list[Headers] | None = None,
    times: list[int] | None = None,
    start: int = 0,
) -> ConsumerBatch:
    """Return a batch at offset 10 of partition 3, with append time 5000 ms."""
    encoded = encode(values, keys=keys, headers=headers, timestamps_ms=times)
    assign(encoded, base_offset=10, append_time_ms=5000)
    return ConsumerBatch("tea", 3, decode(encoded), start)


FULL = batch(
    [b"one", b"t\xffo", b""],
    keys=[b"k", None, b"\xfe"],
    headers=[(("a", b"1"), ("b", b"\xfd")), (), ()],
    times=[1, 2, 3],
)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("value", b"one\nt\xffo\n\n"),
        ("key-value", b"k\tone\n\tt\xffo\n\xfe\t\n"),
        ("%v", b"onet\xffo"),
        (r"%v\0", b"one\0t\xffo\0\0"),
        (r"%t/%p@%o\t%k=%v\n", b"tea/3@10\tk=one\ntea/3@11\t=t\xffo\ntea/3@12\t\xfe=\n"),
        (r"%T %h|", b"1 a=1,b=\xfd|2 |3 |"),
        (r"100%% of \\%o é\r\n", "100% of \\10 é\r\n100% of \\11 é\r\n100% of \\12 é\r\n".encode()),
    ],
)
def test_formats_keep_bytes_unchanged(text: str, written: bytes) -> None:
    assert parse_format(text).write(FULL) == written


def test_missing_fields_are_empty_and_timestamp_is_the_append_time() -> None:
    assert parse_format(r"[%k|%v|%h|%T]").write(batch([b"x", b"y"])) == b"[|x||5000][|y||5000]"


@pytest.mark.parametrize("text", ["value", "key-value", "json", r"%o %k %v %h %T\n", r"%o\n"])
def test_format_honours_start_and_limit_of_a_batch(text: str) -> None:
    columns = FULL.batch
    whole = parse_format(text).write(FULL)
    later = parse_format(text).write(ConsumerBatch("tea", 3, columns, start=1))
    assert whole.endswith(later)
    assert parse_format(text).write(FULL, 1) + later == whole
    assert parse_format(text).write(FULL, 99) == whole


def test_separator_is_not_parsed_as_a_field() -> None:
    assert parse_format("key-value", b"%d%%").write(batch([b"v"], keys=[b"k"])) == b"k%d%%v\n"


def test_json_format_has_base64_for_binary_values() -> None:
    lines = [json.loads(line) for line in parse_format("json").write(FULL).splitlines()]
    place = {"topic": "tea", "partition": 3, "append_time_ms": 5000}
    headers = [{"name": "a", "value": "1"}, {"name": "b", "value_base64": "/Q=="}]
    assert lines == [
        {**place, "offset": 10, "timestamp_ms": 1, "key": "k", "value": "one", "headers": headers},
        {**place, "offset": 11, "timestamp_ms": 2, "value_base64": "dP9v"},
        {**place, "offset": 12, "timestamp_ms": 3, "key_base64": "/g==", "value": ""},
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("yaml", "is not a format: use value, key-value, json, or a template"),
        ("%x", "unknown field '%x' in the template; supported: %t %p"),
        ("%v%", "unknown field '%'"),
        (r"%v\q", r"unknown field '\\\\q'"),
        ("%v\\", "unknown field"),
        ("100%%", "has no field"),
    ],
)
def test_unknown_format_is_rejected_with_alternatives(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_format(text)


@given(st.lists(st.binary(max_size=20), min_size=1), st.integers(0, 3))
def test_value_format_equals_its_template(values: list[bytes], start: int) -> None:
    given_ = batch(values, start=min(start, len(values) - 1))
    assert parse_format("value").write(given_) == parse_format(r"%v\n").write(given_)
