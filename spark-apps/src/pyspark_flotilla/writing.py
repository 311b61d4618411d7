"""Writers: each task appends its rows, in their order.

Exactly once, as far as that can be: a task that runs again, because it failed, or because its query begins again from
a checkpoint, sends the same batches as the same producer in the same epoch, and what is stored is recognised. If its
rows come in another order then, which a shuffle before it can do, a batch has the sequence of another one: it is
refused, and the task fails rather than store anything twice.
"""

import hashlib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
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

from pyspark_flotilla.connecting import connect
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
_PASSED_OVER = {"offset", "timestamp", "timestampType"}  # a record that was read gets others when it is written
_HEADERS = "array<struct<key:string,value:binary>>"


@dataclass
class Written(WriterCommitMessage):
    """What a task has done."""

    records: int


def check(schema: StructType, options: WriteOptions) -> None:
    """See whether rows can be records; raises OptionInvalid."""
    found = {one.name: one.dataType for one in schema.fields if one.name not in _PASSED_OVER}
    unknown = [name for name in found if name not in _TYPES]
    if unknown:
        raise OptionInvalid(
            f"there are columns that are nothing of a record: {', '.join(unknown)}. Records have {', '.join(_TYPES)}"
        )
    if "value" not in found:
        raise OptionInvalid("there is no column 'value': it is what a record is")
    if options.topic is None and "topic" not in found:
        raise OptionInvalid("say where rows go: with the option topic, or a column of that name")
    for name, kind in found.items():
        if not isinstance(kind, _TYPES[name]):
            wanted = _HEADERS if name == "headers" else " or ".join(one.typeName() for one in _TYPES[name])
            raise OptionInvalid(f"the column {name} is of type {kind.simpleString()}; it must be {wanted}")
    if "headers" in found and found["headers"].simpleString() != _HEADERS:
        raise OptionInvalid(f"the column headers is of type {found['headers'].simpleString()}; it must be {_HEADERS}")


def write(options: WriteOptions, rows: Iterator["pa.RecordBatch"], identity: str, epoch: int) -> Written:
    """Write a task's rows."""
    from pyspark_flotilla.cutting import Cutter, Target  # noqa: PLC0415 - in tasks alone, which have pyarrow

    context = TaskContext.get()
    assert context is not None  # noqa: S101 - Spark calls this in tasks
    number = context.partitionId()
    with connect(options.where) as client:
        appender = client.appender(hashlib.sha256(f"{identity}/{number}".encode()).digest()[:16], epoch)

        def describe(topic: str) -> Target:
            info = client.topics.describe(topic)
            wished = info.compression or "none" if options.compression == "auto" else options.compression
            return Target(len(info.partitions), wished, info.batch_bytes_max)

        # Tasks and micro-batches begin with partitions of their own, so that small ones fill all of a topic.
        first = int.from_bytes(hashlib.sha256(identity.encode()).digest()[:4], "big") + number + epoch
        cutter = Cutter(describe, options.topic, first, include_headers=options.include_headers)
        for batch in rows:
            for one in cutter.add(batch):
                appender.append_columns(*one.place, one.values, keys=one.keys, headers=one.headers, compression=one.how)
        for one in cutter.finish():
            appender.append_columns(*one.place, one.values, keys=one.keys, headers=one.headers, compression=one.how)
        return Written(cutter.rows)


class BatchWriter(DataSourceArrowWriter):
    """Appends rows. A task that runs again stores nothing twice; a job that runs again does, unless it has a name."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        run = uuid.uuid4() if options.run_id is None else f"of the name {options.run_id}"
        self._identity = f"job {run}"  # made on the driver, and the same in all of its tasks

    def write(self, iterator: Iterator["pa.RecordBatch"]) -> WriterCommitMessage:
        """Write a task's rows."""
        return write(self._options, iterator, self._identity, 0)


class StreamWriter(DataSourceStreamArrowWriter):
    """Appends the rows of micro-batches. One that runs again stores nothing twice."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator["pa.RecordBatch"]) -> WriterCommitMessage:
        """Write a task's rows."""
        context = TaskContext.get()
        assert context is not None  # noqa: S101 - Spark calls this in tasks
        query, batch = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
        if query is None or batch is None:
            raise RuntimeError("Spark does not tell which micro-batch this is")
        return write(self._options, iterator, f"query {query}", int(batch))
