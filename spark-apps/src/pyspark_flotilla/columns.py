"""Records as the columns of Kafka's source, from those that `flotilla.arrow` makes. No object is made of a record."""

import pyarrow as pa
import pyarrow.compute as pc

SCHEMA = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
HEADERS = "headers array<struct<key: string, value: binary>>"

WANTED = ("key", "value", "topic", "partition", "offset", "timestamp", "append_time")

_TIME = pa.timestamp("us", tz="UTC")
_CREATED, _APPENDED = pa.scalar(0, pa.int32()), pa.scalar(1, pa.int32())
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def schema(*, include_headers: bool) -> str:
    """Say what rows have."""
    return f"{SCHEMA}, {HEADERS}" if include_headers else SCHEMA


def wanted(*, include_headers: bool) -> list[str]:
    """Name the columns that have to be fetched for that."""
    return [*WANTED, "headers"] if include_headers else list(WANTED)


def convert(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Turn a batch of ours into one of Spark's. A record without a time of its producer's has that of its leader."""
    given = batch.column("timestamp")
    columns = {
        "key": batch.column("key"),
        "value": batch.column("value"),
        "topic": batch.column("topic").cast(pa.string()),
        "partition": batch.column("partition"),
        "offset": batch.column("offset"),
        "timestamp": pc.coalesce(given, batch.column("append_time")).cast(_TIME),
        "timestampType": pc.if_else(given.is_valid(), _CREATED, _APPENDED),
    }
    if "headers" in batch.schema.names:
        columns["headers"] = batch.column("headers").cast(_HEADERS)
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
