"""Invalid bodies in batches with a valid header: each is refused before its offsets are used."""

import struct
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flotilla.arrow import SCAN
from flotilla.records import (
    BadBody,
    BadPadding,
    BadRecordHeaders,
    BatchInvalid,
    BatchTooLarge,
    check,
    decode,
    encode,
)
from unit.records.forge import (
    HEADERS,
    KEYS,
    MIB,
    NULLS,
    TIMESTAMPS,
    batch_around,
    memory_below,
    offsets,
    pad,
    with_fields,
)
from unit.records.strategies import Records, records

VALUES = offsets(0, 1, 2) + pad(b"ab")
_DEFAULTS = decode.__kwdefaults__ or {}


@pytest.fixture(autouse=True, scope="module", params=[_DEFAULTS["scan"], SCAN], ids=["plain", "arrow"])
def _each_scan(request: pytest.FixtureRequest) -> Iterator[None]:
    """Both implementations of `Scan` must pass all tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(_DEFAULTS, "scan", request.param)
        yield


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (offsets(1, 1, 2) + pad(b"ab"), "value offset 0 is 1; it must be 0"),
        (offsets(-1, 1, 2) + pad(b"ab"), "value offset 0 is -1; it must be 0"),
        (offsets(0, -1, 2) + pad(b"ab"), "value offset 1 is -1, below the one before it, 0"),
        (offsets(0, 2, 1) + pad(b"ab"), "value offset 2 is 1, below the one before it, 2"),
        (offsets(0, 0, -1) + pad(b"ab"), "value offset 2 is -1"),
        (
            offsets(0, 1, 9) + pad(b"ab"),
            "value data at byte 16 of the body take 16 bytes with padding; 8 are left",
        ),
        (offsets(0, 1, 2**31 - 1) + pad(b"ab"), "value data at byte 16 of the body take 2147483648 bytes"),
        (offsets(0, 1, 2) + pad(b"ab") + bytes(8), "the sections end at byte 24 of a body of 32"),
        (offsets(0, 0, 0) + pad(b"ab"), "the sections end at byte 16 of a body of 24"),
    ],
)
def test_invalid_offsets_are_refused_without_allocating(body: bytes, text: str) -> None:
    """Offsets start at 0, never decrease, and end at the length of the data: Arrow relies on it."""
    batch = batch_around(body, count=2)
    with memory_below(MIB), pytest.raises(BadBody, match=text):
        decode(batch)


@pytest.mark.parametrize(
    ("attributes", "name"),
    [(KEYS, "key"), (HEADERS, "header")],
)
def test_offsets_of_every_column_are_checked(attributes: int, name: str) -> None:
    for numbers in [(1, 1, 1), (0, 2, 1), (0, 1, 100)]:
        body = VALUES + offsets(*numbers) + pad(b"k")
        with pytest.raises(BadBody, match=f"{name} (offset|data)"):
            decode(batch_around(body, count=2, attributes=attributes))


@pytest.mark.parametrize("count", [1, 3])
def test_slightly_wrong_count_is_refused(count: int) -> None:
    batch = encode([b"a", b"b"], timestamps_ms=[1, 1])
    with pytest.raises((BadBody, BadPadding)):
        decode(with_fields(batch, count=count))


@pytest.mark.parametrize(
    ("body", "attributes", "text"),
    [
        (struct.pack("<4i", 0, 1, 2, 7) + pad(b"ab"), 0, "behind the value offsets"),
        (offsets(0, 1, 2) + b"ab" + b"\1" + bytes(5), 0, "behind the value data"),
        (offsets(0, 1, 2) + b"ab" + bytes(5) + b"\1", 0, "behind the value data"),
        (
            VALUES + b"\1\1" + bytes(6) + offsets(0, 1, 1) + pad(b"k"),
            KEYS | NULLS,
            "behind the key validity bits",
        ),
        (VALUES + offsets(0, 1, 1) + b"k\1" + bytes(6), KEYS, "behind the key data"),
        (VALUES + struct.pack("<4i", 0, 0, 0, 1), HEADERS, "behind the header offsets"),
    ],
)
def test_nonzero_padding_is_refused(body: bytes, attributes: int, text: str) -> None:
    with pytest.raises(BadPadding, match=text):
        decode(batch_around(body, count=2, attributes=attributes))


@pytest.mark.parametrize(
    ("validity", "numbers", "text"),
    [
        (0b0000_0101, (0, 1, 1), "bits set behind the last of 2 items"),
        (0b1000_0001, (0, 1, 1), "bits set behind the last of 2 items"),
        (0b0000_0010, (0, 1, 1), "a key is null but has a length"),
        (0b0000_0000, (0, 0, 1), "a key is null but has a length"),
        (0b0000_0011, (0, 1, 1), "no key is null; then there must be no validity bitmap"),
    ],
)
def test_invalid_validity_bitmap_is_refused(validity: int, numbers: tuple[int, ...], text: str) -> None:
    body = VALUES + pad(bytes([validity])) + offsets(*numbers) + pad(b"k")
    with pytest.raises(BadBody, match=text):
        decode(batch_around(body, count=2, attributes=KEYS | NULLS))


@pytest.mark.parametrize(("first", "last"), [(4, 9), (5, 8), (5, 10), (6, 9)])
def test_wrong_timestamp_range_is_refused(first: int, last: int) -> None:
    batch = encode([b"a", b"b", b"c"], timestamps_ms=[9, 5, 7])
    with pytest.raises(BadBody, match=f"from 5 to 9; the header declares {first} to {last}"):
        decode(with_fields(batch, timestamp_min_ms=first, timestamp_max_ms=last))


def test_body_too_short_for_timestamps_is_refused() -> None:
    body = offsets(0, 8, 16) + bytes(16)
    with pytest.raises(BadBody, match="timestamps at byte 32 of the body take 16 bytes"):
        decode(batch_around(body, count=2, attributes=TIMESTAMPS))


@pytest.mark.parametrize(
    ("blob", "text"),
    [
        (b"\1", "the length of a name at byte 0 is cut"),
        (b"\0\0\0\0\0\0", "a name is empty"),
        (b"\5\0abc", "a name at byte 2 has 5 bytes; 3 are left"),
        (b"\1\0a", "the length of a value at byte 3 is cut"),
        (b"\1\0a\1\0\0", "the length of a value at byte 3 is cut"),
        (b"\1\0a\2\0\0\0x", "a value at byte 7 has 2 bytes; 1 are left"),
        (b"\1\0a\xff\xff\xff\xffx", "a value at byte 7 has 4294967295 bytes; 1 are left"),
        (b"\1\0\xff\0\0\0\0", "a name is not UTF-8"),
        (b"\1\0a\0\0\0\0" * 257, "more than 256 headers"),
    ],
)
def test_invalid_record_headers_are_refused(blob: bytes, text: str) -> None:
    body = VALUES + offsets(0, 0, len(blob)) + pad(blob)
    opened = decode(batch_around(body, count=2, attributes=HEADERS))
    assert opened.values == [b"a", b"b"]
    with memory_below(MIB), pytest.raises(BadRecordHeaders, match=f"headers of record 1: {text}"):
        _ = opened.headers
    with pytest.raises(BadRecordHeaders):
        iter(opened)


def test_error_message_has_no_record_data() -> None:
    """Keys, values and headers may be secret; logs are not."""
    blob = b"\6\0secret\xff\xff\xff\xff"
    opened = decode(batch_around(VALUES + offsets(0, 0, len(blob)) + pad(blob), count=2, attributes=HEADERS))
    with pytest.raises(BadRecordHeaders) as caught:
        _ = opened.headers
    assert "secret" not in str(caught.value)
    assert "secret" not in repr(opened)


def test_caller_can_lower_the_body_size_limit() -> None:
    batch = encode([b"v" * 100])
    body_bytes = check(batch).body_bytes
    assert decode(batch, body_bytes_max=body_bytes).values == [b"v" * 100]
    with pytest.raises(BatchTooLarge, match=f"the caller allows at most {body_bytes - 1}"):
        decode(batch, body_bytes_max=body_bytes - 1)


@given(records(count_max=4), st.data())
def test_changed_body_is_refused_or_canonical(drawn: Records, data: st.DataObject) -> None:
    """The encoding is canonical, so a body has no hidden data."""
    batch = drawn.encode()
    for _ in range(data.draw(st.integers(1, 3))):
        batch[data.draw(st.integers(96, len(batch) - 1))] = data.draw(st.sampled_from([0, 1, 2, 8, 127, 128, 255]))
    changed = with_fields(batch)
    try:
        read = Records.from_batch(changed)
    except BatchInvalid:
        return
    assert read.encode() == changed
