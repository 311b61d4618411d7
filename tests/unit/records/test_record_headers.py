"""Encoding of record headers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flotilla.records import BadRecordHeaders, Headers, decode, encode
from flotilla.records.headers import decode_headers, encode_headers
from unit.records.strategies import HEADERS


@given(HEADERS)
def test_headers_round_trip(headers: Headers) -> None:
    assert decode_headers(encode_headers(headers)) == headers


def test_empty_headers_are_encoded_as_no_bytes() -> None:
    assert encode_headers(()) == b""
    assert decode_headers(b"") == ()


def test_header_pair_is_encoded_with_length_prefixes() -> None:
    assert encode_headers((("é", b"xyz"),)) == b"\x02\x00\xc3\xa9\x03\x00\x00\x00xyz"


def test_order_and_repeated_names_are_kept() -> None:
    headers = (("b", b"1"), ("a", b"2"), ("b", b"3"))
    assert decode_headers(encode_headers(headers)) == headers


@given(HEADERS.filter(bool))
def test_truncated_blob_is_a_prefix_or_refused(headers: Headers) -> None:
    """A truncated blob has the first pairs, or is an error; it never has other pairs."""
    blob = encode_headers(headers)
    for length in range(len(blob)):
        try:
            left = decode_headers(blob[:length])
        except BadRecordHeaders:
            continue
        assert left == headers[: len(left)]


@given(st.binary(max_size=60))
def test_arbitrary_blob_is_refused_or_canonical(blob: bytes) -> None:
    try:
        headers = decode_headers(blob)
    except BadRecordHeaders:
        return
    assert encode_headers(headers) == blob


def test_records_with_equal_headers_share_one_tuple() -> None:
    """Most records of a batch have the same headers; each distinct one is encoded and decoded once."""
    headers: list[Headers] = [(("trace", b"%d" % (number % 2)),) for number in range(10)]
    decoded = decode(encode([b""] * 10, headers=headers)).headers
    assert decoded == headers
    assert decoded is not None
    assert len({id(row) for row in decoded}) == 2


@pytest.mark.parametrize("count", [1, 256])
def test_header_count_limit_is_exact(count: int) -> None:
    headers = (("name", b"value"),) * count
    assert decode_headers(encode_headers(headers)) == headers
