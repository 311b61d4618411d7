"""The file of a producer, `producer_{id}.txt`, with the columns `ts msg parallel topic`. Pure.

    [ts         msg       parallel    topic]
    ---------------------------------------
    21:52:23	INFO		P1-1		T1
    21:52:23	INFO		P1-1		T2
    21:52:24	WARN disk is full	P1-2		T1

Columns are separated by a tab or by two or more spaces; a message may contain single spaces. Heading and ruler are
optional, and blank lines are ignored. `P1-2` is step 2 of producer 1: the lines of a step are adjacent and sent
concurrently, and the next step starts when all of them are acknowledged.

An invalid file is rejected as a whole, with the line and the reason.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from flotilla.experiments.errors import LogInvalid
from flotilla.limits import MESSAGE_BYTES_MAX_DEFAULT, TOPIC_NAME_RULE

HEADING = "[ts         msg       parallel    topic]"
RULER = "-" * 39
COLUMNS = ("ts", "msg", "parallel", "topic")
LINES_MAX = 1_000_000
_SPACE = re.compile(r"\s{2,}|\t")
_TIME = re.compile(r"([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,9})?")
_STEP = re.compile(r"P(\d{1,9})-\d{1,9}")
_TOPIC = re.compile(TOPIC_NAME_RULE)


@dataclass(frozen=True)
class Line:
    """A message to send. `number` is its line in the file, from 1."""

    number: int
    ts: str
    message: str
    step: str
    topic: str


@dataclass(frozen=True)
class ProducerLog:
    """The messages of a producer."""

    producer: int
    lines: tuple[Line, ...]

    def steps(self) -> Iterator[tuple[Line, ...]]:
        """Iterate over the steps."""
        for _, lines in groupby(self.lines, key=lambda line: line.step):
            yield tuple(lines)


def producer_file(producer: int) -> str:
    """Return the name of a producer's file."""
    return f"producer_{producer}.txt"


def parse_producer_id(step: str) -> int:
    """Return the producer of a step; raises ValueError."""
    found = _STEP.fullmatch(step)
    if found is None:
        raise ValueError(f"{step!r} is not a step: use P, the producer's number, - and the step's number, such as P1-1")
    return int(found[1])


def parse_producer(text: str, producer: int, topics: Collection[str] | None = None) -> ProducerLog:
    """Parse a producer's file; with `topics`, other topics are invalid. Raises LogInvalid."""
    lines: list[Line] = []
    ended: set[str] = set()
    for number, row in enumerate(text.split("\n"), 1):
        if _is_decoration(row):
            continue
        try:
            line = _parse_row(number, row, producer, topics)
            if lines and line.step != lines[-1].step:
                ended.add(lines[-1].step)
            _require(
                line.step not in ended,
                f"step {line.step} has other lines between its own: the lines of a step must be adjacent",
            )
            _require(len(lines) < LINES_MAX, f"more than {LINES_MAX} messages")
        except ValueError as error:
            raise LogInvalid(producer_file(producer), number, str(error)) from error
        lines.append(line)
    return ProducerLog(producer, tuple(lines))


def format_producer(log: ProducerLog) -> str:
    """Format a producer's file."""
    rows = (f"{line.ts}\t{line.message}\t\t{line.step}\t\t{line.topic}" for line in log.lines)
    return "\n".join((HEADING, RULER, *rows, ""))


def number_lines(rows: Iterable[tuple[str, str, str, str]]) -> tuple[Line, ...]:
    """Build lines from (ts, msg, parallel, topic), with their line numbers in the file."""
    return tuple(Line(number, *row) for number, row in enumerate(rows, 3))  # after heading and ruler


def _is_decoration(row: str) -> bool:
    bare = row.strip()
    return not bare.strip("-") or tuple(bare.strip("[]").split()) == COLUMNS


def _parse_row(number: int, row: str, producer: int, topics: Collection[str] | None) -> Line:
    cells = _SPACE.split(row.strip())
    _require(
        len(cells) == len(COLUMNS),
        f"{len(cells)} of 4 columns ({', '.join(COLUMNS)}), separated by a tab or two spaces",
    )
    ts, message, step, topic = cells
    _require(_TIME.fullmatch(ts) is not None, f"{ts!r} is not a time such as 21:52:23")
    size = len(message.encode())
    _require(size <= MESSAGE_BYTES_MAX_DEFAULT, f"message has {size} bytes, the limit is {MESSAGE_BYTES_MAX_DEFAULT}")
    _require(
        parse_producer_id(step) == producer,
        f"{step} is not a step of producer {producer}: it must start with P{producer}-",
    )
    _require(_TOPIC.fullmatch(topic) is not None, f"{topic!r} is not a valid topic name")
    if topics is not None:
        _require(topic in topics, f"topic {topic} is not one of {' '.join(topics)}")
    return Line(number, ts, message, step, topic)


def _require(holds: bool, reason: str) -> None:
    if not holds:
        raise ValueError(reason)
