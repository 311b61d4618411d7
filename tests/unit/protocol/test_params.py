"""Parameters of the simple API: from query or body, with aliases; errors have the reason."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flotilla.protocol import simple_params
from flotilla.protocol.errors import Refusal
from flotilla.protocol.params import Reader

PRODUCE = Reader(simple_params.Produce)
GIVEN = b'{"topic": "t", "producer_id": "p", "message": "m", "partition_index": %s}'


def read(query: bytes = b"", body: bytes = b"", path: dict[str, str] | None = None) -> simple_params.Produce:
    found: simple_params.Produce = PRODUCE.read(query, body, path or {})
    return found


def why_not(query: bytes = b"", body: bytes = b"", reader: Reader = PRODUCE) -> str:
    with pytest.raises(Refusal) as caught:
        reader.read(query, body, {})
    assert caught.value.code == "bad_request"
    return str(caught.value)


@pytest.mark.parametrize(
    ("query", "body"),
    [
        (b"", b'{"topic": "t", "producer_id": "p", "message": "m", "partition_index": 1}'),
        (b"topic=t&producer_id=p&message=m&partition_index=1", b""),
        (b"topic_name=t&partition_id=1", b'{"producer_id": "p", "message": "m"}'),
        (b"", b'{"topic_name": "t", "producer_id": "p", "message": "m", "partition_number": "1"}'),
        (b"topic=t&topic_name=t", b'{"producer_id": "p", "message": "m", "partition_id": 1, "partition_number": 1}'),
    ],
)
def test_parameters_are_read_from_query_or_body_with_aliases(query: bytes, body: bytes) -> None:
    assert read(query, body) == simple_params.Produce(topic="t", producer_id="p", message="m", partition_index=1)


@pytest.mark.parametrize("text", ["null", "true", "5", "", "1.0", " "])
def test_message_text_is_not_converted(text: str) -> None:
    assert read(f"topic=t&producer_id=p&message={text.replace(' ', '+')}".encode()).message == text
    assert read(b"", f'{{"topic_name": "t", "producer_id": "p", "message": "{text}"}}'.encode()).message == text


def test_numeric_id_becomes_text() -> None:
    assert read(b"", b'{"topic": "t", "producer_id": 17, "message": "m"}').producer_id == "17"


@pytest.mark.parametrize(("given_", "index"), [(b"0", 0), (b"-1", -1), (b"1.0", 1), (b"null", None), (b'"2"', 2)])
def test_index_may_be_any_integer(given_: bytes, index: int | None) -> None:
    """Whether the topic has the partition is checked later, in the documented order."""
    assert read(b"", GIVEN % given_).partition_index == index


@pytest.mark.parametrize(
    "value",
    [b"true", b"1.5", b"1e30", b"1e400", b"NaN", b"[]", b"{}", b'"x"', b'""', b'" 1"', b'"1_0"', b"9" * 5000, b"0x1"],
)
def test_non_numeric_index_is_refused(value: bytes) -> None:
    assert "'partition_index' is invalid" in (text := why_not(b"", GIVEN % value)) or "is not JSON" in text


@pytest.mark.parametrize(
    ("query", "body", "text"),
    [
        (b"", b"", "'topic' is missing."),
        (b"", b"  ", "'topic' is missing."),
        (b"topic=t", b"", "'producer_id' is missing."),
        (b"topic=t&topic=t", b"", "A parameter is in the query twice."),
        (b"topic=t", b'{"topic_name": "u"}', "'topic' is given twice, with different values."),
        (b"a=1", b"", "'a' is not a parameter of this call; there are: topic, producer_id, message, "),
        (b"topic=%ff", b"", "The query cannot be read: "),
        (b"topic=%ED%A0%80", b"", "The query cannot be read: "),
        (b"\xff", b"", "The query cannot be read: "),
        (b"a" * 8193, b"", "The query has 8193 bytes; 8192 is the limit."),
        (b"&".join(b"%d=1" % at for at in range(30)), b"", "The query cannot be read: "),
        (b"", b"{", "The body is not JSON: "),
        (b"", b"[]", "The body must be a JSON object"),
        (b"", b"5", "The body must be a JSON object"),
        (b"", b"[" * 100_000, "The body is not JSON: "),
        (b"", b"\xff\xfe", "The body is not JSON: "),
        (b"", b'{"topic": "\xff", "producer_id": "p"}', "The body is not JSON: "),
        (b"", b'{"topic": "\\ud800", "producer_id": "p"}', "The body is not JSON: "),
        (
            b"",
            b'{"topic": "t", "producer_id": true, "message": "m"}',
            "'producer_id' is invalid: Expected str, got bool.",
        ),
        (
            b"",
            b'{"topic": "t", "producer_id": "p", "message": 5}',
            "'message' is invalid: Expected str | null, got int.",
        ),
    ],
)
def test_invalid_parameters_are_refused_with_the_reason(query: bytes, body: bytes, text: str) -> None:
    assert why_not(query, body).startswith(text)


def test_call_without_parameters_rejects_parameters() -> None:
    text = why_not(b"x=1", b"", Reader(simple_params.NoParams))
    assert text == "'x' is not a parameter of this call; it takes none."


@pytest.mark.parametrize("name", ["", ".a", "a b", "a\n", "x" * 201, "ä", "a/b", "\0"])
def test_invalid_topic_name_error_has_the_rule(name: str) -> None:
    with pytest.raises(Refusal, match="'name' is invalid: it must match "):
        Reader(simple_params.CreateTopic).read(b"", b"", {"name": name})


def test_page_position_must_be_an_id() -> None:
    assert "'after' is invalid" in why_not(b"after=%00", b"", Reader(simple_params.Page))
    assert Reader(simple_params.Page).read(b"after=ab12", b"", {}).after == "ab12"


@given(st.binary(max_size=60), st.one_of(st.binary(max_size=60), st.just(GIVEN).map(lambda one: one % b"1")))
def test_arbitrary_parameters_are_parsed_or_refused(query: bytes, body: bytes) -> None:
    """Invalid input is never an internal error."""
    with contextlib.suppress(Refusal):
        read(query, body)
