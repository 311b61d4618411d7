"""What a producer sends: `producer_{id}.txt`, with the columns `ts msg parallel topic`. Pure.

    [ts         msg       parallel    topic]
    ---------------------------------------
    21:52:23	INFO		P1-1		T1
    21:52:23	INFO		P1-1		T2
    21:52:24	WARN disk is full	P1-2		T1

Between columns stands a tab, or several spaces; a message may have single ones. The heading and the ruler may be
missing, and blank lines do not count. `P1-2` is the second step of producer 1: lines with the same mark stand together
and are sent at the same time, and the next step begins when all of them were acknowledged.

A file that does not fit is refused as a whole, with the line and the reason.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from flotilla.experiments.errors import LogInvalid

HEADING = "[ts         msg       parallel    topic]"
RULER = "-" * 39
COLUMNS = ("ts", "msg", "parallel", "topic")
LINES_MAX = 1_000_000
MESSAGE_BYTES_MAX = 1 << 20  # as everybody takes them
_SPACE = re.compile(r"\s{2,}|\t")
_TIME = re.compile(r"([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,9})?")
_MARK = re.compile(r"P(\d{1,9})-\d{1,9}")
_TOPIC = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


@dataclass(frozen=True)
class Line:
    """A message to send. `number` is where it stands in the file, from 1 on."""

    number: int
    ts: str
    message: str
    mark: str
    topic: str


@dataclass(frozen=True)
class ProducerLog:
    """All that a producer sends."""

    producer: int
    lines: tuple[Line, ...]

    def steps(self) -> Iterator[tuple[Line, ...]]:
        """Go through what is sent together."""
        for _, lines in groupby(self.lines, key=lambda line: line.mark):
            yield tuple(lines)


def producer_file(producer: int) -> str:
    """Name the file of a producer."""
    return f"producer_{producer}.txt"


def producer_of(mark: str) -> int:
    """Tell whose mark it is; raises ValueError."""
    found = _MARK.fullmatch(mark)
    if found is None:
        raise ValueError(f"{mark!r} is no mark as in P1-1: a producer's number and that of a step")
    return int(found[1])


def parse_producer(text: str, producer: int, topics: Collection[str] | None = None) -> ProducerLog:
    """Read a producer's file; with `topics`, it may have no others. Raises LogInvalid."""
    lines: list[Line] = []
    ended: set[str] = set()
    for number, row in enumerate(text.split("\n"), 1):
        if _is_decoration(row):
            continue
        try:
            line = _parse_row(number, row, producer, topics)
            if lines and line.mark != lines[-1].mark:
                ended.add(lines[-1].mark)
            _require(line.mark not in ended, f"{line.mark} comes back: lines with the same mark stand together")
            _require(len(lines) < LINES_MAX, f"there are more than {LINES_MAX} messages")
        except ValueError as error:
            raise LogInvalid(producer_file(producer), number, str(error)) from error
        lines.append(line)
    return ProducerLog(producer, tuple(lines))


def write_producer(log: ProducerLog) -> str:
    """Write a producer's file."""
    rows = (f"{line.ts}\t{line.message}\t\t{line.mark}\t\t{line.topic}" for line in log.lines)
    return "\n".join((HEADING, RULER, *rows, ""))


def number_lines(rows: Iterable[tuple[str, str, str, str]]) -> tuple[Line, ...]:
    """Make lines of (ts, msg, parallel, topic), numbered as they will stand in a file."""
    return tuple(Line(number, *row) for number, row in enumerate(rows, 3))  # behind the heading and the ruler


def _is_decoration(row: str) -> bool:
    bare = row.strip()
    return not bare.strip("-") or tuple(bare.strip("[]").split()) == COLUMNS


def _parse_row(number: int, row: str, producer: int, topics: Collection[str] | None) -> Line:
    cells = _SPACE.split(row.strip())
    _require(
        len(cells) == len(COLUMNS),
        f"{len(cells)} of 4 columns ({', '.join(COLUMNS)}), with a tab or several spaces between them",
    )
    ts, message, mark, topic = cells
    _require(_TIME.fullmatch(ts) is not None, f"{ts!r} is no time as in 21:52:23")
    size = len(message.encode())
    _require(size <= MESSAGE_BYTES_MAX, f"the message has {size} bytes, and {MESSAGE_BYTES_MAX} is the limit")
    _require(producer_of(mark) == producer, f"{mark} is not a mark of producer {producer}: it begins with P{producer}-")
    _require(_TOPIC.fullmatch(topic) is not None, f"{topic!r} is no name of a topic")
    if topics is not None:
        _require(topic in topics, f"topic {topic} is none of {' '.join(topics)}")
    return Line(number, ts, message, mark, topic)


def _require(holds: bool, reason: str) -> None:
    if not holds:
        raise ValueError(reason)
