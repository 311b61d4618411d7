"""Start and end offsets of a query, and how its records are divided among tasks. Pure.

Offsets have the form of Spark's Kafka source, `{"orders": {"0": 23, "1": 42}}`: by topic and partition, the next offset
to read. A checkpoint stores them as JSON.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from pyspark_flotilla.options import EARLIEST, LATEST, AtTimestamp, OffsetSpecs, OptionInvalid, TopicPartition

Offsets = dict[str, dict[str, int]]


@dataclass(frozen=True)
class PartitionOffsets:
    """First and next offset of a partition."""

    first: int
    next: int


@dataclass(frozen=True, order=True)
class OffsetRange:
    """Records of one partition: from `start`, up to but excluding `end`."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def count(self) -> int:
        """Number of offsets in the range."""
        return self.end - self.start


def to_json(offsets: Mapping[TopicPartition, int]) -> Offsets:
    """Convert offsets to the form that Spark stores."""
    found: Offsets = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def from_json(offsets: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """Convert offsets from the form that Spark stores."""
    return {(topic, int(partition)): at for topic, some in offsets.items() for partition, at in some.items()}


def resolve(
    specs: OffsetSpecs,
    available: Mapping[TopicPartition, PartitionOffsets],
    find: Callable[[str, int], Mapping[int, int]],
) -> dict[TopicPartition, int]:
    """Resolve specs to offsets. `find(topic, ms)` returns the first offset at or after a timestamp, by partition.

    Raises OptionInvalid if the specs lack a partition, or name one that is not read.
    """
    for topic, partition in sorted(set(specs.by_partition) - set(available)):
        raise OptionInvalid(f"offsets name partition {partition} of '{topic}', which is not read")
    by_timestamp: dict[tuple[str, int], Mapping[int, int]] = {}
    found: dict[TopicPartition, int] = {}
    for tp, offsets in available.items():
        spec = specs.of(tp)
        if isinstance(spec, AtTimestamp):
            lookup = (tp[0], spec.ms)
            if lookup not in by_timestamp:
                by_timestamp[lookup] = find(*lookup)
            # Without a record at or after the timestamp it is the end, which may have grown since `available`.
            found[tp] = min(by_timestamp[lookup][tp[1]], offsets.next)
        elif spec in {EARLIEST, LATEST}:
            found[tp] = offsets.first if spec == EARLIEST else offsets.next
        else:
            found[tp] = spec
    return found


def plan_end(
    start: Mapping[TopicPartition, int],
    available: Mapping[TopicPartition, PartitionOffsets],
    stop_at: Mapping[TopicPartition, int] | None,
    records_max: int | None,
) -> dict[TopicPartition, int]:
    """Return the end of the micro-batch that begins at `start`, with at most `records_max` records before `stop_at`.

    A new or recreated partition ends at its first offset, and the next micro-batch reads it. By then the checkpoint has
    its starting offset, so a repeated micro-batch has the same range, and detects removed records. The offset of a
    partition that no longer exists, or that is not in `stop_at`, does not change.
    """
    new = {tp for tp, offsets in available.items() if tp not in start or offsets.next < start[tp]}
    starts = {tp: max(start[tp], offsets.first) for tp, offsets in available.items() if tp not in new}
    ends = {tp: available[tp].next for tp in starts}
    if stop_at is not None:
        new &= stop_at.keys()
        ends = {tp: max(starts[tp], min(at, stop_at[tp])) for tp, at in ends.items() if tp in stop_at}
    return {**start, **{tp: available[tp].first for tp in new}, **limit(starts, ends, records_max)}


def limit(
    start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int], records_max: int | None
) -> dict[TopicPartition, int]:
    """Limit the number of records: one of each partition with records, the others in proportion to its lag.

    No partition starves: with more partitions than `records_max`, the result has one record of each. Every partition in
    `latest` is in `start`.
    """
    lag = {tp: max(0, end - start[tp]) for tp, end in latest.items()}
    nonempty = sum(count > 0 for count in lag.values())
    total = sum(lag.values())
    if records_max is None or total <= records_max:
        return dict(latest)
    share = max(0, records_max - nonempty)
    return {
        tp: start[tp] + 1 + (lag[tp] - 1) * share // max(1, total - nonempty) if lag[tp] else end
        for tp, end in latest.items()
    }


def split(ranges: Iterable[OffsetRange], parts_min: int | None, records_max: int | None) -> list[OffsetRange]:
    """Split ranges into at least `parts_min` parts of at most `records_max` records, in the order of offsets."""
    nonempty = [one for one in ranges if one.count > 0]
    total = sum(one.count for one in nonempty)
    parts: list[OffsetRange] = []
    for one in nonempty:
        share = math.ceil(one.count * parts_min / total) if parts_min is not None and parts_min > len(nonempty) else 1
        needed = max(share, math.ceil(one.count / records_max) if records_max is not None else 1)
        parts += _split_range(one, min(needed, one.count))
    return parts


def _split_range(whole: OffsetRange, parts: int) -> list[OffsetRange]:
    edges = [whole.start + whole.count * at // parts for at in range(parts + 1)]
    return [OffsetRange(whole.topic, whole.partition, start, end) for start, end in pairwise(edges)]
