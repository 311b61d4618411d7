"""Where a query begins and ends, and how its records are shared out among tasks. Pure.

Offsets are kept as Kafka's source keeps them: `{"orders": {"0": 23, "1": 42}}`, by topic and partition, the next offset
to be read. A checkpoint has them as JSON, whose keys are texts.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from pyspark_flotilla.options import EARLIEST, LATEST, Edges, Moment, OptionInvalid, Place

Offsets = dict[str, dict[str, int]]


@dataclass(frozen=True)
class Bounds:
    """Where a partition begins and ends now."""

    first: int
    next: int


@dataclass(frozen=True, order=True)
class Span:
    """Records of one partition: from `start` on, before `end`."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def count(self) -> int:
        """How many records these are."""
        return self.end - self.start


def to_json(offsets: Mapping[Place, int]) -> Offsets:
    """Write offsets down."""
    found: Offsets = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def from_json(offsets: Mapping[str, Mapping[str, int]]) -> dict[Place, int]:
    """Read offsets."""
    return {(topic, int(partition)): at for topic, some in offsets.items() for partition, at in some.items()}


def resolve(
    edges: Edges, known: Mapping[Place, Bounds], find: Callable[[str, int], Mapping[int, int]]
) -> dict[Place, int]:
    """Turn edges into offsets. `find` asks where records of a topic from a time on begin, by partition.

    Raises OptionInvalid if a partition has no edge, or one is named that is not read.
    """
    for topic, partition in sorted(set(edges.named) - set(known)):
        raise OptionInvalid(f"offsets are given for partition {partition} of '{topic}', which is not read")
    moments: dict[tuple[str, int], Mapping[int, int]] = {}
    found: dict[Place, int] = {}
    for place, bounds in known.items():
        edge = edges.of(place)
        if isinstance(edge, Moment):
            asked = (place[0], edge.ms)
            if asked not in moments:
                moments[asked] = find(*asked)
            # Where no record is as late as that, it is the end, which may have moved on since it was asked for.
            found[place] = min(moments[asked][place[1]], bounds.next)
        elif edge in {EARLIEST, LATEST}:
            found[place] = bounds.first if edge == EARLIEST else bounds.next
        else:
            found[place] = edge
    return found


def advance(
    begun: Mapping[Place, int], known: Mapping[Place, Bounds], until: Mapping[Place, int] | None, most: int | None
) -> dict[Place, int]:
    """Tell where a micro-batch ends that begins at `begun`, has `most` records, and nothing from `until` on.

    A partition that is new, or was made anew, ends where it begins: it is read from there by the next one, whose start
    is written down by then. So a micro-batch that is run again is the same, and misses what was removed meanwhile. One
    that is not there any more stays where it is, and so does one that came after `until` was noted.
    """
    new = {place for place, bounds in known.items() if place not in begun or bounds.next < begun[place]}
    begins = {place: max(begun[place], bounds.first) for place, bounds in known.items() if place not in new}
    ends = {place: known[place].next for place in begins}
    if until is not None:
        new &= until.keys()
        ends = {place: max(begins[place], min(at, until[place])) for place, at in ends.items() if place in until}
    return {**begun, **{place: known[place].first for place in new}, **limit(begins, ends, most)}


def limit(start: Mapping[Place, int], latest: Mapping[Place, int], records: int | None) -> dict[Place, int]:
    """Take so many records at most: one of each partition that has any, and beyond that in proportion to what it has.

    There are more only if there are more partitions than that, so that none of them starves. Every partition that has
    an end has a start.
    """
    waiting = {place: max(0, end - start[place]) for place, end in latest.items()}
    full = sum(count > 0 for count in waiting.values())
    total = sum(waiting.values())
    if records is None or total <= records:
        return dict(latest)
    share = max(0, records - full)
    return {
        place: start[place] + 1 + (waiting[place] - 1) * share // max(1, total - full) if waiting[place] else end
        for place, end in latest.items()
    }


def split(spans: Iterable[Span], least: int | None, most: int | None) -> list[Span]:
    """Share spans out: into `least` parts or more, of `most` records or fewer. Parts of a partition stay in order."""
    full = [one for one in spans if one.count > 0]
    total = sum(one.count for one in full)
    parts: list[Span] = []
    for one in full:
        share = math.ceil(one.count * least / total) if least is not None and least > len(full) else 1
        needed = max(share, math.ceil(one.count / most) if most is not None else 1)
        parts += _cut(one, min(needed, one.count))
    return parts


def _cut(span: Span, parts: int) -> list[Span]:
    edges = [span.start + span.count * at // parts for at in range(parts + 1)]
    return [Span(span.topic, span.partition, start, end) for start, end in pairwise(edges)]
