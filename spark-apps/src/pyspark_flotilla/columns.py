"""Records as the columns of Kafka's source, from those that `flotilla.arrow` makes. No object is made of a record.

Only tasks load pyarrow, and nobody loads pandas: where it is installed, pyarrow does so as soon as a Python object
becomes a scalar or an array, and that would cost each process of Spark's more than a second.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp_ltz, timestampType int"
)
HEADERS = "headers array<struct<key: string, value: binary>>"

_MS_MAX = ((1 << 63) - 1) // 1000  # Spark counts microseconds, in 64 bits
WANTED = ("key", "value", "topic", "partition", "offset", "timestamp", "append_time")


def schema(*, include_headers: bool) -> str:
    """Say what rows have."""
    return f"{SCHEMA}, {HEADERS}" if include_headers else SCHEMA


def wanted(*, include_headers: bool) -> list[str]:
    """Name the columns that have to be fetched for that."""
    return [*WANTED, "headers"] if include_headers else list(WANTED)


def _possible(times: "pa.Array") -> "pa.Array":
    """Leave times out that are beyond what Spark can hold, as of a producer that took nanoseconds for milliseconds."""
    import pyarrow as pa  # noqa: PLC0415 - only tasks need it
    import pyarrow.compute as pc  # noqa: PLC0415

    try:
        times.cast(pa.timestamp("us"))
    except pa.ArrowInvalid:
        numbers = times.cast(pa.int64())
        is_possible = pc.less_equal(pc.abs(pc.max_element_wise(numbers, -_MS_MAX - 1)), _MS_MAX)
        return pc.if_else(is_possible, times, None)
    return times


def convert(batch: "pa.RecordBatch") -> "pa.RecordBatch":
    """Turn a batch of ours into one of Spark's. A record without a time of its producer's has that of its leader."""
    import pyarrow as pa  # noqa: PLC0415 - only tasks need it
    import pyarrow.compute as pc  # noqa: PLC0415

    given = _possible(batch.column("timestamp"))
    columns = {
        "key": batch.column("key"),
        "value": batch.column("value"),
        "topic": batch.column("topic").cast(pa.string()),
        "partition": batch.column("partition"),
        "offset": batch.column("offset"),
        "timestamp": pc.coalesce(given, batch.column("append_time")).cast(pa.timestamp("us", tz="UTC")),
        "timestampType": given.is_null().cast(pa.int32()),  # as Kafka has it: 0 is the producer's, 1 the leader's
    }
    if "headers" in batch.schema.names:
        pair = pa.struct([("key", pa.string()), ("value", pa.binary())])
        columns["headers"] = batch.column("headers").view(pa.list_(pair))  # a cast goes by name
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
