"""Columns of Spark's Kafka source, made without pandas."""

import subprocess
import sys

import pyarrow as pa

from flotilla.arrow import SCHEMA, to_record_batch
from flotilla.client.positions import TopicPartition
from flotilla.records import decode, encode
from pyspark_flotilla.columns import convert

HEADERS = [(("trace", b"1"), ("empty", b"")), (), (("trace", b"2"),)]


def test_conversion_keeps_header_names_and_slices() -> None:
    batch = decode(encode([b"a", b"b", b"c"], headers=HEADERS))
    made = convert(to_record_batch(TopicPartition("t", 4), batch, 1, schema=SCHEMA))
    made.validate(full=True)
    assert made.column("headers").to_pylist() == [None, [{"key": "trace", "value": b"2"}]]
    assert made.column("value").to_pylist() == [b"b", b"c"]
    assert made.column("offset").type == pa.int64()


def test_timestamp_is_the_producers_or_else_the_append_time() -> None:
    plain = convert(to_record_batch(TopicPartition("t", 0), decode(encode([b"a"]))))
    timed = convert(to_record_batch(TopicPartition("t", 0), decode(encode([b"a"], timestamps_ms=[5]))))
    assert plain.column("timestampType").to_pylist() == [1]
    assert timed.column("timestampType").to_pylist() == [0]
    assert timed.column("timestamp").cast(pa.int64()).to_pylist() == [5_000]
    assert plain.schema == timed.schema


def test_timestamp_out_of_sparks_range_is_replaced_by_the_append_time() -> None:
    """A producer that sends nanoseconds as milliseconds does not make the topic unreadable."""
    most, least = (1 << 63) - 1, -(1 << 63)
    given = [1_700_000_000_000_000_000, 5, most, least, most // 1000, -(most // 1000), -(most // 1000) - 2]
    made = convert(to_record_batch(TopicPartition("t", 0), decode(encode([b"a"] * len(given), timestamps_ms=given))))
    assert made.column("timestampType").to_pylist() == [1, 0, 1, 1, 0, 0, 1]
    times = made.column("timestamp").cast(pa.int64()).to_pylist()
    assert [times[at] for at in (1, 4, 5)] == [5_000, most // 1000 * 1000, -(most // 1000) * 1000]


def test_driver_and_tasks_do_not_import_pandas() -> None:
    """The import takes each Spark process longer than everything else together."""
    script = """
import sys
import pyspark_flotilla
assert "pyarrow" not in sys.modules and "flotilla.client" not in sys.modules
from flotilla.arrow import to_record_batch
from flotilla.client.positions import TopicPartition
from flotilla.records import decode, encode
from pyspark_flotilla.columns import convert
from pyspark_flotilla.batching import RowBatcher, Target
rows = convert(to_record_batch(TopicPartition("t", 0), decode(encode([b"a"] * 2, keys=[b"k", None]))))
batcher = RowBatcher(lambda _: Target(2), "t", 0)
assert not list(batcher.add(rows.select(["key", "value"]))) and len(list(batcher.finish())) == 2
assert "pandas" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
