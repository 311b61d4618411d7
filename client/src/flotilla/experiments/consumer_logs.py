"""What a consumer got: `consumer_{id}.txt`, a line for each message, in the order in which they came. Pure.

    # consumer 1 of T1 T2
    [topic  msg  parallel  line]
    ---------------------------------------
    T1	INFO	P1-1	3
    T2	INFO	P2-1	4

Behind topic and message stands where the message comes from, which travels with it as headers of its record: the
producer's mark, and the line of its file. So two messages with the same text can be told apart, and a checker can prove
that each came once and in order. A message of somebody else has none, and a dash.

Columns are separated by one tab; tabs and line breaks in messages are written as in Python, with a backslash.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from flotilla.experiments.errors import LogInvalid
from flotilla.experiments.producer_logs import RULER, Line, producer_of
from flotilla.records import Headers

HEADING = "[topic  msg  parallel  line]"
NOBODY = "-"
_FIRST = re.compile(r"# consumer (\d{1,9}) of (\S+(?: \S+)*)")
_NUMBER = re.compile(r"[1-9][0-9]{0,8}")
_HEAD_LINES = 3
_CELLS = 4
_ESCAPES = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}
# What counts as a line break for Python must not break a line here, either.
_TO_ESCAPE = re.compile("[\\\\\t\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_ESCAPED = re.compile(r"\\(?:u([0-9a-f]{4})|(.))")
_MARK, _LINE = "parallel", "line"


@dataclass(frozen=True)
class Origin:
    """Where a message comes from: a producer's mark, and the line of its file."""

    mark: str
    line: int

    @property
    def producer(self) -> int:
        """Who sent it."""
        return producer_of(self.mark)

    @classmethod
    def from_headers(cls, headers: Headers) -> "Origin | None":
        """Read what a record says; None if it says nothing, or nothing that can be read."""
        found = dict(headers)
        try:
            origin = cls(found[_MARK].decode("ascii"), parse_line(found[_LINE].decode("ascii")))
            producer_of(origin.mark)
        except (KeyError, ValueError):
            return None
        return origin

    @staticmethod
    def for_headers(line: Line) -> Headers:
        """Write it for a record."""
        return ((_MARK, line.mark.encode()), (_LINE, str(line.number).encode()))


@dataclass(frozen=True)
class Received:
    """A message that came. `number` is where it stands in the file, from 1 on."""

    number: int
    topic: str
    message: str
    origin: Origin | None


@dataclass(frozen=True)
class ConsumerLog:
    """All that a consumer got, and the topics that it has subscribed to."""

    consumer: int
    topics: tuple[str, ...]
    rows: tuple[Received, ...]


def consumer_file(consumer: int) -> str:
    """Name the file of a consumer."""
    return f"consumer_{consumer}.txt"


def write_head(consumer: int, topics: Sequence[str]) -> str:
    """Write how a consumer's file begins."""
    return f"# consumer {consumer} of {' '.join(topics)}\n{HEADING}\n{RULER}\n"


def write_row(topic: str, message: str, origin: Origin | None) -> str:
    """Write one message."""
    mark, line = (NOBODY, NOBODY) if origin is None else (origin.mark, origin.line)
    return f"{topic}\t{_escape(message)}\t{mark}\t{line}\n"


def parse_consumer(text: str, name: str) -> ConsumerLog:
    """Read a consumer's file; `name` is for the error. Raises LogInvalid."""
    rows = text.split("\n")
    first = _FIRST.fullmatch(rows[0])
    if first is None:
        raise LogInvalid(name, 1, "it does not begin as in `# consumer 1 of T1 T2`, as `consume` writes it")
    received = []
    for number, row in enumerate(rows[_HEAD_LINES:], _HEAD_LINES + 1):
        if number == len(rows) and not row:
            break
        if number == len(rows):
            raise LogInvalid(name, number, "it is cut off: the consumer has not ended, or was killed")
        try:
            received.append(_parse_row(number, row))
        except ValueError as error:
            raise LogInvalid(name, number, str(error)) from error
    return ConsumerLog(int(first[1]), tuple(first[2].split()), tuple(received))


def _parse_row(number: int, row: str) -> Received:
    cells = row.split("\t")
    if len(cells) != _CELLS:
        raise ValueError(f"{len(cells)} of {_CELLS} columns (topic, msg, parallel, line), with a tab between them")
    topic, message, mark, line = cells
    if mark == line == NOBODY:
        return Received(number, topic, _unescape(message), None)
    producer_of(mark)
    return Received(number, topic, _unescape(message), Origin(mark, parse_line(line)))


def parse_line(text: str) -> int:
    """Read the number of a line, as it is written here and in headers; raises ValueError."""
    if _NUMBER.fullmatch(text) is None:
        raise ValueError(f"{text!r} is no number of a line")
    return int(text)


def _escape(text: str) -> str:
    return _TO_ESCAPE.sub(lambda found: _ESCAPES.get(found[0], f"\\u{ord(found[0]):04x}"), text)


def _unescape(text: str) -> str:
    back = {escaped[1]: char for char, escaped in _ESCAPES.items()}
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)) if found[1] else back.get(found[2], found[2]), text)
