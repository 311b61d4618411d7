"""Log lines to columns: time, level, source and message. Spark expressions only, no Python per record.

A line that does not parse has the reason in `problem`, and null in the other columns; no line is dropped. No line may
fail a query, since the query would fail again after each restart: conversions return null for invalid input.
"""

from collections.abc import Callable, Mapping

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from flotilla_spark.errors import PatternInvalid
from flotilla_spark.formats import COLUMNS, COMMON, FIELDS, FORMATS, JSON, PAIRS, PATTERN, Pattern, parse_pattern

_NAMES = {
    "time": ("time", "ts", "timestamp", "@timestamp", "datetime", "date"),
    "level": ("level", "severity", "lvl", "log.level", "loglevel"),
    "source": ("source", "logger", "service", "app", "host", "name"),
    "message": ("message", "msg", "text", "event"),
}
_PROBLEMS: Mapping[str, str] = {
    JSON: "not a JSON object",
    COLUMNS: "not in the columns ts, msg, parallel and topic",
    COMMON: "not in the common log format",
    PAIRS: "no key=value pair",
    PATTERN: "pattern does not match",
}

# Quantifiers of groups are possessive (*+). Otherwise Java needs a stack frame per character, and a long line fails
# with a StackOverflowError.
_COMMON = r'^(\S++) \S++ (\S++) \[([^\]]++)\] "((?:[^"\\]|\\.)*+)" (\d{3}) (\S++)'
_GAP = r"(?:\t+| {2,})\s*"
_COLUMNS = rf"^(\d{{2}}:\d{{2}}:\d{{2}})\s+(\S+(?: \S+)*+){_GAP}(\S+){_GAP}(\S+)$"
_PAIR = r'(?<!\S)([A-Za-z_@][\w.@-]*+)=("(?:[^"\\]|\\.)*+"|\S*+)'
_NUMBER = r"^\d{1,19}(\.\d{1,9})?$"
_CLOCK = r"^\d{2}:\d{2}:\d{2}([.,]\d{1,9})?$"
_WORD = r"^(\S*+)"

# Numbers are seconds since 1970, or milliseconds, microseconds or nanoseconds. The lower bounds are beyond the year
# 5000 in seconds.
_UNITS = ((1e17, 1e-6), (1e14, 1e-3), (1e11, 1.0))
_SERVER_ERROR, _CLIENT_ERROR = 500, 400
_CLOCKS_DIFFER = "INTERVAL 1 HOUR"


def parse(lines: DataFrame, format_: str, pattern: Pattern | None = None, column: str = "value") -> DataFrame:
    """Add the columns time, level, source, message and problem to lines, which are text or UTF-8 bytes.

    A line without a time gets the timestamp of its record, if there is a column `timestamp`. Times without a time zone
    are in that of the session, which is UTC in our applications.
    """
    raw = f.col(column).cast("string")
    is_text = f.coalesce(f.is_valid_utf8(raw), f.lit(False))
    text = f.trim(f.regexp_replace(f.when(is_text, raw), r"[\r\n\t]+$|^\uFEFF", ""))
    stamp = f.col("timestamp") if "timestamp" in lines.columns else f.lit(None).cast("timestamp")
    parts = _parse(text, format_, pattern, stamp)
    fits = f.coalesce(parts["fits"], f.lit(False))
    problem = (
        f.when(raw.isNull(), "no value")
        .when(~is_text, "not valid UTF-8")
        .when(text == "", "empty")
        .when(~fits, _PROBLEMS[format_])
        .otherwise(f.lit(None).cast("string"))
    )
    shown = {
        "time": f.coalesce(parts["time"], stamp),
        "level": f.nullif(f.upper(f.trim(parts["level"])), f.lit("")),
        "source": parts["source"],
        "message": parts["message"],
    }
    is_right = problem.isNull()
    return lines.withColumns({**{name: f.when(is_right, found) for name, found in shown.items()}, "problem": problem})


def _parse(line: Column, format_: str, pattern: Pattern | None, stamp: Column) -> dict[str, Column]:
    if format_ == JSON:
        return _json(line, stamp)
    if format_ == COLUMNS:
        return _columns(line, stamp)
    if format_ == COMMON:
        return _common(line)
    if format_ == PAIRS:
        return _pairs(line, stamp)
    if format_ == PATTERN and pattern is not None:
        return _pattern(line, pattern, stamp)
    raise ValueError(f"unknown format '{format_}', or no pattern given; formats: {', '.join(FORMATS)}")


def _json(line: Column, stamp: Column) -> dict[str, Column]:
    found = f.from_json(line, "map<string,string>")
    fits = line.startswith("{") & line.endswith("}") & found.isNotNull()
    return {**_of_names(found.getItem, stamp), "fits": fits}


def _pairs(line: Column, stamp: Column) -> dict[str, Column]:
    names = f.regexp_extract_all(line, f.lit(_PAIR), f.lit(1))
    values = f.regexp_extract_all(line, f.lit(_PAIR), f.lit(2))

    def find(name: str) -> Column:  # not a map: if a name repeats, the first value counts
        at = f.array_position(names, name).cast("int")
        value = f.get(values, at - 1)
        bare = f.regexp_replace(f.regexp_extract(value, r'(?s)^"(.*)"$', 1), r"\\(.)", "$1")
        return f.when(at > 0, f.when(value.rlike(r'(?s)^".*"$'), bare).otherwise(value))

    return {**_of_names(find, stamp), "fits": f.size(names) > 0}


def _of_names(find: Callable[[str], Column], stamp: Column) -> dict[str, Column]:
    parts = {part: f.coalesce(*(find(name) for name in names)) for part, names in _NAMES.items()}
    return {**parts, "time": to_time(parts["time"], stamp)}


def _columns(line: Column, stamp: Column) -> dict[str, Column]:
    message = f.regexp_extract(line, _COLUMNS, 2)
    return {
        "time": _on_day(f.regexp_extract(line, _COLUMNS, 1), stamp),
        "level": f.regexp_extract(message, _WORD, 1),
        "source": f.regexp_extract(line, _COLUMNS, 4),
        "message": message,
        "fits": line.rlike(_COLUMNS),
    }


def _common(line: Column) -> dict[str, Column]:
    status = f.regexp_extract(line, _COMMON, 5)
    number = status.try_cast("int")
    level = f.when(number >= _SERVER_ERROR, "ERROR").when(number >= _CLIENT_ERROR, "WARN").otherwise("INFO")
    return {
        "time": f.try_to_timestamp(f.regexp_extract(line, _COMMON, 3), f.lit("dd/MMM/yyyy:HH:mm:ss Z")),
        "level": level,
        "source": f.regexp_extract(line, _COMMON, 1),
        "message": f.concat_ws(" ", f.regexp_extract(line, _COMMON, 4), status),
        "fits": line.rlike(_COMMON),
    }


def _pattern(line: Column, pattern: Pattern, stamp: Column) -> dict[str, Column]:
    def of(part: str) -> Column:
        if part not in pattern.groups:
            return f.lit(None).cast("string")
        return f.nullif(f.regexp_extract(line, pattern.text, pattern.groups[part]), f.lit(""))

    parts = {part: of(part) for part in FIELDS}
    return {**parts, "time": to_time(parts["time"], stamp), "fits": line.rlike(pattern.text)}


def to_time(text: Column, stamp: Column) -> Column:
    """Parse a time: ISO 8601, a number since 1970, or a time of day; null for other text."""
    number = text.try_cast("double")
    ms = number * 1000
    for least, factor in reversed(_UNITS):
        ms = f.when(number >= least, number * factor).otherwise(ms)
    moment = f.timestamp_millis(f.when(text.rlike(_NUMBER), ms).try_cast("long"))
    return (
        f.when(text.rlike(_NUMBER), moment)
        .when(text.rlike(_CLOCK), _on_day(f.translate(text, ",", "."), stamp))
        .otherwise(f.try_to_timestamp(text))
    )


def _on_day(clock: Column, stamp: Column) -> Column:
    """Add the date to a time of day: that of the record, or the day before, since lines are written before records."""
    same = f.try_to_timestamp(f.concat(f.date_format(stamp, "yyyy-MM-dd "), clock))
    return f.when(same <= stamp + f.expr(_CLOCKS_DIFFER), same).otherwise(same - f.expr("INTERVAL 1 DAY"))


def load_pattern(session: SparkSession, text: str | None) -> Pattern | None:
    """Parse a pattern and validate it with Java; raises PatternInvalid."""
    if text is None:
        return None
    pattern = parse_pattern(text)
    try:
        session.range(1).select(f.lit("").rlike(pattern.text)).collect()
    except Exception as error:
        raise PatternInvalid(f"'{text}' is not a valid Java regular expression") from error
    return pattern
