"""The file of a consumer, `consumer_{id}.txt`: one line per message, in the order of arrival. Pure.

    # consumer 1 of T1 T2
    [topic  msg  parallel  line]
    ---------------------------------------
    T1	INFO	P1-1	3
    T2	INFO	P2-1	4

The last two columns are the origin of the message, which its record carries in headers: the step of the producer, and
the line in its file. They distinguish messages with the same text, so that the checker can find duplicates and wrong
order. A message from another source has dashes.

Columns are separated by one tab. Tabs and line breaks in messages are escaped with a backslash, as in Python.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from flotilla.experiments.errors import LogInvalid
from flotilla.experiments.producer_logs import RULER, Line, parse_producer_id
from flotilla.records import Headers

HEADING = "[topic  msg  parallel  line]"
NO_ORIGIN = "-"
_FIRST = re.compile(r"# consumer (\d{1,9}) of (\S+(?: \S+)*)")
_NUMBER = re.compile(r"[1-9][0-9]{0,8}")
_HEAD_LINES = 3
_CELLS = 4
_ESCAPES = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}
# All characters that Python treats as line breaks are escaped.
_TO_ESCAPE = re.compile("[\\\\\t\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_ESCAPED = re.compile(r"\\(?:u([0-9a-f]{4})|(.))")
_STEP, _LINE = "parallel", "line"


@dataclass(frozen=True)
class Origin:
    """Origin of a message: the step of a producer, and the line in its file."""

    step: str
    line: int

    @property
    def producer(self) -> int:
        """Number of the producer."""
        return parse_producer_id(self.step)

    @classmethod
    def from_headers(cls, headers: Headers) -> "Origin | None":
        """Read the origin from headers; None if it is missing or invalid."""
        found = dict(headers)
        try:
            origin = cls(found[_STEP].decode("ascii"), parse_line(found[_LINE].decode("ascii")))
            parse_producer_id(origin.step)
        except (KeyError, ValueError):
            return None
        return origin

    @staticmethod
    def for_headers(line: Line) -> Headers:
        """Return the origin of a line as headers."""
        return ((_STEP, line.step.encode()), (_LINE, str(line.number).encode()))


@dataclass(frozen=True)
class Received:
    """A received message. `number` is its line in the file, from 1."""

    number: int
    topic: str
    message: str
    origin: Origin | None


@dataclass(frozen=True)
class ConsumerLog:
    """The messages and subscribed topics of a consumer."""

    consumer: int
    topics: tuple[str, ...]
    rows: tuple[Received, ...]


def consumer_file(consumer: int) -> str:
    """Return the name of a consumer's file."""
    return f"consumer_{consumer}.txt"


def format_header(consumer: int, topics: Sequence[str]) -> str:
    """Format the header of a consumer's file."""
    return f"# consumer {consumer} of {' '.join(topics)}\n{HEADING}\n{RULER}\n"


def format_row(topic: str, message: str, origin: Origin | None) -> str:
    """Format one message."""
    step, line = (NO_ORIGIN, NO_ORIGIN) if origin is None else (origin.step, origin.line)
    return f"{topic}\t{_escape(message)}\t{step}\t{line}\n"


def parse_consumer(text: str, name: str) -> ConsumerLog:
    """Parse a consumer's file; `name` is for errors. Raises LogInvalid."""
    rows = text.split("\n")
    first = _FIRST.fullmatch(rows[0])
    if first is None:
        raise LogInvalid(name, 1, "expected a header such as `# consumer 1 of T1 T2`")
    received = []
    for number, row in enumerate(rows[_HEAD_LINES:], _HEAD_LINES + 1):
        if number == len(rows) and not row:
            break
        if number == len(rows):
            raise LogInvalid(name, number, "line is cut off: the consumer is still running, or was killed")
        try:
            received.append(_parse_row(number, row))
        except ValueError as error:
            raise LogInvalid(name, number, str(error)) from error
    return ConsumerLog(int(first[1]), tuple(first[2].split()), tuple(received))


def _parse_row(number: int, row: str) -> Received:
    cells = row.split("\t")
    if len(cells) != _CELLS:
        raise ValueError(f"{len(cells)} of {_CELLS} columns (topic, msg, parallel, line), separated by a tab")
    topic, message, step, line = cells
    if step == line == NO_ORIGIN:
        return Received(number, topic, _unescape(message), None)
    parse_producer_id(step)
    return Received(number, topic, _unescape(message), Origin(step, parse_line(line)))


def parse_line(text: str) -> int:
    """Parse a line number; raises ValueError."""
    if _NUMBER.fullmatch(text) is None:
        raise ValueError(f"{text!r} is not a line number")
    return int(text)


def _escape(text: str) -> str:
    return _TO_ESCAPE.sub(lambda found: _ESCAPES.get(found[0], f"\\u{ord(found[0]):04x}"), text)


def _unescape(text: str) -> str:
    back = {escaped[1]: char for char, escaped in _ESCAPES.items()}
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)) if found[1] else back.get(found[2], found[2]), text)
