"""Records as Arrow: the columns of a batch, in the memory in which it was fetched.

A record batch has the layout of Arrow's binary arrays, so values, keys and timestamps are taken as they lie: nothing is
copied, and no Python object is made of a record. Topic, partition, offset and append time are the same for all records
of a batch, or count up: C code fills them in. Records mostly share their headers, and each distinct one is read once.

Small batches are the exception. To make columns of a batch costs as much as a hundred records do, so a run of small
ones goes through Python objects and becomes one record batch: a reader of a topic of single records gets a table of
few chunks, too.

The package is pure, and the only one that needs pyarrow, which `flotilla[arrow]` brings: nothing else loads it before
a table is requested. This module does not fetch (`flotilla.client.tables`) and knows no servers.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from flotilla.client.errors import ConfigInvalid, ExtraMissing
from flotilla.client.positions import TopicPartition
from flotilla.records import (
    BadRecordHeaders,
    Batch,
    BatchHeader,
    BatchInvalid,
    Column,
    decode,
    decode_headers,
    split,
)

try:
    import pyarrow as pa
    import pyarrow.compute as pc
except ImportError as error:
    raise ExtraMissing("pyarrow", "arrow") from error

__all__ = ["SCHEMA"]  # other names are internal

_TIME: Final = pa.timestamp("ms", tz="UTC")
_HEADERS: Final = pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))

SCHEMA: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.dictionary(pa.int32(), pa.string())),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", _TIME),  # that of the producer; null if it gave none
        ("append_time", _TIME),
        ("headers", _HEADERS),  # null if a record has none
    ]
)
"""The columns of a table: those of Kafka's Spark source, and both times apart."""

_VIEWS: Final = {"key", "value", "timestamp"}  # in the memory of the batch
_SMALL: Final = 64  # records; below, Python objects are the cheaper way
_ROWS_BYTES_MAX: Final = 16 << 20  # of small batches that become one record batch


def select(columns: Iterable[str] | None) -> pa.Schema:
    """Choose columns, in the order in which they are named; None is all of them. Raises ConfigInvalid."""
    if columns is None:
        return SCHEMA
    names = [columns] if isinstance(columns, str) else list(columns)
    unknown = [name for name in names if name not in SCHEMA.names]
    if unknown or not names or len(set(names)) < len(names):
        raise ConfigInvalid(f"columns must be some of {', '.join(SCHEMA.names)}, without duplicates")
    return pa.schema([SCHEMA.field(name) for name in names])


def to_record_batch(
    topic_partition: TopicPartition, batch: Batch, start: int = 0, end: int | None = None, schema: pa.Schema = SCHEMA
) -> pa.RecordBatch:
    """Turn a batch into columns; `start` and `end` cut records off, as in a slice.

    If less than half of the batch is wanted, that part is copied, and the batch is released. Raises BadRecordHeaders.
    """
    arrays = [_MAKE[name](topic_partition, batch) for name in schema.names]
    made = pa.RecordBatch.from_arrays(arrays, schema=schema)
    if start or end is not None:
        made = made.slice(start, None if end is None else end - start)
    wanted_bytes = sum(made[name].nbytes for name in _VIEWS.intersection(schema.names))
    return made if 2 * wanted_bytes >= batch.header.body_bytes else _detached(made)


def _detached(made: pa.RecordBatch) -> pa.RecordBatch:
    """Copy the columns that refer to the memory of the batch, so that a few bytes do not keep all of it in memory.

    A caller that selects small values must not keep large keys, which may be much larger than their compressed form.
    """
    pairs = zip(made.schema.names, made.columns, strict=True)
    arrays = [pa.concat_arrays([column]) if name in _VIEWS else column for name, column in pairs]
    return pa.RecordBatch.from_arrays(arrays, schema=made.schema)


def to_record_batches(
    topic_partition: TopicPartition, body: bytes, start: int, end: int, schema: pa.Schema = SCHEMA
) -> Iterator[pa.RecordBatch]:
    """Turn batches that lie one behind the other into columns: the records from offset `start` on, before `end`.

    Raises BatchInvalid, also if the first of these records or any between them is missing or duplicated.
    """
    small: list[_Rows] = []
    small_bytes = 0
    next_offset = None
    for view in split(body):
        header = BatchHeader.from_bytes(view)
        _check_order(header, start, next_offset)
        next_offset = header.next_offset
        first, last = max(0, start - header.base_offset), min(header.count, end - header.base_offset)
        if first >= last:
            continue
        is_small = header.count < _SMALL
        if small and (not is_small or small_bytes + header.body_bytes > _ROWS_BYTES_MAX):
            yield _from_rows(topic_partition, small, schema)
            small, small_bytes = [], 0
        if is_small:
            small.append((decode(view), first, last))
            small_bytes += header.body_bytes
        else:
            yield to_record_batch(topic_partition, decode(view, scan=SCAN), first, last, schema)
    if small:
        yield _from_rows(topic_partition, small, schema)


def _check_order(header: BatchHeader, start: int, next_offset: int | None) -> None:
    if next_offset is None and header.base_offset > start:
        raise BatchInvalid(f"records start at offset {header.base_offset}, requested {start}")
    if next_offset is not None and header.base_offset != next_offset:
        raise BatchInvalid(f"batch at offset {header.base_offset}, but the previous one ends at {next_offset}")


# -- columns ------------------------------------------------------------------------------------------------


def _topic(topic_partition: TopicPartition, batch: Batch) -> pa.Array:
    return _same_topic(topic_partition, len(batch))


def _same_topic(topic_partition: TopicPartition, count: int) -> pa.Array:
    name = topic_partition.topic.encode()
    # From a str, pyarrow would make the same; and load pandas, where it is installed, to see whether that is its own.
    bounds = pa.py_buffer(bytes(4) + len(name).to_bytes(4, "little"))
    names = pa.Array.from_buffers(pa.string(), 1, [None, bounds, pa.py_buffer(name)])
    return pa.DictionaryArray.from_arrays(_same(pa.int32(), bytes(4), count), names)


def _partition(topic_partition: TopicPartition, batch: Batch) -> pa.Array:
    return _same(pa.int32(), topic_partition.partition.to_bytes(4, "little"), len(batch))


def _same(kind: pa.DataType, number: bytes, count: int) -> pa.Array:
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(number * count)])


def _offset(_: TopicPartition, batch: Batch) -> pa.Array:
    return count_up(batch.header.base_offset, len(batch))


def _count_up_by_sum(first: int, count: int) -> pa.Array:
    return pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), count), start=first - 1)


def _count_up_by_range(first: int, count: int) -> pa.Array:
    return pa.arange(first, first + count)


# Newer versions of pyarrow have what takes a tenth of the time.
count_up: Callable[[int, int], Any] = _count_up_by_range if hasattr(pa, "arange") else _count_up_by_sum


def _timestamp(_: TopicPartition, batch: Batch) -> pa.Array:
    if batch.timestamp_column is None:
        return pa.nulls(len(batch), _TIME)
    return pa.Array.from_buffers(_TIME, len(batch), [None, pa.py_buffer(batch.timestamp_column)])


def _append_time(_: TopicPartition, batch: Batch) -> pa.Array:
    return _same(_TIME, batch.header.append_time_ms.to_bytes(8, "little"), len(batch))


def _key(_: TopicPartition, batch: Batch) -> pa.Array:
    return pa.nulls(len(batch), pa.binary()) if batch.key_column is None else _binary(batch.key_column)


def _value(_: TopicPartition, batch: Batch) -> pa.Array:
    return _binary(batch.value_column)


def _binary(column: Column) -> pa.Array:
    validity = None if column.validity is None else pa.py_buffer(column.validity)
    buffers = [validity, pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(pa.binary(), len(column.offsets) - 1, buffers)


def _headers(_: TopicPartition, batch: Batch) -> pa.Array:
    if batch.header_column is None:
        return pa.nulls(len(batch), _HEADERS)
    packed = _binary(batch.header_column).dictionary_encode()
    try:
        distinct = [decode_headers(blob) or None for blob in packed.dictionary.to_pylist()]
    except BadRecordHeaders as error:
        raise BadRecordHeaders(f"headers of a record: {error}") from error
    return pa.array(distinct, _HEADERS).take(packed.indices)


_MAKE: Final[dict[str, Callable[[TopicPartition, Batch], Any]]] = {
    "key": _key,
    "value": _value,
    "topic": _topic,
    "partition": _partition,
    "offset": _offset,
    "timestamp": _timestamp,
    "append_time": _append_time,
    "headers": _headers,
}


# -- small batches ------------------------------------------------------------------------------------------


_Rows = tuple[Batch, int, int]  # records of a batch: from one on, before another

_CELLS: Final[dict[str, Callable[[TopicPartition, Batch], Sequence[Any] | None]]] = {
    "key": lambda _, batch: batch.keys,
    "value": lambda _, batch: batch.values,
    "partition": lambda topic_partition, batch: [topic_partition.partition] * len(batch),
    "offset": lambda _, batch: range(batch.header.base_offset, batch.header.next_offset),
    "timestamp": lambda _, batch: batch.timestamps_ms,
    "append_time": lambda _, batch: [batch.header.append_time_ms] * len(batch),
    "headers": lambda _, batch: batch.headers and [own or None for own in batch.headers],
}


def _from_rows(topic_partition: TopicPartition, small: list[_Rows], schema: pa.Schema) -> pa.RecordBatch:
    count = sum(last - first for _, first, last in small)
    arrays = [
        _same_topic(topic_partition, count)
        if field.name == "topic"
        else pa.array(_row_cells(topic_partition, small, field.name), field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _row_cells(topic_partition: TopicPartition, small: list[_Rows], name: str) -> list[Any]:
    cells: list[Any] = []
    for batch, first, last in small:
        cells += (_CELLS[name](topic_partition, batch) or [None] * len(batch))[first:last]
    return cells


# -- checks -------------------------------------------------------------------------------------------------


class _ArrowScan:
    """Looks at the numbers of a column without making objects of them."""

    def is_non_decreasing(self, offsets: memoryview) -> bool:
        numbers = _numbers(pa.int32(), offsets)
        return bool(pc.all(pc.less_equal(numbers.slice(0, len(offsets) - 1), numbers.slice(1))).as_py())

    def are_nulls_empty(self, offsets: memoryview, nulls: bytes) -> bool:
        items, numbers = len(offsets) - 1, _numbers(pa.int32(), offsets)
        flags = pa.Array.from_buffers(pa.uint8(), items, [None, pa.py_buffer(nulls)])
        lengths = pc.subtract(numbers.slice(1), numbers.slice(0, items))
        return not pc.any(pc.and_(lengths.cast(pa.bool_()), flags.cast(pa.bool_()))).as_py()

    def bounds(self, numbers: memoryview) -> tuple[int, int]:
        found = pc.min_max(_numbers(pa.int64(), numbers)).as_py()
        return found["min"], found["max"]


SCAN: Final = _ArrowScan()


def _numbers(kind: pa.DataType, view: memoryview) -> pa.Array:
    return pa.Array.from_buffers(kind, len(view), [None, pa.py_buffer(view)])
