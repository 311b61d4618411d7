"""Lines of logs as columns: when, how bad, from where, what. Expressions of Spark alone: no Python per record.

What does not parse has a `problem`, which says why, and nothing else; nothing is dropped here.
"""

from collections.abc import Callable, Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

JSON, COLUMNS, COMMON, PAIRS, PATTERN = "json", "columns", "common", "pairs", "pattern"
FORMATS: Mapping[str, str] = {
    JSON: 'JSON lines, as in {"time": "2026-01-31T12:00:00Z", "level": "error", "source": "web", "message": "…"}',
    COLUMNS: "the columns ts, msg, parallel and topic: 21:52:23  INFO  P1-1  T1",
    COMMON: 'the common log format: 10.0.0.1 - ada [31/Jan/2026:12:00:00 +0000] "GET / HTTP/1.1" 200 512',
    PAIRS: 'pairs of key=value, as in level=error source=web message="no room"',
    PATTERN: "a regular expression of yours, with groups named time, level, source and message",
}
PARTS = ("time", "level", "source", "message")

_NAMES = {
    "time": ("time", "ts", "timestamp", "@timestamp", "datetime", "date"),
    "level": ("level", "severity", "lvl", "log.level", "loglevel"),
    "source": ("source", "logger", "service", "app", "host", "name"),
    "message": ("message", "msg", "text", "event"),
}
_COMMON = r'^(\S+) \S+ (\S+) \[([^\]]+)\] "([^"]*)" (\d{3}) (\S+)'
_COLUMNS = r"^(\d{2}:\d{2}:\d{2})\s+(\S+)\s+(\S+)\s+(\S+)\s*$"
_PAIR = r'([A-Za-z_@][\w.@-]*)=("(?:[^"\\]|\\.)*"|\S*)'
_NUMBER = r"^\d+(\.\d+)?$"
_MILLISECONDS_FROM = 100_000_000_000  # larger numbers are no seconds: that is the year 5138
_SERVER_ERROR, _CLIENT_ERROR = 500, 400


class PatternInvalid(ValueError):
    """A regular expression that does not name any of the parts."""


def parse(lines: DataFrame, format_: str, pattern: str | None = None, column: str = "value") -> DataFrame:
    """Add the columns time, level, source, message and problem to lines, which are text or bytes in UTF-8.

    A line without a time of its own has that at which it was appended, if there is a column `timestamp`.
    """
    text = f.trim(f.col(column).cast("string"))
    parsers: Mapping[str, Callable[[Column], dict[str, Column]]] = {
        JSON: _json,
        COLUMNS: _columns,
        COMMON: _common,
        PAIRS: _pairs,
        PATTERN: lambda line: _pattern(line, pattern or ""),
    }
    parts = parsers[format_](text)
    fits = parts.pop("fits")
    time = parts["time"]
    if "timestamp" in lines.columns:
        time = f.coalesce(time, f.col("timestamp"))
    shown = {"time": time, "level": f.upper(parts["level"]), "source": parts["source"], "message": parts["message"]}
    problem = f.when(text.isNull(), "it is not text").when(~fits, f"it is no line of the format '{format_}'")
    return lines.withColumns(
        {
            **{name: f.when(fits, found) for name, found in shown.items()},
            "problem": problem.otherwise(f.lit(None).cast("string")),
        }
    )


def _json(line: Column) -> dict[str, Column]:
    found = f.from_json(line, "map<string,string>", {"mode": "PERMISSIVE"})
    fits = line.startswith("{") & found.isNotNull() & (f.size(found) > 0)
    return {**_of_map(found), "fits": f.coalesce(fits, f.lit(False))}


def _pairs(line: Column) -> dict[str, Column]:
    names = f.regexp_extract_all(line, f.lit(_PAIR), f.lit(1))
    values = f.regexp_extract_all(line, f.lit(_PAIR), f.lit(2))
    bare = f.transform(values, lambda one: f.regexp_replace(f.regexp_replace(one, r'^"|"$', ""), r"\\(.)", "$1"))
    found = f.map_from_arrays(f.array_distinct(names), f.slice(bare, f.lit(1), f.size(f.array_distinct(names))))
    return {**_of_map(found), "fits": f.coalesce(f.size(names) > 0, f.lit(False))}


def _of_map(found: Column) -> dict[str, Column]:
    def any_of(names: tuple[str, ...]) -> Column:
        return f.coalesce(*(found.getItem(name) for name in names))

    parts = {part: any_of(names) for part, names in _NAMES.items()}
    return {**parts, "time": to_time(parts["time"])}


def _columns(line: Column) -> dict[str, Column]:
    clock = f.regexp_extract(line, _COLUMNS, 1)
    level = f.regexp_extract(line, _COLUMNS, 2)
    return {
        "time": f.try_to_timestamp(f.concat_ws(" ", f.current_date().cast("string"), clock)),
        "level": level,
        "source": f.regexp_extract(line, _COLUMNS, 4),
        "message": f.concat_ws(" ", level, f.regexp_extract(line, _COLUMNS, 3)),
        "fits": f.coalesce(line.rlike(_COLUMNS), f.lit(False)),
    }


def _common(line: Column) -> dict[str, Column]:
    status = f.regexp_extract(line, _COMMON, 5).try_cast("int")
    level = f.when(status >= _SERVER_ERROR, "ERROR").when(status >= _CLIENT_ERROR, "WARN").otherwise("INFO")
    return {
        "time": f.try_to_timestamp(f.regexp_extract(line, _COMMON, 3), f.lit("dd/MMM/yyyy:HH:mm:ss Z")),
        "level": level,
        "source": f.regexp_extract(line, _COMMON, 1),
        "message": f.concat_ws(" ", f.regexp_extract(line, _COMMON, 4), f.regexp_extract(line, _COMMON, 5)),
        "fits": f.coalesce(line.rlike(_COMMON), f.lit(False)),
    }


def _pattern(line: Column, pattern: str) -> dict[str, Column]:
    groups = group_numbers(pattern)

    def of(part: str) -> Column:
        if part not in groups:
            return f.lit(None).cast("string")
        return f.nullif(f.regexp_extract(line, pattern, groups[part]), f.lit(""))

    parts = {part: of(part) for part in PARTS}
    return {**parts, "time": to_time(parts["time"]), "fits": f.coalesce(line.rlike(pattern), f.lit(False))}


def group_numbers(pattern: str) -> dict[str, int]:
    """Tell which group of a regular expression is which part; raises PatternInvalid. Spark asks for them by number."""
    import re  # noqa: PLC0415 - Java's syntax for named groups is (?<name>…), and Python's (?P<name>…)

    try:
        named = re.compile(pattern.replace("(?<", "(?P<").replace("(?P<=", "(?<=").replace("(?P<!", "(?<!")).groupindex
    except re.error as error:
        raise PatternInvalid(f"'{pattern}' is no regular expression: {error}") from error
    found = {part: named[part] for part in PARTS if part in named}
    if not found:
        raise PatternInvalid(
            f"'{pattern}' has no group with one of the names {', '.join(PARTS)}, as in (?<level>[A-Z]+)"
        )
    return found


def to_time(text: Column) -> Column:
    """Read a time: as ISO 8601, or as seconds or milliseconds since 1970; null if it is neither."""
    number = text.try_cast("double")
    seconds = f.when(number > _MILLISECONDS_FROM, number / 1000).otherwise(number)
    return f.when(text.rlike(_NUMBER), f.timestamp_millis((seconds * 1000).cast("long"))).otherwise(
        f.try_to_timestamp(text)
    )
