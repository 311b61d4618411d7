"""Rows become batches, for each partition its own, in Arrow's memory. Pure.

Batches depend on nothing but the rows and their order. How Spark slices its rows does not matter: a task that runs
again may get other slices, and has to make the same batches. Each takes rows as long as they fit, and one at least.

Values, keys and headers stay columns. Python looks at single rows only where their place depends on them: at keys,
because a key says which partition it belongs to, and at columns that name topics or partitions.
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

RECORDS_MAX = 10_000  # of a batch
BYTES_MAX = 1 << 20
ROWS_PER_TURN = 1_000  # rows without a key go to one partition, and then to the next
_ROW_BYTES = 13  # what a row takes besides: three offsets, and a bit
_BATCH_BYTES = HEADER_BYTES + 64  # what a batch takes besides: its header, first offsets and padding

Place = tuple[str, int]


class RowInvalid(ValueError):
    """A row cannot be a record. The text says why."""


@dataclass(frozen=True)
class Target:
    """A topic that is written to."""

    partitions: int
    compression: str = "none"
    batch_bytes_max: int | None = None

    @property
    def bytes_max(self) -> int:
        """How many bytes of rows a batch takes."""
        return max(1, min(BYTES_MAX, (self.batch_bytes_max or BATCH_BYTES_MAX) - _BATCH_BYTES))


@dataclass(frozen=True)
class Cut:
    """A batch, and where it goes."""

    place: Place
    values: Column
    keys: Column | None
    headers: Column | None
    how: str  # it is compressed


class Cutter:
    """Cuts the rows of one task. `first` is the partition with which rows without a key begin."""

    def __init__(
        self, describe: Callable[[str], Target], topic: str | None, first: int, *, include_headers: bool = True
    ) -> None:
        self._describe = describe
        self._topic = topic
        self._first = first
        self._include_headers = include_headers
        self._targets: dict[str, Target] = {}
        self._open: dict[Place, _Open] = {}
        self.rows = 0

    def add(self, rows: pa.RecordBatch) -> Iterator[Cut]:
        """Take rows; yield the batches that are full. Raises RowInvalid, and what `describe` raises."""
        if not rows.num_rows:
            return
        names = rows.schema.names
        values = rows.column("value").cast(pa.binary())
        if values.null_count:
            raise RowInvalid("a row has no value: a record has to have one, if only an empty one")
        keys = rows.column("key").cast(pa.binary()) if "key" in names else None
        if keys is not None and keys.null_count == len(keys):
            keys = None
        headers = _pack_headers(rows.column("headers")) if "headers" in names and self._include_headers else None
        chunk = _Chunk(values, keys, headers)
        topics = None if self._topic is not None or "topic" not in names else rows.column("topic").to_pylist()
        wanted = None if "partition" not in names else rows.column("partition")
        if wanted is not None and wanted.null_count == len(wanted):
            wanted = None
        says_where = topics is not None or wanted is not None
        if not says_where and (keys is None or self._target(self._named(None)).partitions == 1):
            yield from self._add_turns(chunk)
        elif not says_where and keys is not None:
            yield from self._add_by_key(chunk, keys.to_pylist())
        else:
            yield from self._add_apart(chunk, topics, None if wanted is None else wanted.to_pylist())
        self.rows += rows.num_rows

    def finish(self) -> Iterator[Cut]:
        """Yield the batches that are not full."""
        for place in sorted(self._open):
            yield self._open[place].take(place, self._target(place[0]).compression)

    def _add_turns(self, chunk: "_Chunk") -> Iterator[Cut]:
        """Add rows of which none says where it goes: as they lie, a run to each partition in turn."""
        topic = self._named(None)
        at = 0
        while at < len(chunk):
            row = self.rows + at
            count = min(len(chunk) - at, ROWS_PER_TURN - row % ROWS_PER_TURN)
            yield from self._put((topic, self._turn(topic, row)), chunk.slice(at, count))
            at += count

    def _add_by_key(self, chunk: "_Chunk", keys: list[bytes | None]) -> Iterator[Cut]:
        """Add rows of one topic, by their keys alone: what `_add_apart` does, in half of the time."""
        topic = self._named(None)
        count = self._target(topic).partitions
        apart: list[list[int]] = [[] for _ in range(count)]
        for at, key in enumerate(keys):
            apart[self._turn(topic, self.rows + at) if key is None else partition_of(key, count)].append(at)
        for partition, rows in enumerate(apart):
            if rows:
                yield from self._put((topic, partition), chunk.take(rows))

    def _add_apart(
        self, chunk: "_Chunk", topics: list[str | None] | None, partitions: list[int | None] | None
    ) -> Iterator[Cut]:
        """Add rows that say where they go: those for one place are taken together, and stay in order."""
        keys = None if chunk.keys is None else chunk.keys.to_pylist()
        apart: dict[Place, list[int]] = {}
        for at in range(len(chunk)):
            topic = self._named(None if topics is None else topics[at])
            partition = None if partitions is None else partitions[at]
            key = None if keys is None else keys[at]
            if partition is not None:
                count = self._target(topic).partitions
                if not 0 <= partition < count:
                    raise RowInvalid(f"a row is for partition {partition} of '{topic}', which has {count}")
            elif key is not None:
                partition = partition_of(key, self._target(topic).partitions)
            else:
                partition = self._turn(topic, self.rows + at)
            apart.setdefault((topic, partition), []).append(at)
        for place, rows in apart.items():
            yield from self._put(place, chunk.take(rows))

    def _named(self, topic: str | None) -> str:
        found = self._topic or topic
        if found is None:
            raise RowInvalid("a row names no topic, and the option topic is not given")
        return found

    def _turn(self, topic: str, row: int) -> int:
        return (self._first + row // ROWS_PER_TURN) % self._target(topic).partitions

    def _target(self, topic: str) -> Target:
        if topic not in self._targets:
            self._targets[topic] = self._describe(topic)
        return self._targets[topic]

    def _put(self, place: Place, chunk: "_Chunk") -> Iterator[Cut]:
        target = self._target(place[0])
        batch = self._open.setdefault(place, _Open())
        at = 0
        while True:
            count = batch.room(chunk, at, target.bytes_max)
            batch.put(chunk, at, count)
            at += count
            if at == len(chunk):
                return
            yield batch.take(place, target.compression)


# -- rows in Arrow's memory ---------------------------------------------------------------------------------


class _Chunk:
    """Some rows: values, and keys and packed headers if there are any."""

    def __init__(self, values: pa.Array, keys: pa.Array | None, headers: pa.Array | None) -> None:
        self.values = values
        self.keys = keys
        self.headers = headers
        self._bounds = [_bounds(one) for one in (values, keys, headers) if one is not None]

    def __len__(self) -> int:
        return len(self.values)

    def size(self, start: int, count: int) -> int:
        """Tell how many bytes some rows take."""
        end = start + count
        return sum(bounds[end] - bounds[start] for bounds in self._bounds) + _ROW_BYTES * count

    def slice(self, start: int, count: int) -> "_Chunk":
        return self._each(lambda one: one.slice(start, count))

    def take(self, rows: list[int]) -> "_Chunk":
        if len(rows) == len(self):
            return self
        numbers = _numbers(rows)
        return self._each(lambda one: one.take(numbers))

    def _each(self, change: Callable[[pa.Array], pa.Array]) -> "_Chunk":
        return _Chunk(*(None if one is None else change(one) for one in (self.values, self.keys, self.headers)))


@dataclass
class _Open:
    """A batch that takes rows."""

    chunks: list[_Chunk] = field(default_factory=list)
    count: int = 0
    bytes: int = 0

    def room(self, chunk: _Chunk, at: int, bytes_max: int) -> int:
        """Tell how many rows of a chunk fit; one always does if there is none."""
        most = min(len(chunk) - at, RECORDS_MAX - self.count)
        free = bytes_max - self.bytes
        fitting = bisect_right(range(1, most + 1), free, key=lambda count: chunk.size(at, count))
        return max(fitting, 0 if self.count else 1)

    def put(self, chunk: _Chunk, at: int, count: int) -> None:
        if count:
            self.chunks.append(chunk.slice(at, count))
            self.count += count
            self.bytes += chunk.size(at, count)

    def take(self, place: Place, how: str) -> Cut:
        """Make a batch of what there is, and begin anew."""
        chunks, self.chunks, self.count, self.bytes = self.chunks, [], 0, 0
        values = pa.concat_arrays([one.values for one in chunks])
        keys = _joined([one.keys for one in chunks], [len(one) for one in chunks])
        headers = _joined([one.headers for one in chunks], [len(one) for one in chunks])
        if keys is not None and keys.null_count == len(keys):
            keys = None
        packed = None if headers is None else _column(headers)
        return Cut(
            place,
            _column(values),
            None if keys is None else _column(keys),
            packed if packed and packed.data else None,
            how,
        )


def _joined(arrays: list[pa.Array | None], counts: list[int]) -> pa.Array | None:
    if all(one is None for one in arrays):
        return None
    pairs = zip(arrays, counts, strict=True)
    return pa.concat_arrays([pa.nulls(count, pa.binary()) if one is None else one for one, count in pairs])


def _column(array: pa.Array) -> Column:
    """Lay an array out as record batches have it: from offset 0 on, nulls empty, and no bits behind the last."""
    count = len(array)
    validity = None
    if array.null_count:
        bits = bytearray(memoryview(array.is_valid().buffers()[1])[: -(-count // 8)])
        if count % 8:
            bits[-1] &= (1 << count % 8) - 1
        validity = memoryview(bits)
        array = pc.coalesce(array, _EMPTY)
    bounds = _bounds(array)
    first, last = bounds[0], bounds[count]
    if first:
        bounds = memoryview(pc.subtract(_int32(bounds), _int32(bounds)[0]).buffers()[1]).cast("i")
    data = memoryview(array.buffers()[2] or b"")[first:last]
    return Column(bounds[: count + 1], data, validity)


def _bounds(array: pa.Array) -> memoryview:
    """Show where the items of a binary array begin and end in its data."""
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
    """Make an array. `pa.array` would make the same, and load pandas to see whether these are its own."""
    offsets = array("i", accumulate(map(len, items), initial=0))
    return pa.Array.from_buffers(pa.binary(), len(items), [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(items))])


_EMPTY = _binary([b""])[0]


def _pack_headers(column: pa.Array) -> pa.Array | None:
    """Pack the headers of each row; each different one once."""
    if column.null_count == len(column):
        return None
    known: dict[Any, bytes] = {(): b""}
    blobs = []
    for row in column.to_pylist():
        if any(one is None or one["key"] is None for one in row or ()):
            raise RowInvalid("a row has a header without a name: a header has a name, and a value that may be empty")
        pairs = tuple((one["key"], one["value"] or b"") for one in row or ())
        if pairs not in known:
            known[pairs] = encode_headers(pairs)
        blobs.append(known[pairs])
    return _binary(blobs)
