"""Ranges of records: partitions of a topic, from an offset or a time to another. Pure.

The user's options become a `Range`, and, with the servers' first and next offsets, a `Span` of offsets per partition.
The end is exclusive, so that consecutive ranges neither overlap nor leave gaps. Offsets after the last record are cut
off, as in a slice. Deleted records are never skipped silently: the user decides with `on_gone`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from numbers import Integral
from typing import TypedDict

from flotilla.client.config import OnGone, require, to_ms
from flotilla.client.errors import ConfigInvalid, OffsetOutOfRange
from flotilla.client.positions import EARLIEST, LATEST

Edge = str | int | datetime
Edges = Edge | Mapping[int, Edge]

MAX_BYTES = 2 << 30
_NAMES = {"earliest": EARLIEST, "latest": LATEST}


class RangeOptions(TypedDict, total=False):
    """Options of `read_arrow`, `read_pandas` and `iter_arrow`, for type checkers.

    partitions: partition numbers. Default: all, or those that `start` or `end` names.
    start, end: "earliest", "latest", an offset, a datetime, or one of these per partition, as in {0: 100, 1: 250}. The
        end is exclusive. Default: all records that exist at the start of the call.
    columns: names of columns. Default: key, value, topic, partition, offset, timestamp, append_time, headers.
    on_gone: if records of the range were deleted, "raise", or "earliest" to skip them. Default: "raise".
    max_bytes: a larger table raises TableTooLarge; None: no limit. Does not apply to iter_arrow. Default: 2 GiB.
    """

    partitions: Iterable[int] | None
    start: Edges
    end: Edges
    columns: Iterable[str] | None
    on_gone: str
    max_bytes: int | None


@dataclass(frozen=True)
class Range:
    """A range as the user selects it. An edge is an offset, or the query parameter that resolves to one."""

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
        """Validate the user's options. Raises ConfigInvalid."""
        require(isinstance(topic, str) and bool(topic), "topic", "the name of a topic", topic)
        require(on_gone in {OnGone.RAISE, OnGone.EARLIEST}, "on_gone", "raise or earliest", on_gone)
        require(
            max_bytes is None or (isinstance(max_bytes, int | float) and max_bytes >= 1),
            "max_bytes",
            "at least 1, or None",
            max_bytes,
        )
        named = [given for given in (start, end) if isinstance(given, Mapping)]
        some = next(iter(named), None) if partitions is None else partitions
        wanted = None if some is None else _parse_partitions(some)
        for given in named:
            if set(given) != set(wanted or ()):
                raise ConfigInvalid("start and end must name the same partitions as partitions, and each other")
        left_out = on_gone == OnGone.EARLIEST
        return cls(topic, wanted, _parse_edges(start, "start"), _parse_edges(end, "end"), left_out, max_bytes)

    def edges(self, partition: int) -> tuple[int | str, int | str]:
        """Return the start and the end of a partition."""
        start, end = self.start, self.end
        return (
            start[partition] if isinstance(start, Mapping) else start,
            end[partition] if isinstance(end, Mapping) else end,
        )


def _parse_partitions(given: Iterable[int]) -> tuple[int, ...]:
    found = list(given) if isinstance(given, Iterable) else [None]
    require(all(map(_is_count, found)), "partitions", "numbers of partitions, from 0", given)
    return tuple(sorted(set(map(int, found))))


def _is_count(given: object) -> bool:
    """Whether this is an integer from 0; the integers of NumPy, which pandas frames have, are."""
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
    raise ConfigInvalid(
        f"{name} must be earliest, latest, an offset, a datetime, or one of these per partition, not {edge!r}"
    )


@dataclass(frozen=True, order=True)
class Span:
    """Records of one partition: from `start`, before `end`."""

    partition: int
    start: int
    end: int
    may_begin_later: bool = False  # records deleted before the first read are no error

    def clamp(self, next_offset: int) -> "Span":
        """Cut off offsets that do not exist yet."""
        end = min(self.end, next_offset)
        return Span(self.partition, min(self.start, end), end, self.may_begin_later)

    def skip_gone(self, wanted: Range, first_offset: int, next_offset: int) -> "Span":
        """Skip deleted records. Raises OffsetOutOfRange unless the range allows it."""
        begin = min(max(self.start, first_offset), max(self.start, self.end))
        missing = begin - self.start
        if missing and not (self.may_begin_later or wanted.is_gone_left_out):
            text = (
                f"{wanted.topic}-{self.partition}: {missing} records from offset {self.start} were deleted; "
                "skip them with on_gone='earliest'"
            )
            bounds = {"first_offset": first_offset, "next_offset": next_offset}
            raise OffsetOutOfRange(text, "offset_out_of_range", bounds)
        return Span(self.partition, begin, self.end, self.may_begin_later)
