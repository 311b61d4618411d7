"""Conversion of Arrow batches of the client to the columns of Spark's Kafka source, without an object per record.

Only tasks import pyarrow, and no process imports pandas, which would cost each Spark process more than a second.
pyarrow imports an installed pandas when it converts a Python object to a scalar or an array, so none is converted here.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp_ltz, timestampType int"
)
HEADERS = "headers array<struct<key: string, value: binary>>"

_MS_MAX = ((1 << 63) - 1) // 1000  # Spark has microseconds in 64 bits
_FETCHED = ("key", "value", "topic", "partition", "offset", "timestamp", "append_time")


def schema(*, include_headers: bool) -> str:
    """Return the schema of rows."""
    return f"{SCHEMA}, {HEADERS}" if include_headers else SCHEMA


def fetched_columns(*, include_headers: bool) -> list[str]:
    """Return the columns to fetch with the client."""
    return [*_FETCHED, "headers"] if include_headers else list(_FETCHED)


def _in_range(times: "pa.Array") -> "pa.Array":
    """Replace timestamps out of Spark's range by null, e.g. of a producer that sent nanoseconds as milliseconds."""
    import pyarrow as pa  # noqa: PLC0415 - only tasks need it
    import pyarrow.compute as pc  # noqa: PLC0415

    try:
        times.cast(pa.timestamp("us"))
    except pa.ArrowInvalid:
        numbers = times.cast(pa.int64())
        is_in_range = pc.less_equal(pc.abs(pc.max_element_wise(numbers, -_MS_MAX - 1)), _MS_MAX)
        return pc.if_else(is_in_range, times, None)
    return times


def convert(batch: "pa.RecordBatch") -> "pa.RecordBatch":
    """Convert a batch. A record without a producer timestamp gets the append time of the leader."""
    import pyarrow as pa  # noqa: PLC0415 - only tasks need it
    import pyarrow.compute as pc  # noqa: PLC0415

    given = _in_range(batch.column("timestamp"))
    columns = {
        "key": batch.column("key"),
        "value": batch.column("value"),
        "topic": batch.column("topic").cast(pa.string()),
        "partition": batch.column("partition"),
        "offset": batch.column("offset"),
        "timestamp": pc.coalesce(given, batch.column("append_time")).cast(pa.timestamp("us", tz="UTC")),
        "timestampType": given.is_null().cast(
            pa.int32()
        ),  # as in Kafka: 0 is the producer's timestamp, 1 the append time
    }
    if "headers" in batch.schema.names:
        pair = pa.struct([("key", pa.string()), ("value", pa.binary())])
        columns["headers"] = batch.column("headers").view(pa.list_(pair))  # a cast would match struct fields by name
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
