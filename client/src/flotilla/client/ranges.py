"""Which records are wanted: of a topic's partitions, from an offset or a time on, up to another. Pure values.

What users give becomes a `Range`, and, when servers have told where partitions begin and end, a `Span` of offsets for
each partition. The end is exclusive, so that ranges which follow each other overlap nowhere and leave nothing out. As
with a slice, what lies behind the last record is cut off. What lies before the first one is gone, which is for the
user to decide: it is never left out in silence.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from numbers import Integral
from typing import TypedDict

from flotilla.client.admin.moments import to_ms
from flotilla.client.config import OnGone, require
from flotilla.client.errors import ConfigInvalid, OffsetOutOfRange
from flotilla.client.positions import EARLIEST, LATEST

Edge = str | int | datetime
Edges = Edge | Mapping[int, Edge]

MAX_BYTES = 2 << 30
_NAMES = {"earliest": EARLIEST, "latest": LATEST}


class RangeOptions(TypedDict, total=False):
    """Which records, and what of them.

    partitions: by default all, or those that `start` or `end` names.
    start, end: "earliest", "latest", an offset, a datetime, or one of these for each partition, as in {0: 100, 1: 250}.
        The end is exclusive. By default everything that is there now.
    columns: by default all: key, value, topic, partition, offset, timestamp, append_time, headers.
    on_gone: "raise" if records of the range were removed, or "earliest" to begin with the first that is there.
    max_bytes: a table that takes more memory raises TableTooLarge; None is without limit. 2 GiB by default. What is
        iterated over may be of any size.
    """

    partitions: Iterable[int] | None
    start: Edges
    end: Edges
    columns: Iterable[str] | None
    on_gone: str
    max_bytes: int | None


@dataclass(frozen=True)
class Range:
    """What is wanted. An edge is an offset, or the question for one as servers are asked."""

    topic: str
    partitions: tuple[int, ...] | None  # None: all
    start: Mapping[int, int | str] | int | str
    end: Mapping[int, int | str] | int | str
    is_gone_left_out: bool = False
    max_bytes: int | None = MAX_BYTES

    @classmethod
    def parse(
        cls,
        topic: str,
        partitions: Iterable[int] | None = None,
        start: Edges = "earliest",
        end: Edges = "latest",
        on_gone: str = OnGone.RAISE,
        max_bytes: int | None = MAX_BYTES,
    ) -> "Range":
        """Check what a user gives; raises ConfigInvalid."""
        require(isinstance(topic, str) and bool(topic), "topic", "the name of one")
        require(on_gone in {OnGone.RAISE, OnGone.EARLIEST}, "on_gone", "raise or earliest")
        require(
            max_bytes is None or (isinstance(max_bytes, int | float) and max_bytes >= 1),
            "max_bytes",
            "at least 1, or None",
        )
        named = [given for given in (start, end) if isinstance(given, Mapping)]
        some = next(iter(named), None) if partitions is None else partitions
        wanted = None if some is None else _parse_partitions(some)
        for given in named:
            if set(given) != set(wanted or ()):
                raise ConfigInvalid("start and end must name each of the partitions that are read, and no other")
        left_out = on_gone == OnGone.EARLIEST
        return cls(topic, wanted, _parse_edges(start, "start"), _parse_edges(end, "end"), left_out, max_bytes)

    def edges(self, partition: int) -> tuple[int | str, int | str]:
        """Tell where the records of a partition begin and end."""
        start, end = self.start, self.end
        return (
            start[partition] if isinstance(start, Mapping) else start,
            end[partition] if isinstance(end, Mapping) else end,
        )


def _parse_partitions(given: Iterable[int]) -> tuple[int, ...]:
    found = list(given) if isinstance(given, Iterable) else [None]
    require(all(map(_is_count, found)), "partitions", "numbers from 0 on")
    return tuple(sorted(set(map(int, found))))


def _is_count(given: object) -> bool:
    """Tell whether this is a number from 0 on; those of NumPy are, as they come out of frames."""
    return isinstance(given, Integral) and not isinstance(given, bool) and int(given) >= 0


def _parse_edges(given: Edges, name: str) -> Mapping[int, int | str] | int | str:
    if isinstance(given, Mapping):
        return {partition: _parse_edge(edge, name) for partition, edge in given.items()}
    return _parse_edge(given, name)


def _parse_edge(edge: Edge, name: str) -> int | str:
    if isinstance(edge, datetime):
        return f"timestamp_ms={to_ms(edge, name)}"
    if _is_count(edge):
        return int(edge)
    if isinstance(edge, str) and edge in _NAMES:
        return _NAMES[edge]
    raise ConfigInvalid(f"{name} must be earliest, latest, an offset, a datetime, or one of these for each partition")


@dataclass(frozen=True, order=True)
class Span:
    """Records of one partition: from `start` on, before `end`."""

    partition: int
    start: int
    end: int
    may_begin_later: bool = False  # where its first record is does not matter, as long as none was read

    def clamp(self, next_offset: int) -> "Span":
        """Cut off what is not there yet."""
        end = min(self.end, next_offset)
        return Span(self.partition, min(self.start, end), end, self.may_begin_later)

    def skip_gone(self, wanted: Range, first_offset: int, next_offset: int) -> "Span":
        """Leave out what was removed. Raises OffsetOutOfRange if that is for the user to decide."""
        begin = min(max(self.start, first_offset), max(self.start, self.end))
        missing = begin - self.start
        if missing and not (self.may_begin_later or wanted.is_gone_left_out):
            text = (
                f"{missing} records of '{wanted.topic}', partition {self.partition}, from offset {self.start} on, "
                f"were removed; with on_gone='earliest' they are left out"
            )
            bounds = {"first_offset": first_offset, "next_offset": next_offset}
            raise OffsetOutOfRange(text, "offset_out_of_range", bounds)
        return Span(self.partition, begin, self.end, self.may_begin_later)
