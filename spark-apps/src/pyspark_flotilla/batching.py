"""Rows to record batches, per partition, in Arrow memory. Pure.

Batches depend only on the rows and their order, not on how Spark slices them: a retried task can get other slices, and
must build the same batches. A batch takes rows as long as they fit, and at least one.

Values, keys and headers stay columns. Python handles single rows only to find their partition: by key, or by the
columns topic and partition.
"""

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from flotilla.client.partitioning import partition_of
from flotilla.records import BATCH_BYTES_MAX, HEADER_BYTES, Column, encode_headers

RECORDS_MAX = 10_000  # in a batch
BYTES_MAX = 1 << 20
ROWS_PER_PARTITION = 1_000  # consecutive rows without a key that go to the same partition
_ROW_BYTES = 13  # overhead of a row: three offsets and a validity bit
_BATCH_BYTES = HEADER_BYTES + 64  # overhead of a batch: header, first offsets and padding

TopicPartition = tuple[str, int]


class RowInvalid(ValueError):
    """A row cannot be converted to a record."""


@dataclass(frozen=True)
class Target:
    """Settings of a topic to write to."""

    partitions: int
    compression: str = "none"
    batch_bytes_max: int | None = None

    @property
    def bytes_max(self) -> int:
        """Maximum size of the rows of a batch."""
        return max(1, min(BYTES_MAX, (self.batch_bytes_max or BATCH_BYTES_MAX) - _BATCH_BYTES))


@dataclass(frozen=True)
class Batch:
    """Records for one partition, as columns."""

    partition: TopicPartition
    values: Column
    keys: Column | None
    headers: Column | None
    compression: str


class RowBatcher:
    """Batches the rows of one task. Rows without a key start at the partition `first`."""

    def __init__(
        self, describe: Callable[[str], Target], topic: str | None, first: int, *, include_headers: bool = True
    ) -> None:
        self._describe = describe
        self._topic = topic
        self._first = first
        self._include_headers = include_headers
        self._targets: dict[str, Target] = {}
        self._open: dict[TopicPartition, _OpenBatch] = {}
        self.rows = 0

    def add(self, rows: pa.RecordBatch) -> Iterator[Batch]:
        """Add rows; yield full batches. Raises RowInvalid, and errors of `describe`."""
        if not rows.num_rows:
            return
        names = rows.schema.names
        values = rows.column("value").cast(pa.binary())
        if values.null_count:
            raise RowInvalid("column value is null in a row: a record needs a value, which can be empty")
        keys = rows.column("key").cast(pa.binary()) if "key" in names else None
        if keys is not None and keys.null_count == len(keys):
            keys = None
        headers = _pack_headers(rows.column("headers")) if "headers" in names and self._include_headers else None
        chunk = _Rows(values, keys, headers)
        topics = None if self._topic is not None or "topic" not in names else rows.column("topic").to_pylist()
        partitions = None if "partition" not in names else rows.column("partition")
        if partitions is not None and partitions.null_count == len(partitions):
            partitions = None
        has_target = topics is not None or partitions is not None
        if not has_target and (keys is None or self._target(self._topic_of(None)).partitions == 1):
            yield from self._add_round_robin(chunk)
        elif not has_target and keys is not None:
            yield from self._add_by_key(chunk, keys.to_pylist())
        else:
            yield from self._add_by_row(chunk, topics, None if partitions is None else partitions.to_pylist())
        self.rows += rows.num_rows

    def finish(self) -> Iterator[Batch]:
        """Yield the remaining batches."""
        for tp in sorted(self._open):
            yield self._open[tp].take(tp, self._target(tp[0]).compression)

    def _add_round_robin(self, chunk: "_Rows") -> Iterator[Batch]:
        """Add rows without a key, topic or partition: round-robin, in runs of consecutive rows."""
        topic = self._topic_of(None)
        at = 0
        while at < len(chunk):
            row = self.rows + at
            count = min(len(chunk) - at, ROWS_PER_PARTITION - row % ROWS_PER_PARTITION)
            yield from self._put((topic, self._round_robin(topic, row)), chunk.slice(at, count))
            at += count

    def _add_by_key(self, chunk: "_Rows", keys: list[bytes | None]) -> Iterator[Batch]:
        """Add rows of one topic by key: same result as `_add_by_row` in half the time."""
        topic = self._topic_of(None)
        count = self._target(topic).partitions
        by_partition: list[list[int]] = [[] for _ in range(count)]
        for at, key in enumerate(keys):
            by_partition[self._round_robin(topic, self.rows + at) if key is None else partition_of(key, count)].append(
                at
            )
        for partition, rows in enumerate(by_partition):
            if rows:
                yield from self._put((topic, partition), chunk.take(rows))

    def _add_by_row(
        self, chunk: "_Rows", topics: list[str | None] | None, partitions: list[int | None] | None
    ) -> Iterator[Batch]:
        """Add rows with a topic or a partition of their own, in order within each partition."""
        keys = None if chunk.keys is None else chunk.keys.to_pylist()
        by_partition: dict[TopicPartition, list[int]] = {}
        for at in range(len(chunk)):
            topic = self._topic_of(None if topics is None else topics[at])
            partition = None if partitions is None else partitions[at]
            key = None if keys is None else keys[at]
            if partition is not None:
                count = self._target(topic).partitions
                if not 0 <= partition < count:
                    raise RowInvalid(
                        f"column partition is {partition} in a row, but topic '{topic}' has {count} partitions"
                    )
            elif key is not None:
                partition = partition_of(key, self._target(topic).partitions)
            else:
                partition = self._round_robin(topic, self.rows + at)
            by_partition.setdefault((topic, partition), []).append(at)
        for tp, rows in by_partition.items():
            yield from self._put(tp, chunk.take(rows))

    def _topic_of(self, topic: str | None) -> str:
        found = self._topic or topic
        if found is None:
            raise RowInvalid("column topic is null in a row, and the option topic is not set")
        return found

    def _round_robin(self, topic: str, row: int) -> int:
        return (self._first + row // ROWS_PER_PARTITION) % self._target(topic).partitions

    def _target(self, topic: str) -> Target:
        if topic not in self._targets:
            self._targets[topic] = self._describe(topic)
        return self._targets[topic]

    def _put(self, tp: TopicPartition, chunk: "_Rows") -> Iterator[Batch]:
        target = self._target(tp[0])
        batch = self._open.setdefault(tp, _OpenBatch())
        at = 0
        while True:
            count = batch.room(chunk, at, target.bytes_max)
            batch.put(chunk, at, count)
            at += count
            if at == len(chunk):
                return
            yield batch.take(tp, target.compression)


# -- rows in Arrow memory -----------------------------------------------------------------------------------


class _Rows:
    """Consecutive rows: values, and keys and encoded headers if there are any."""

    def __init__(self, values: pa.Array, keys: pa.Array | None, headers: pa.Array | None) -> None:
        self.values = values
        self.keys = keys
        self.headers = headers
        self._offsets_of = [_offsets_of(one) for one in (values, keys, headers) if one is not None]

    def __len__(self) -> int:
        return len(self.values)

    def size(self, start: int, count: int) -> int:
        """Return the size of rows in bytes, with overhead."""
        end = start + count
        return sum(bounds[end] - bounds[start] for bounds in self._offsets_of) + _ROW_BYTES * count

    def slice(self, start: int, count: int) -> "_Rows":
        return self._each(lambda one: one.slice(start, count))

    def take(self, rows: list[int]) -> "_Rows":
        if len(rows) == len(self):
            return self
        numbers = _numbers(rows)
        return self._each(lambda one: one.take(numbers))

    def _each(self, change: Callable[[pa.Array], pa.Array]) -> "_Rows":
        return _Rows(*(None if one is None else change(one) for one in (self.values, self.keys, self.headers)))


@dataclass
class _OpenBatch:
    """A batch that is not full."""

    chunks: list[_Rows] = field(default_factory=list)
    count: int = 0
    bytes: int = 0

    def room(self, chunk: _Rows, at: int, bytes_max: int) -> int:
        """Return how many rows of a chunk fit; at least one if the batch is empty."""
        most = min(len(chunk) - at, RECORDS_MAX - self.count)
        free = bytes_max - self.bytes
        count_max = bisect_right(range(1, most + 1), free, key=lambda count: chunk.size(at, count))
        return max(count_max, 0 if self.count else 1)

    def put(self, chunk: _Rows, at: int, count: int) -> None:
        if count:
            self.chunks.append(chunk.slice(at, count))
            self.count += count
            self.bytes += chunk.size(at, count)

    def take(self, tp: TopicPartition, compression: str) -> Batch:
        """Return the batch and start a new one."""
        chunks, self.chunks, self.count, self.bytes = self.chunks, [], 0, 0
        values = pa.concat_arrays([one.values for one in chunks])
        keys = _joined([one.keys for one in chunks], [len(one) for one in chunks])
        headers = _joined([one.headers for one in chunks], [len(one) for one in chunks])
        if keys is not None and keys.null_count == len(keys):
            keys = None
        packed = None if headers is None else _column(headers)
        return Batch(
            tp,
            _column(values),
            None if keys is None else _column(keys),
            packed if packed and packed.data else None,
            compression,
        )


def _joined(arrays: list[pa.Array | None], counts: list[int]) -> pa.Array | None:
    if all(one is None for one in arrays):
        return None
    pairs = zip(arrays, counts, strict=True)
    return pa.concat_arrays([pa.nulls(count, pa.binary()) if one is None else one for one, count in pairs])


def _column(array: pa.Array) -> Column:
    """Convert an array to the layout of record batches: offsets start at 0, nulls are empty, unused bits are 0."""
    count = len(array)
    validity = None
    if array.null_count:
        bits = bytearray(memoryview(array.is_valid().buffers()[1])[: -(-count // 8)])
        if count % 8:
            bits[-1] &= (1 << count % 8) - 1
        validity = memoryview(bits)
        array = pc.coalesce(array, _EMPTY)
    bounds = _offsets_of(array)
    first, last = bounds[0], bounds[count]
    if first:
        bounds = memoryview(pc.subtract(_int32(bounds), _int32(bounds)[0]).buffers()[1]).cast("i")
    data = memoryview(array.buffers()[2] or b"")[first:last]
    return Column(bounds[: count + 1], data, validity)


def _offsets_of(array: pa.Array) -> memoryview:
    """Return the offsets of a binary array."""
    offsets = array.buffers()[1]
    if offsets is None or not offsets.size:
        return memoryview(bytes(4)).cast("i")
    view = memoryview(offsets)[: offsets.size // 4 * 4].cast("b").cast("i")
    return view[array.offset : array.offset + len(array) + 1]


def _int32(view: memoryview) -> pa.Array:
    return pa.Array.from_buffers(pa.int32(), len(view), [None, pa.py_buffer(view)])


def _numbers(rows: list[int]) -> pa.Array:
    return pa.Array.from_buffers(pa.int32(), len(rows), [None, pa.py_buffer(array("i", rows))])


def _binary(items: list[bytes]) -> pa.Array:
    """Build a binary array. `pa.array` would import pandas."""
    offsets = array("i", accumulate(map(len, items), initial=0))
    return pa.Array.from_buffers(pa.binary(), len(items), [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(items))])


_EMPTY = _binary([b""])[0]


def _pack_headers(column: pa.Array) -> pa.Array | None:
    """Encode the headers of each row; equal headers are encoded once."""
    if column.null_count == len(column):
        return None
    known: dict[Any, bytes] = {(): b""}
    blobs = []
    for row in column.to_pylist():
        if any(one is None or one["key"] is None for one in row or ()):
            raise RowInvalid("a row has a header without a key: header keys must not be null")
        pairs = tuple((one["key"], one["value"] or b"") for one in row or ())
        if pairs not in known:
            known[pairs] = encode_headers(pairs)
        blobs.append(known[pairs])
    return _binary(blobs)
