"""What `flotilla consume` was told, and how it writes."""

import io
from datetime import UTC, datetime
from typing import Any

import pytest

from flotilla.client.positions import ConsumerBatch
from flotilla.command.errors import InputInvalid
from flotilla.command.formats import parse_format
from flotilla.command.printing import Printer, Wanted, parse_since
from flotilla.records import decode, encode

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)


def wanted(**said: Any) -> Wanted:  # noqa: ANN401 - as Wanted has them
    return Wanted(**{"topics": ("orders",), **said})


def batch(*values: bytes) -> ConsumerBatch:
    return ConsumerBatch("orders", 0, decode(encode(list(values))))


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"topics": ("orders", "clicks"), "is_from_beginning": True},
        {"offset": 0, "partitions": (1,)},
        {"group": "g", "since": "-1h", "timeout_s": 5},
        {"group": "g", "partitions": (0,), "is_until_end": True},
        {"shape": "key-value", "separator": b":"},
        {"separator": b":"},
        {"is_json": True},
    ],
)
def test_what_goes_together_is_taken(said: dict[str, Any]) -> None:
    wanted(**said).check()


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"is_from_beginning": True, "since": "-1h"}, "--from-beginning and --from contradict"),
        ({"since": "-1h", "offset": 0, "partitions": (0,)}, "--from and --offset contradict"),
        ({"offset": 0}, "say which with --partition"),
        ({"topics": ("orders", "clicks"), "partitions": (0,)}, "for a single topic"),
        ({"offset": 0, "partitions": (0,), "group": "g"}, "groups reset"),
        ({"is_until_end": True, "group": "g"}, "use --timeout"),
        ({"group": ""}, "--group is empty"),
        ({"shape": "value", "is_json": True}, "--format and --json contradict"),
        ({"shape": "%v", "separator": b":"}, "--key-separator is for the format key-value"),
        ({"is_json": True, "separator": b":"}, "--key-separator is for the format key-value"),
    ],
)
def test_what_contradicts_something_else_is_refused(said: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputInvalid, match=reason):
        wanted(**said).check()


def test_it_begins_with_now_unless_something_else_is_said() -> None:
    assert wanted().start(NOW) == "latest"
    assert wanted(is_from_beginning=True).start(NOW) == "earliest"
    assert wanted(since="-90m").start(NOW) == datetime(2026, 1, 31, 10, 30, tzinfo=UTC)
    assert wanted(since="2026-01-01").start(NOW) == datetime(2026, 1, 1, tzinfo=UTC)
    for text in ("-9999w", "1969-12-31", "0001-01-01T00:00+10:00"):  # before there were any records
        assert wanted(since=text).start(NOW) == datetime(1970, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("text", ["yesterday", "-", "-1", "1h", "-99999999999999d"])
def test_what_is_no_moment_is_refused_with_examples(text: str) -> None:
    with pytest.raises(InputInvalid, match="as in -1h"):
        parse_since(text, NOW)


def test_the_format_follows_from_what_was_said() -> None:
    one = ConsumerBatch("orders", 0, decode(encode([b"v"], keys=[b"k"])))
    assert wanted().format().write(one) == b"v\n"
    assert wanted(separator=b"::").format().write(one) == b"k::v\n"
    assert wanted(shape="key-value").format().write(one) == b"k\tv\n"
    assert wanted(shape=r"<%v>\0").format().write(one) == b"<v>\0"
    assert wanted(is_json=True).format().write(one).startswith(b"{")
    with pytest.raises(InputInvalid, match="--format: 'xml' is no format"):
        wanted(shape="xml").format()
    with pytest.raises(InputInvalid, match="--format: '' is no format"):
        wanted(shape="").format()


def test_batches_are_written_in_blocks_or_when_there_is_no_more() -> None:
    out = io.BytesIO()
    printer = Printer(out, parse_format("value"), None, is_careful=False)
    assert printer.print(batch(b"a", b"b")) == 2
    assert out.getvalue() == b""
    printer.print(batch(b"c"))
    printer.flush()
    assert out.getvalue() == b"a\nb\nc\n"
    printer.print(batch(b"x" * (1 << 20)))
    assert len(out.getvalue()) == 6 + (1 << 20) + 1


def test_an_output_that_takes_a_part_gets_the_rest_too() -> None:
    """Nothing is lost where standard output has no buffer, as with PYTHONUNBUFFERED."""

    class Narrow(io.BytesIO):
        def write(self, data: Any, /) -> int:  # noqa: ANN401 - whatever is written
            return super().write(memoryview(data)[:3])

    out = Narrow()
    Printer(out, parse_format("value"), None, is_careful=True).print(batch(b"one", b"two", b"three"))
    assert out.getvalue() == b"one\ntwo\nthree\n"


def test_for_a_group_each_batch_is_written_before_the_next_one_is_asked_for() -> None:
    """What is committed was written."""
    out = io.BytesIO()
    Printer(out, parse_format("value"), None, is_careful=True).print(batch(b"a"))
    assert out.getvalue() == b"a\n"


def test_no_more_records_are_written_than_were_wanted() -> None:
    out = io.BytesIO()
    printer = Printer(out, parse_format("value"), 3, is_careful=True)
    assert (printer.print(batch(b"a", b"b")), printer.is_full) == (2, False)
    assert (printer.print(batch(b"c", b"d")), printer.is_full) == (1, True)
    assert out.getvalue() == b"a\nb\nc\n"
