"""Parsing of log lines: no line fails a query, and lines that do not parse have a reason."""

import re
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from flotilla_spark.errors import PatternInvalid
from flotilla_spark.formats import parse_pattern
from flotilla_spark.parsing import load_pattern, parse

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")

STAMP = datetime(2026, 3, 5, 0, 10, tzinfo=UTC)  # append time of all records
NOON = "2026-01-31 12:00:00"
APPENDED = "2026-03-05 00:10:00"
Parts = tuple[Any, ...]  # an ellipsis matches any value

LINES: dict[str, list[tuple[bytes | None, Parts | str]]] = {
    "json": [
        (
            b'{"time": "2026-01-31T12:00:00Z", "level": "error", "source": "web", "message": "no"}',
            (NOON, "ERROR", "web", "no"),
        ),
        (b'{"ts": 1769860800, "lvl": " Warn ", "app": "web", "msg": "x"}', (NOON, "WARN", "web", "x")),
        (b'{"ts": 1769860800000}', (NOON, None, None, None)),
        (b'{"ts": 1769860800000000}', (NOON, None, None, None)),
        (b'{"ts": 1769860800000000000}', (NOON, None, None, None)),
        (b'{"ts": "1769860800.0"}', (NOON, None, None, None)),
        (b'{"@timestamp": "2026-01-31T14:00:00+02:00"}', (NOON, None, None, None)),
        (b'{"time": "2026-01-31 12:00:00"}', (NOON, None, None, None)),  # the default time zone is UTC
        (b'{"time": "23:59:58"}', ("2026-03-04 23:59:58", None, None, None)),
        (b'{"time": "whenever", "level": null}', (APPENDED, None, None, None)),
        (b'{"time": 1e300, "level": ""}', (APPENDED, None, None, None)),
        (b'{"time": ' + b"9" * 400 + b"}", (APPENDED, None, None, None)),
        (b'{"time": "+290000-01-01T00:00:00Z"}', (APPENDED, None, None, None)),
        (b'{"level": "a", "level": "b"}', (APPENDED, "A", None, None)),
        (b'{"level": {"name": ["x", 1]}}', (APPENDED, '{"NAME":["X",1]}', None, None)),
        (b"{}", (APPENDED, None, None, None)),
        (b'  {"level": "info"}\r\n', (APPENDED, "INFO", None, None)),
        ('{"message": "café ☕"}'.encode(), (APPENDED, None, None, "café ☕")),
        (b'{"message": "' + b"x" * 2_000_000 + b'"}', (APPENDED, None, None, "x" * 2_000_000)),
        (b'[{"level": "info"}]', "not a JSON object"),
        (b'{"level": "inf', "not a JSON object"),
        (b'{"level": "info"} and more', "not a JSON object"),
        (b'"info"', "not a JSON object"),
        (b"null", "not a JSON object"),
        (b"\xff\xfe{}", "not valid UTF-8"),
        (b"", "empty"),
        (b" \n", "empty"),
        (None, "no value"),
    ],
    "columns": [
        (b"00:05:00\tINFO\t\tP1-1\t\tT1", ("2026-03-05 00:05:00", "INFO", "T1", "INFO")),
        (b"00:40:00\tINFO\tP1-1\tT1", ("2026-03-05 00:40:00", "INFO", "T1", "INFO")),  # clocks differ
        (b"21:52:23\tINFO\tP1-1\tT1", ("2026-03-04 21:52:23", "INFO", "T1", "INFO")),
        (
            "21:52:23\tDEBUG café opened late\t\tP1-1\t\tT2".encode(),
            ("2026-03-04 21:52:23", "DEBUG", "T2", "DEBUG café opened late"),
        ),
        (
            b"21:52:24   warn disk is at 71 %   P1-2   T3\r",
            ("2026-03-04 21:52:24", "WARN", "T3", "warn disk is at 71 %"),
        ),
        (b"99:99:99\tINFO\tP1-1\tT1", (APPENDED, "INFO", "T1", "INFO")),
        (b"21:52:23\tINFO " + b"very " * 200_000 + b"long\tP1-1\tT1", ("2026-03-04 21:52:23", "INFO", "T1", ...)),
        (b"[ts         msg       parallel    topic]", "not in the columns ts, msg, parallel and topic"),
        (b"21:52:23 INFO", "not in the columns ts, msg, parallel and topic"),
    ],
    "common": [
        (
            b'10.0.0.1 - ada [31/Jan/2026:14:00:00 +0200] "GET /a HTTP/1.1" 200 512',
            (NOON, "INFO", "10.0.0.1", "GET /a HTTP/1.1 200"),
        ),
        (b'::1 - - [31/Jan/2026:12:00:00 +0000] "-" 408 - "x" "y"', (NOON, "WARN", "::1", "- 408")),
        (
            rb'h - - [31/Jan/2026:12:00:00 +0000] "GET /\"q\" HTTP/1.1" 503 0',
            (NOON, "ERROR", "h", r"GET /\"q\" HTTP/1.1 503"),
        ),
        (b'h - - [yesterday] "GET /" 200 0', (APPENDED, "INFO", "h", "GET / 200")),
        (b'h - - [31/Jan/2026:12:00:00 +0000] "GET /" ok 0', "not in the common log format"),
    ],
    "pairs": [
        (b'time=2026-01-31T12:00:00Z level=error source=web message="no room"', (NOON, "ERROR", "web", "no room")),
        (b"a=1 a=2 level=info a=3 level=error source=web", (APPENDED, "INFO", "web", None)),  # names repeat
        (rb'msg="he said \"no\\yes\"" level="warn"', (APPENDED, "WARN", None, r'he said "no\yes"')),
        (b'msg="level=error inside" level=info', (APPENDED, "INFO", None, "level=error inside")),
        (b"see http://x/?level=error now app=web", (APPENDED, None, "web", None)),
        (b'msg="not closed level=info', (APPENDED, "INFO", None, '"not')),
        (b"level= source=web", (APPENDED, None, "web", None)),
        (b'msg="' + rb"a\"" * 300_000 + b'" level=info', (APPENDED, "INFO", None, 'a"' * 300_000)),
        (b"plain text", "no key=value pair"),
    ],
}


def table(spark: SparkSession, values: list[bytes | None], format_: str, pattern: str | None = None) -> list[Any]:
    numbers = list(range(len(values)))
    stamps = pa.array([STAMP] * len(values), pa.timestamp("us", tz="UTC"))
    made = pa.table({"at": numbers, "value": pa.array(values, pa.binary()), "timestamp": stamps})
    parsed = parse(spark.createDataFrame(made), format_, load_pattern(spark, pattern))
    shown = parsed.selectExpr("at", "cast(time as string) time", "level", "source", "message", "problem")
    return sorted(shown.collect(), key=lambda row: int(row["at"]))


@pytest.mark.parametrize("format_", list(LINES))
def test_lines_are_parsed_by_format(spark: SparkSession, format_: str) -> None:
    found = table(spark, [line for line, _ in LINES[format_]], format_)
    for row, (line, wanted) in zip(found, LINES[format_], strict=True):
        parts: tuple[Any, ...] = (row["time"], row["level"], row["source"], row["message"])
        short = repr(line)[:100]
        if isinstance(wanted, str):
            assert (parts, row["problem"]) == ((None,) * 4, wanted), short
            continue
        assert row["problem"] is None, short
        for have, want in zip(parts, wanted, strict=True):
            assert want is ... or have == want or str(have).startswith("+290000"), short


@pytest.mark.parametrize(
    "pattern",
    [
        r"^(?<time>\S+) \[(?<level>\w+)\] (?:at )?(?<source>[^:]+): (?<message>.*)$",
        r"^(?P<time>\S+) \[(?P<level>\w+)\] (?:at )?(?P<source>[^:]+): (?P<message>.*)$",
        r"^(?<time>[\d()T:Z-]++) (\[)(?<level>\p{Lu}+)\] (?:at )?(?<source>\Qweb\E): (?<message>.*)$",
    ],
)
def test_pattern_is_accepted_in_java_and_python_syntax(spark: SparkSession, pattern: str) -> None:
    lines = [b"2026-01-31T12:00:00Z [INFO] at web: it (all) works", b"nothing"]
    good, bad = table(spark, list(lines), "pattern", pattern)
    assert tuple(good)[1:] == (NOON, "INFO", "web", "it (all) works", None)
    assert bad["problem"] == "pattern does not match"


@pytest.mark.parametrize(
    ("pattern", "groups"),
    [
        (r"(a)(?<level>b)", {"level": 2}),
        (r"\((?<level>b)\)", {"level": 1}),
        (r"[(](?<level>b)", {"level": 1}),
        (r"[]()](?<level>b)", {"level": 1}),
        (r"\Q((\E(?<level>b)", {"level": 1}),
        (r"(?<=x)(?<!y)(?=z)(?i)(?:n)(?<other>c)(?P<source>d)(?P=source)", {"source": 2}),
    ],
)
def test_groups_are_numbered_as_in_java(pattern: str, groups: dict[str, int]) -> None:
    assert parse_pattern(pattern).groups == groups


@pytest.mark.parametrize("pattern", ["(?<level>a", "a)(?<level>b)", "(?<level>[a)", "no groups", "(?<other>x)"])
def test_pattern_without_known_groups_is_rejected_without_spark(pattern: str) -> None:
    with pytest.raises(PatternInvalid, match=re.escape(pattern)):
        parse_pattern(pattern)


def test_pattern_that_java_rejects_is_reported(spark: SparkSession) -> None:
    with pytest.raises(PatternInvalid, match="not a valid Java regular expression"):
        load_pattern(spark, r"(?<level>a)\p{Nonsense}")
