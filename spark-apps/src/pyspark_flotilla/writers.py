"""Writers: each task appends its rows in order.

Writes are exactly-once: a task that is retried, or repeated after a restart from a checkpoint, sends the same batches
with the same producer id, epoch and sequences, and the partition recognises them. If its rows have another order, e.g.
after a shuffle, a batch differs from the stored one with the same sequence. The partition then rejects it and the task
fails, and no record is stored twice.
"""

import hashlib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
)

from pyspark_flotilla.connection import connect
from pyspark_flotilla.options import OptionInvalid, WriteOptions

if TYPE_CHECKING:
    import pyarrow as pa

_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
_TYPES: dict[str, tuple[type[DataType], ...]] = {
    "value": (BinaryType, StringType),
    "key": (BinaryType, StringType),
    "topic": (StringType,),
    "partition": (IntegerType, LongType, ShortType, ByteType),
    "headers": (ArrayType,),
}
_IGNORED = {"offset", "timestamp", "timestampType"}  # assigned by the partition
_HEADERS = "array<struct<key:string,value:binary>>"


@dataclass
class WriteResult(WriterCommitMessage):
    """Result of a task."""

    records: int


def check_schema(schema: StructType, options: WriteOptions) -> None:
    """Check that rows can be converted to records; raises OptionInvalid."""
    found = {one.name: one.dataType for one in schema.fields if one.name not in _IGNORED}
    unknown = [name for name in found if name not in _TYPES]
    if unknown:
        raise OptionInvalid(f"unknown columns: {', '.join(unknown)}; allowed are {', '.join(_TYPES)}")
    if "value" not in found:
        raise OptionInvalid("column value is missing")
    if options.topic is None and "topic" not in found:
        raise OptionInvalid("no topic: set the option topic, or add a column topic")
    for name, kind in found.items():
        if not isinstance(kind, _TYPES[name]):
            wanted = _HEADERS if name == "headers" else " or ".join(one.typeName() for one in _TYPES[name])
            raise OptionInvalid(f"column {name} has type {kind.simpleString()}; it must be {wanted}")
    if "headers" in found and found["headers"].simpleString() != _HEADERS:
        raise OptionInvalid(f"column headers has type {found['headers'].simpleString()}; it must be {_HEADERS}")


def write(options: WriteOptions, rows: Iterator["pa.RecordBatch"], identity: str, epoch: int) -> WriteResult:
    """Write the rows of a task."""
    from pyspark_flotilla.batching import RowBatcher, Target  # noqa: PLC0415 - imports pyarrow, which only tasks need

    context = TaskContext.get()
    assert context is not None  # noqa: S101 - Spark calls this in tasks
    number = context.partitionId()
    with connect(options.connection) as client:
        appender = client.appender(hashlib.sha256(f"{identity}/{number}".encode()).digest()[:16], epoch)

        def describe(topic: str) -> Target:
            info = client.topics.describe(topic)
            compression = info.compression or "none" if options.compression == "auto" else options.compression
            return Target(len(info.partitions), compression, info.batch_bytes_max)

        # Tasks and micro-batches start at different partitions, so that small ones fill all partitions of a topic.
        first = int.from_bytes(hashlib.sha256(identity.encode()).digest()[:4], "big") + number + epoch
        batcher = RowBatcher(describe, options.topic, first, include_headers=options.include_headers)
        for batch in chain(chain.from_iterable(map(batcher.add, rows)), batcher.finish()):
            topic, partition = batch.partition
            appender.append_columns(
                topic, partition, batch.values, keys=batch.keys, headers=batch.headers, compression=batch.compression
            )
        return WriteResult(batcher.rows)


class BatchWriter(DataSourceArrowWriter):
    """Appends rows. A retried task stores nothing twice. A repeated job does, unless it has a run_id."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        run = uuid.uuid4() if options.run_id is None else f"of the name {options.run_id}"
        self._identity = f"job {run}"  # set on the driver, the same in all tasks

    def write(self, iterator: Iterator["pa.RecordBatch"]) -> WriterCommitMessage:
        """Write the rows of a task."""
        return write(self._options, iterator, self._identity, 0)


class StreamWriter(DataSourceStreamArrowWriter):
    """Appends the rows of micro-batches. A repeated micro-batch stores nothing twice."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator["pa.RecordBatch"]) -> WriterCommitMessage:
        """Write the rows of a task."""
        context = TaskContext.get()
        assert context is not None  # noqa: S101 - Spark calls this in tasks
        query, batch = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
        if query is None or batch is None:
            raise RuntimeError(f"local properties {_QUERY} and {_BATCH} are not set: unsupported version of Spark")
        return write(self._options, iterator, f"query {query}", int(batch))
