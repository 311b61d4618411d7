"""Line formats, and regular expressions in Java syntax, as Spark uses them. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from flotilla_spark.errors import PatternInvalid

JSON, COLUMNS, COMMON, PAIRS, PATTERN = "json", "columns", "common", "pairs", "pattern"
FORMATS: Mapping[str, str] = {
    JSON: 'JSON object: {"time": "2026-01-31T12:00:00Z", "level": "error", "source": "web", "message": "no room"}',
    COLUMNS: "ts, msg, parallel and topic, separated by tabs or at least two spaces: 21:52:23  INFO started  P1-1  T1",
    COMMON: 'common log format: 10.0.0.1 - ada [31/Jan/2026:12:00:00 +0000] "GET / HTTP/1.1" 200 512',
    PAIRS: 'key=value pairs: time=2026-01-31T12:00:00Z level=error source=web message="no room"',
    PATTERN: "lines that match the regular expression --pattern",
}
FIELDS = ("time", "level", "source", "message")

_TOKEN = re.compile(
    r"\\Q.*?(?:\\E|\Z)|\\.|(?P<named>\(\?P?<(?P<name>[A-Za-z][A-Za-z0-9]*)>)|\(\?P=(?P<back>[A-Za-z][A-Za-z0-9]*)\)"
    r"|(?P<other>\(\?)|(?P<group>\()|(?P<end>\))|(?P<opens>\[\^?\]?)|(?P<closes>\])|.",
    re.DOTALL,
)


@dataclass(frozen=True)
class Pattern:
    """A Java regular expression, and the numbers of its named groups: Spark extracts groups by number."""

    text: str
    groups: Mapping[str, int]


def parse_pattern(pattern: str) -> Pattern:
    """Find the named groups, in the syntax of Java, (?<level>…), or Python, (?P<level>…); raises PatternInvalid.

    Java validates the rest when Spark has started.
    """
    text, groups, count, depth, in_class = "", dict[str, int](), 0, 0, 0
    for token in _TOKEN.finditer(pattern):
        kind = token.lastgroup if token.lastgroup != "name" else "named"
        if kind == "opens":
            in_class += 1
        elif kind == "closes":
            in_class = max(0, in_class - 1)
        if in_class or kind in {None, "opens", "closes"}:
            text += token[0]
            continue
        count += kind in {"named", "group"}
        depth += {"end": -1, "back": 0}.get(str(kind), 1)
        if token["name"]:
            groups[token["name"]] = count
        text += f"(?<{token['name']}>" if token["name"] else rf"\k<{token['back']}>" if token["back"] else token[0]
        if depth < 0:
            break
    if depth != 0 or in_class:
        raise PatternInvalid(f"'{pattern}' is not a regular expression: unbalanced brackets")
    found = {part: groups[part] for part in FIELDS if part in groups}
    if not found:
        raise PatternInvalid(
            f"'{pattern}' needs a group with one of the names {', '.join(FIELDS)}, e.g. (?<level>[A-Z]+)"
        )
    return Pattern(text, found)
