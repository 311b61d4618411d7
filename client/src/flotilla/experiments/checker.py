"""Checks that each consumer received exactly the messages of its topics. Pure.

For each subscribed topic, a consumer must have received every line of every producer file with this topic, once,
unchanged, and in the order of the file. All consumers of a topic must have received the same order, since topics of
experiments have one partition. There is no order between topics.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from flotilla.experiments.consumer_logs import ConsumerLog, Received, consumer_file
from flotilla.experiments.producer_logs import Line, ProducerLog, producer_file

PROBLEMS_MAX = 1000  # reported per consumer and topic; all are counted

_Key = tuple[int, int]  # a producer, and a line of its file


@dataclass(frozen=True)
class Tally:
    """Number of messages of a consumer and topic: sent, received, and wrong."""

    consumer: int
    topic: str
    producers: tuple[int, ...]
    sent: int
    received: int
    missing: int
    doubled: int
    disordered: int
    unexpected: int


@dataclass(frozen=True)
class Report:
    """Result of the checks; each problem names file and line."""

    tallies: tuple[Tally, ...]
    problems: tuple[str, ...]

    @property
    def is_ok(self) -> bool:
        """Whether there are no problems."""
        return not self.problems

    @property
    def received(self) -> int:
        """Number of messages that all consumers received."""
        return sum(tally.received for tally in self.tallies)


def check(producers: Sequence[ProducerLog], consumers: Sequence[ConsumerLog]) -> Report:
    """Compare what was received with what was sent."""
    sent: dict[str, dict[_Key, Line]] = defaultdict(dict)
    for log in producers:
        for line in log.lines:
            sent[line.topic][log.producer, line.number] = line
    tallies: list[Tally] = []
    problems: list[str] = [] if consumers else ["no consumer files"]
    orders: dict[str, list[tuple[int, list[_Key]]]] = defaultdict(list)
    for consumer in consumers:
        problems += _find_unsubscribed(consumer)
        for topic in consumer.topics:
            topic_check = _TopicCheck(consumer.consumer, topic, sent[topic])
            topic_check.run([row for row in consumer.rows if row.topic == topic])
            tallies.append(topic_check.tally())
            problems += topic_check.problems
            orders[topic].append((consumer.consumer, topic_check.order))
    for topic, seen in orders.items():
        problems += _compare_orders(topic, seen)
    return Report(tuple(tallies), tuple(problems))


@dataclass
class _TopicCheck:
    """Check of one consumer and topic."""

    consumer: int
    topic: str
    sent: Mapping[_Key, Line]
    received: int = 0
    missing: int = 0
    doubled: int = 0
    disordered: int = 0
    unexpected: int = 0
    order: list[_Key] = field(default_factory=list)
    last: dict[int, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def run(self, rows: Sequence[Received]) -> None:
        first: dict[_Key, int] = {}
        for row in rows:
            self.received += 1
            key = self._find(row)
            if key is None:
                continue
            if key in first:
                self.doubled += 1
                self._add_problem(row.number, f"{_name(key)} is a duplicate of line {first[key]}")
            else:
                first[key] = row.number
                self._check_order(row, key)
        missing = sorted(self.sent.keys() - first.keys())
        self.missing = len(missing)
        self.problems += [f"{consumer_file(self.consumer)}: {_name(key)} is missing ({self.topic})" for key in missing][
            :PROBLEMS_MAX
        ]

    def _check_order(self, row: Received, key: _Key) -> None:
        """Check and record the order."""
        producer, line = key
        last = self.last.get(producer, 0)
        if line < last:
            self.disordered += 1
            self._add_problem(row.number, f"{_name(key)} is out of order, after line {last} of the same file")
        self.last[producer] = max(line, last)
        self.order.append(key)

    def _find(self, row: Received) -> _Key | None:
        """Find the line of a message; None if there is none or it differs."""
        origin = row.origin
        key = None if origin is None else (origin.producer, origin.line)
        line = None if key is None else self.sent.get(key)
        if origin is None or key is None:
            reason = "does not come from a producer of the experiment"
        elif line is None:
            reason = f"refers to {_name(key)}, which has no message for {self.topic}"
        elif (line.message, line.step) != (row.message, origin.step):
            reason = f"{origin.step} {row.message!r} differs from {_name(key)}: {line.step} {line.message!r}"
        else:
            return key
        self.unexpected += 1
        self._add_problem(row.number, f"message {reason}")
        return None

    def _add_problem(self, number: int, what: str) -> None:
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(f"{consumer_file(self.consumer)} line {number}: {what} ({self.topic})")

    def tally(self) -> Tally:
        return Tally(
            self.consumer,
            self.topic,
            tuple(sorted({producer for producer, _ in self.sent})),
            len(self.sent),
            self.received,
            self.missing,
            self.doubled,
            self.disordered,
            self.unexpected,
        )


def _find_unsubscribed(consumer: ConsumerLog) -> list[str]:
    return [
        f"{consumer_file(consumer.consumer)} line {row.number}: consumer is not subscribed to {row.topic}"
        for row in consumer.rows
        if row.topic not in consumer.topics
    ][:PROBLEMS_MAX]


def _compare_orders(topic: str, seen: Sequence[tuple[int, list[_Key]]]) -> list[str]:
    """Find consumers that received a topic in different orders; messages that one of them lacks are ignored."""
    problems = []
    for (one, ours), (other, theirs) in pairwise(seen):
        both = set(ours) & set(theirs)
        for here, there in zip((k for k in ours if k in both), (k for k in theirs if k in both), strict=True):
            if here != there:
                where = f"{consumer_file(one)} has {_name(here)} where {consumer_file(other)} has {_name(there)}"
                problems.append(f"{topic} was received in different orders: {where}")
                break
    return problems


def _name(key: _Key) -> str:
    producer, line = key
    return f"{producer_file(producer)} line {line}"
