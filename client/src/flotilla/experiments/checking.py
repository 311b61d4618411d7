"""Proves that each consumer got exactly what it should. Pure.

What a consumer should get of a topic that it has subscribed to: every line of every producer's file that names the
topic, once, as it was written, each producer's lines in the order of its file. Besides, all consumers of a topic must
have seen the same order, since a topic of an experiment has one partition. Between topics there is no order.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from flotilla.experiments.consumer_logs import ConsumerLog, Received, consumer_file
from flotilla.experiments.producer_logs import Line, ProducerLog, producer_file

PROBLEMS_MAX = 1000  # of one consumer and topic are told; all are counted

_Key = tuple[int, int]  # a producer, and a line of its file


@dataclass(frozen=True)
class Tally:
    """How a consumer fared with a topic: how many messages there should be, how many came, and what is wrong."""

    consumer: int
    topic: str
    producers: tuple[int, ...]
    sent: int
    received: int
    missing: int
    doubled: int
    disordered: int
    strange: int


@dataclass(frozen=True)
class Report:
    """What the checker found; every problem with file and line."""

    tallies: tuple[Tally, ...]
    problems: tuple[str, ...]

    @property
    def is_ok(self) -> bool:
        """Whether everything is as it should be."""
        return not self.problems

    @property
    def received(self) -> int:
        """How many messages came, at all consumers together."""
        return sum(tally.received for tally in self.tallies)


def check(producers: Sequence[ProducerLog], consumers: Sequence[ConsumerLog]) -> Report:
    """Compare what was received with what was sent."""
    sent: dict[str, dict[_Key, Line]] = defaultdict(dict)
    for log in producers:
        for line in log.lines:
            sent[line.topic][log.producer, line.number] = line
    tallies: list[Tally] = []
    problems: list[str] = [] if consumers else ["there is no log of a consumer"]
    orders: dict[str, list[tuple[int, list[_Key]]]] = defaultdict(list)
    for consumer in consumers:
        problems += _find_uninvited(consumer)
        for topic in consumer.topics:
            look = _Look(consumer.consumer, topic, sent[topic])
            look.go([row for row in consumer.rows if row.topic == topic])
            tallies.append(look.tally())
            problems += look.problems
            orders[topic].append((consumer.consumer, look.order))
    for topic, seen in orders.items():
        problems += _compare_orders(topic, seen)
    return Report(tuple(tallies), tuple(problems))


@dataclass
class _Look:
    """A walk through what one consumer got of one topic."""

    consumer: int
    topic: str
    sent: Mapping[_Key, Line]
    received: int = 0
    missing: int = 0
    doubled: int = 0
    disordered: int = 0
    strange: int = 0
    order: list[_Key] = field(default_factory=list)
    last: dict[int, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def go(self, rows: Sequence[Received]) -> None:
        first: dict[_Key, int] = {}
        for row in rows:
            self.received += 1
            key = self._find(row)
            if key is None:
                continue
            if key in first:
                self.doubled += 1
                self._say(row.number, f"{_name(key)} comes again, after line {first[key]}")
            else:
                first[key] = row.number
                self._place(row, key)
        missing = sorted(self.sent.keys() - first.keys())
        self.missing = len(missing)
        self.problems += [f"{consumer_file(self.consumer)}: {_name(key)} is missing ({self.topic})" for key in missing][
            :PROBLEMS_MAX
        ]

    def _place(self, row: Received, key: _Key) -> None:
        """Take note of the order."""
        producer, line = key
        last = self.last.get(producer, 0)
        if line < last:
            self.disordered += 1
            self._say(row.number, f"{_name(key)} comes after line {last} of the same file")
        self.last[producer] = max(line, last)
        self.order.append(key)

    def _find(self, row: Received) -> _Key | None:
        """Find the line that a message comes from; None if it is not what was sent."""
        origin = row.origin
        key = None if origin is None else (origin.producer, origin.line)
        line = None if key is None else self.sent.get(key)
        if origin is None or key is None:
            reason = "comes from no producer of the experiment"
        elif line is None:
            reason = f"comes from {_name(key)}, where there is none for {self.topic}"
        elif (line.message, line.mark) != (row.message, origin.mark):
            reason = f"is {origin.mark} {row.message!r}, and {_name(key)} has {line.mark} {line.message!r}"
        else:
            return key
        self.strange += 1
        self._say(row.number, f"the message {reason}")
        return None

    def _say(self, number: int, what: str) -> None:
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
            self.strange,
        )


def _find_uninvited(consumer: ConsumerLog) -> list[str]:
    return [
        f"{consumer_file(consumer.consumer)} line {row.number}: it has not subscribed to {row.topic}"
        for row in consumer.rows
        if row.topic not in consumer.topics
    ][:PROBLEMS_MAX]


def _compare_orders(topic: str, seen: Sequence[tuple[int, list[_Key]]]) -> list[str]:
    """Find consumers that saw a topic in another order than the first one did; what only one has does not count."""
    problems = []
    for (one, ours), (other, theirs) in pairwise(seen):
        both = set(ours) & set(theirs)
        for here, there in zip((k for k in ours if k in both), (k for k in theirs if k in both), strict=True):
            if here != there:
                where = f"{consumer_file(one)} has {_name(here)} where {consumer_file(other)} has {_name(there)}"
                problems.append(f"{topic} was seen in two orders: {where}")
                break
    return problems


def _name(key: _Key) -> str:
    producer, line = key
    return f"{producer_file(producer)} line {line}"
