"""The records of one `send_many` call, grouped by partition.

Sizes are summed up once, in C loops, so that the number of records that fit is a binary search and a slice: Python code
runs per record only for records with keys.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeVar

from flotilla.client.deliveries import Deliveries, Part
from flotilla.client.errors import RecordInvalid, TopicMissing
from flotilla.client.partitioning import partition_of
from flotilla.client.producer_batches import (
    BATCH_OVERHEAD_BYTES,
    RECORD_OVERHEAD_BYTES,
    ProducerBatch,
    TopicQueues,
    check_bytes,
    check_time,
    measure_headers,
)
from flotilla.records import Headers

T = TypeVar("T")

_add_overhead = RECORD_OVERHEAD_BYTES.__add__


@dataclass(slots=True, eq=False)
class PartitionRecords:
    """Records for one partition; None is the sticky partition of the topic."""

    partition: int | None
    positions: Sequence[int]
    values: list[bytes]
    keys: list[bytes | None] | None
    headers: list[Headers] | None
    timestamps_ms: list[int] | None
    ends: list[int]  # ends[n]: size of the first n records
    at: int = 0  # index of the next record to move into a batch

    @property
    def next_bytes(self) -> int:
        """Size of the next record."""
        return self.ends[self.at + 1] - self.ends[self.at]

    def count_fitting(self, room: int) -> int:
        """Return how many of the next records fit."""
        return bisect_right(self.ends, self.ends[self.at] + room) - 1 - self.at

    def move(self, batch: ProducerBatch, count: int) -> int:
        """Move the next records into a batch, and return their size."""
        start, end = self.at, self.at + count
        self.at = end
        batch.extend(
            self.values[start:end],
            None if self.keys is None else self.keys[start:end],
            None if self.headers is None else self.headers[start:end],
            None if self.timestamps_ms is None else self.timestamps_ms[start:end],
        )
        size = self.ends[end] - self.ends[start]
        batch.bytes += size
        return size


class BulkSend:
    """The records of one call. Raises RecordInvalid before any of them is accepted."""

    def __init__(
        self,
        values: Iterable[bytes],
        keys: Iterable[bytes | None] | None = None,
        headers: Iterable[Headers] | None = None,
        timestamps_ms: Iterable[int] | None = None,
        partition: int | None = None,
    ) -> None:
        self._values = _all_bytes(values, "a value")
        self._keys = None if keys is None else _keys(keys)
        self._headers = None if headers is None else list(headers)
        self._times = None if timestamps_ms is None else list(timestamps_ms)
        self._partition = partition
        self._topic: TopicQueues | None = None
        self._parts: list[Part] = []
        self.groups: list[PartitionRecords] = []  # groups with records that are not accepted yet
        self._sizes = self._measure()

    def _measure(self) -> list[int]:
        columns = {"keys": self._keys, "headers": self._headers, "timestamps_ms": self._times}
        for name, column in columns.items():
            if column is not None and len(column) != len(self._values):
                raise RecordInvalid(f"{name} has {len(column)} items for {len(self._values)} values")
        for time in self._times or ():
            check_time(time)
        sizes = list(map(_add_overhead, map(len, self._values)))
        if self._keys is not None:
            sizes = [size + len(key or b"") for size, key in zip(sizes, self._keys, strict=True)]
        if self._headers is not None:
            sizes = [size + measure_headers(own) for size, own in zip(sizes, self._headers, strict=True)]
        return sizes

    def plan(self, topic: TopicQueues) -> None:
        """Group the records by partition, once. Raises RecordInvalid; TopicMissing if the topic was recreated."""
        if self._topic is topic:
            return
        if self._topic is not None:
            raise TopicMissing(f"topic '{topic.info.name}' was deleted and created again", "unknown_partition", {})
        self._check_large(topic)
        self.groups = [self._group(partition, at) for partition, at in self._assign(topic)]
        self._topic = topic

    def _check_large(self, topic: TopicQueues) -> None:
        room = topic.bytes_limit - BATCH_OVERHEAD_BYTES
        if max(self._sizes, default=0) <= room:
            return
        for at, size in enumerate(self._sizes):
            if size > room:
                topic.check_alone(
                    self._values[at],
                    None if self._keys is None else self._keys[at],
                    () if self._headers is None else self._headers[at],
                    None if self._times is None else self._times[at],
                )

    def _assign(self, topic: TopicQueues) -> list[tuple[int | None, Sequence[int]]]:
        if self._partition is not None:
            return [(topic.queue(self._partition).index, range(len(self._values)))] if self._values else []
        if self._keys is None:
            return [(None, range(len(self._values)))] if self._values else []
        count = len(topic.queues)
        indexes: dict[int | None, list[int]] = {}
        for at, key in enumerate(self._keys):
            # Records without a key stay in one partition: after a move, they could overtake others of this call.
            indexes.setdefault(topic.sticky_partition if key is None else partition_of(key, count), []).append(at)
        return list(indexes.items())

    def _group(self, partition: int | None, at: Sequence[int]) -> PartitionRecords:
        return PartitionRecords(
            partition,
            at,
            _pick(self._values, at),
            None if self._keys is None else _pick(self._keys, at),
            None if self._headers is None else _pick(self._headers, at),
            None if self._times is None else _pick(self._times, at),
            list(accumulate(_pick(self._sizes, at), initial=0)),
        )

    def note_added(self, batch: ProducerBatch, group: PartitionRecords, count: int) -> None:
        """Note the batch of the last `count` records that were moved out of a group."""
        positions = group.positions[group.at - count : group.at]
        self._parts.append(Part(batch.outcome, len(batch) - count, positions))
        if group.at == len(group.values):
            self.groups.pop(0)

    @property
    def deliveries(self) -> Deliveries:
        """The deliveries of the accepted records."""
        return Deliveries(len(self._values), self._parts)


def _pick(items: list[T], at: Sequence[int]) -> list[T]:
    return items if isinstance(at, range) else [items[one] for one in at]


def _all_bytes(given: Iterable[object], name: str) -> list[bytes]:
    if isinstance(given, str | bytes | bytearray | memoryview):
        raise RecordInvalid(f"values must be an iterable of values, not {type(given).__name__}")
    items = list(given)
    if set(map(type, items)) <= {bytes}:
        return items  # type: ignore[return-value]  # checked above
    return [check_bytes(item, name) for item in items]


def _keys(given: Iterable[bytes | None]) -> list[bytes | None]:
    items = list(given)
    if set(map(type, items)) <= {bytes, type(None)}:
        return items
    return [None if item is None else check_bytes(item, "a key") for item in items]
