"""Writers: each task appends its rows, in their order.

Exactly once, as far as that can be: a task that runs again, because it failed, or because its query begins again from
a checkpoint, sends the same batches as the same producer in the same epoch, and what is stored is recognised. If its
rows come in another order then, which a shuffle before it can do, a batch has the sequence of another one: it is
refused, and the task fails rather than store anything twice.
"""

import hashlib
import logging
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, StringType, StructType

from pyspark_flotilla.connecting import connect
from pyspark_flotilla.options import OptionInvalid, WriteOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from flotilla import Client

logger = logging.getLogger("pyspark_flotilla")

RECORDS_MAX = 10_000  # of a batch
BYTES_MAX = 1 << 20
_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
_TYPES: dict[str, tuple[type[DataType], ...]] = {
    "value": (BinaryType, StringType),
    "key": (BinaryType, StringType),
    "topic": (StringType,),
    "partition": (IntegerType,),
    "headers": (ArrayType,),
}


@dataclass
class Written(WriterCommitMessage):
    """What a task has done."""

    records: int


def check(schema: StructType, options: WriteOptions) -> None:
    """See whether rows can be records; raises OptionInvalid."""
    found = {one.name: one.dataType for one in schema.fields}
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
            wanted = " or ".join(one.typeName() for one in _TYPES[name])
            raise OptionInvalid(f"the column {name} is of type {kind.simpleString()}; it must be {wanted}")


@dataclass
class _Open:
    """A batch that takes records."""

    values: list[bytes] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    headers: list[tuple[tuple[str, bytes], ...]] = field(default_factory=list)
    bytes: int = 0


class Task:
    """Cuts rows into batches, which depend on nothing but the rows and their order, and appends them."""

    def __init__(self, client: "Client", options: WriteOptions, identity: str, epoch: int, number: int) -> None:
        id_ = hashlib.sha256(f"{identity}/{number}".encode()).digest()[:16]
        compression = "none" if options.compression == "auto" else options.compression
        self._appender = client.appender(id_, epoch, compression=compression)
        self._client = client
        self._options = options
        self._number = number
        self._partitions: dict[str, int] = {}
        self._open: dict[tuple[str, int], _Open] = {}
        self._rows = 0

    def write(self, rows: "pa.RecordBatch") -> None:
        """Take rows."""
        from flotilla.client.partitioning import partition_of  # noqa: PLC0415 - in tasks alone

        columns = {name: rows.column(name).to_pylist() for name in rows.schema.names}
        none = [None] * rows.num_rows
        at, keys, topics = (columns.get(name, none) for name in ("partition", "key", "topic"))
        for index, value in enumerate(columns["value"]):
            if value is None:
                raise OptionInvalid("a row has no value: a record has to have one, if only an empty one")
            topic = self._options.topic or topics[index]
            if topic is None:
                raise OptionInvalid("a row names no topic, and the option topic is not given")
            key = _to_bytes(keys[index])
            count = self._count(topic)
            partition = at[index]
            if partition is None:
                partition = partition_of(key, count) if key is not None else (self._number + self._rows // 1000) % count
            self._rows += 1
            self._add((topic, partition), _to_bytes(value), key, _to_headers(columns.get("headers", none)[index]))

    def _count(self, topic: str) -> int:
        if topic not in self._partitions:
            self._partitions[topic] = len(self._client.topics.describe(topic).partitions)
        return self._partitions[topic]

    def _add(self, place: tuple[str, int], value: Any, key: bytes | None, headers: Any) -> None:  # noqa: ANN401
        batch = self._open.setdefault(place, _Open())
        batch.values.append(value)
        batch.keys.append(key)
        batch.headers.append(headers)
        batch.bytes += len(value) + len(key or b"")
        if len(batch.values) >= RECORDS_MAX or batch.bytes >= BYTES_MAX:
            self._send(place)

    def _send(self, place: tuple[str, int]) -> None:
        batch = self._open.pop(place)
        self._appender.append(
            *place,
            batch.values,
            keys=batch.keys if any(key is not None for key in batch.keys) else None,
            headers=batch.headers if any(batch.headers) else None,
        )

    def finish(self) -> int:
        """Send what is left; return how many rows there were."""
        for place in sorted(self._open):
            self._send(place)
        return self._rows


def _to_bytes(value: bytes | str | None) -> Any:  # noqa: ANN401 - None stays None
    return value.encode() if isinstance(value, str) else value


def _to_headers(found: list[dict[str, Any]] | None) -> tuple[tuple[str, bytes], ...]:
    return tuple((one["key"], one["value"] or b"") for one in found or ())


def write(options: WriteOptions, rows: Iterator["pa.RecordBatch"], identity: str, epoch: int) -> Written:
    """Write a task's rows."""
    context = TaskContext.get()
    assert context is not None  # noqa: S101 - Spark calls this in tasks
    with connect(options.where) as client:
        task = Task(client, options, identity, epoch, context.partitionId())
        for batch in rows:
            task.write(batch)
        return Written(task.finish())


class BatchWriter(DataSourceArrowWriter):
    """Appends rows. A task that runs again stores nothing twice; a job that runs again does."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._identity = f"job {uuid.uuid4()}"  # made on the driver, and the same in all of its tasks

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
