"""Where a query begins and ends, and how its records are shared out among tasks. Pure.

Offsets are kept as Kafka's source keeps them: `{"orders": {"0": 23, "1": 42}}`, by topic and partition, the next offset
to be read. A checkpoint has them as JSON, whose keys are texts.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from pyspark_flotilla.options import EARLIEST, LATEST, Edges, Moment, Place

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
    may_begin_later: bool = False  # what was removed before it began is not missed

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
    """Turn edges into offsets. `find` asks where records of a topic from a time on begin, by partition."""
    moments: dict[tuple[str, int], Mapping[int, int]] = {}
    found: dict[Place, int] = {}
    for place, bounds in known.items():
        edge = edges.of(place)
        if isinstance(edge, Moment):
            asked = (place[0], edge.ms)
            moments[asked] = moments.get(asked) or find(*asked)
            found[place] = moments[asked][place[1]]
        elif edge in {EARLIEST, LATEST}:
            found[place] = bounds.first if edge == EARLIEST else bounds.next
        else:
            found[place] = edge
    return found


def limit(start: Mapping[Place, int], latest: Mapping[Place, int], records: int | None) -> dict[Place, int]:
    """Take so many records at most, of each partition in proportion to what it has, and one at least."""
    if records is None:
        return dict(latest)
    waiting = {place: max(0, end - start.get(place, 0)) for place, end in latest.items()}
    total = sum(waiting.values())
    if total <= records:
        return dict(latest)
    return {
        place: min(end, start.get(place, 0) + max(1, math.floor(waiting[place] * records / total)))
        if waiting[place]
        else end
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
    return [Span(span.topic, span.partition, start, end, span.may_begin_later) for start, end in pairwise(edges)]
