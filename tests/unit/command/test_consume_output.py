"""`flotilla consume`: options and output."""

import io
from datetime import UTC, datetime
from typing import Any

import pytest

from flotilla.client.positions import ConsumerBatch
from flotilla.command.consume_output import ConsumeSpec, RecordPrinter, parse_from
from flotilla.command.errors import InputInvalid
from flotilla.command.formats import parse_format
from flotilla.records import decode, encode

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)


def spec(**given: Any) -> ConsumeSpec:  # noqa: ANN401 - as ConsumeSpec has them
    return ConsumeSpec(**{"topics": ("orders",), **given})


def batch(*values: bytes) -> ConsumerBatch:
    return ConsumerBatch("orders", 0, decode(encode(list(values))))


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"topics": ("orders", "clicks"), "is_from_beginning": True},
        {"offset": 0, "partitions": (1,)},
        {"group": "g", "since": "-1h", "timeout_s": 5},
        {"group": "g", "partitions": (0,), "is_until_end": True},
        {"format_name": "key-value", "separator": b":"},
        {"separator": b":"},
        {"is_json": True},
    ],
)
def test_compatible_options_are_accepted(given: dict[str, Any]) -> None:
    spec(**given).check()


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"is_from_beginning": True, "since": "-1h"}, "--from-beginning and --from are mutually exclusive"),
        ({"since": "-1h", "offset": 0, "partitions": (0,)}, "--from and --offset are mutually exclusive"),
        ({"offset": 0}, "--offset requires --partition"),
        ({"topics": ("orders", "clicks"), "partitions": (0,)}, "requires a single topic"),
        ({"offset": 0, "partitions": (0,), "group": "g"}, "groups reset"),
        ({"is_until_end": True, "group": "g"}, "use --timeout"),
        ({"group": ""}, "--group must not be empty"),
        ({"format_name": "value", "is_json": True}, "--format and --json are mutually exclusive"),
        ({"format_name": "%v", "separator": b":"}, "--key-separator requires --format key-value"),
        ({"is_json": True, "separator": b":"}, "--key-separator requires --format key-value"),
    ],
)
def test_contradicting_options_are_rejected(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputInvalid, match=reason):
        spec(**given).check()


def test_start_is_latest_by_default() -> None:
    assert spec().start(NOW) == "latest"
    assert spec(is_from_beginning=True).start(NOW) == "earliest"
    assert spec(since="-90m").start(NOW) == datetime(2026, 1, 31, 10, 30, tzinfo=UTC)
    assert spec(since="2026-01-01").start(NOW) == datetime(2026, 1, 1, tzinfo=UTC)
    for text in ("-9999w", "1969-12-31", "0001-01-01T00:00+10:00"):  # before there were any records
        assert spec(since=text).start(NOW) == datetime(1970, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("text", ["yesterday", "-", "-1", "1h", "-99999999999999d"])
def test_from_rejects_invalid_timestamp(text: str) -> None:
    with pytest.raises(InputInvalid, match=r"is not a time: use ISO 8601, as in \S+, or a time ago, as in -1h"):
        parse_from(text, NOW)


def test_format_follows_from_options() -> None:
    one = ConsumerBatch("orders", 0, decode(encode([b"v"], keys=[b"k"])))
    assert spec().format().write(one) == b"v\n"
    assert spec(separator=b"::").format().write(one) == b"k::v\n"
    assert spec(format_name="key-value").format().write(one) == b"k\tv\n"
    assert spec(format_name=r"<%v>\0").format().write(one) == b"<v>\0"
    assert spec(is_json=True).format().write(one).startswith(b"{")
    with pytest.raises(InputInvalid, match="--format: 'xml' is not a format"):
        spec(format_name="xml").format()
    with pytest.raises(InputInvalid, match="--format: '' is not a format"):
        spec(format_name="").format()


def test_printer_buffers_blocks_until_flush() -> None:
    out = io.BytesIO()
    printer = RecordPrinter(out, parse_format("value"), None, flush_each=False)
    assert printer.print(batch(b"a", b"b")) == 2
    assert out.getvalue() == b""
    printer.print(batch(b"c"))
    printer.flush()
    assert out.getvalue() == b"a\nb\nc\n"
    printer.print(batch(b"x" * (1 << 20)))
    assert len(out.getvalue()) == 6 + (1 << 20) + 1


def test_printer_completes_partial_writes() -> None:
    """Nothing is lost if standard output has no buffer, as with PYTHONUNBUFFERED."""

    class Narrow(io.BytesIO):
        def write(self, data: Any, /) -> int:  # noqa: ANN401 - whatever is written
            return super().write(memoryview(data)[:3])

    out = Narrow()
    RecordPrinter(out, parse_format("value"), None, flush_each=True).print(batch(b"one", b"two", b"three"))
    assert out.getvalue() == b"one\ntwo\nthree\n"


def test_printer_flushes_each_batch_for_a_group() -> None:
    """Committed records have been written."""
    out = io.BytesIO()
    RecordPrinter(out, parse_format("value"), None, flush_each=True).print(batch(b"a"))
    assert out.getvalue() == b"a\n"


def test_printer_stops_at_the_maximum() -> None:
    out = io.BytesIO()
    printer = RecordPrinter(out, parse_format("value"), 3, flush_each=True)
    assert (printer.print(batch(b"a", b"b")), printer.is_full) == (2, False)
    assert (printer.print(batch(b"c", b"d")), printer.is_full) == (1, True)
    assert out.getvalue() == b"a\nb\nc\n"
