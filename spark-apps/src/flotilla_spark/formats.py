"""How lines may be written, and regular expressions in Java's syntax, which is Spark's. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from flotilla_spark.errors import PatternInvalid

JSON, COLUMNS, COMMON, PAIRS, PATTERN = "json", "columns", "common", "pairs", "pattern"
FORMATS: Mapping[str, str] = {
    JSON: 'a JSON object: {"time": "2026-01-31T12:00:00Z", "level": "error", "source": "web", "message": "no room"}',
    COLUMNS: "ts, msg, parallel and topic, with tabs or several spaces between them: 21:52:23  INFO started  P1-1  T1",
    COMMON: 'the common log format: 10.0.0.1 - ada [31/Jan/2026:12:00:00 +0000] "GET / HTTP/1.1" 200 512',
    PAIRS: 'key=value: time=2026-01-31T12:00:00Z level=error source=web message="no room"',
    PATTERN: "by the regular expression --pattern",
}
PARTS = ("time", "level", "source", "message")

_TOKEN = re.compile(
    r"\\Q.*?(?:\\E|\Z)|\\.|(?P<named>\(\?P?<(?P<name>[A-Za-z][A-Za-z0-9]*)>)|\(\?P=(?P<back>[A-Za-z][A-Za-z0-9]*)\)"
    r"|(?P<other>\(\?)|(?P<group>\()|(?P<end>\))|(?P<opens>\[\^?\]?)|(?P<closes>\])|.",
    re.DOTALL,
)


@dataclass(frozen=True)
class Pattern:
    """A regular expression of Java, and the numbers of the groups that are parts of a line: Spark asks by number."""

    text: str
    groups: Mapping[str, int]


def read_pattern(pattern: str) -> Pattern:
    """Find the groups; raises PatternInvalid. Names may be written as in Java, (?<level>…), or Python, (?P<level>…).

    Whether the rest is an expression only Java can say, and does, when Spark has started.
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
        raise PatternInvalid(f"'{pattern}' is no regular expression: brackets are not closed, or not opened")
    found = {part: groups[part] for part in PARTS if part in groups}
    if not found:
        raise PatternInvalid(
            f"'{pattern}' has no group with one of the names {', '.join(PARTS)}, as in (?<level>[A-Z]+)"
        )
    return Pattern(text, found)
