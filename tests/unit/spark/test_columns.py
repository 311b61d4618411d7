"""Records become the columns of Kafka's source, and pandas is not loaded for that."""

import subprocess
import sys

import pyarrow as pa

from flotilla.arrow import SCHEMA, to_record_batch
from flotilla.client.positions import Place
from flotilla.records import decode, encode
from pyspark_flotilla.columns import convert

HEADERS = [(("trace", b"1"), ("empty", b"")), (), (("trace", b"2"),)]


def test_headers_keep_their_names_and_slices_their_rows() -> None:
    batch = decode(encode([b"a", b"b", b"c"], headers=HEADERS))
    made = convert(to_record_batch(Place("t", 4), batch, 1, schema=SCHEMA))
    made.validate(full=True)
    assert made.column("headers").to_pylist() == [None, [{"key": "trace", "value": b"2"}]]
    assert made.column("value").to_pylist() == [b"b", b"c"]
    assert made.column("offset").type == pa.int64()


def test_the_time_is_that_of_the_producer_or_else_of_the_leader() -> None:
    plain = convert(to_record_batch(Place("t", 0), decode(encode([b"a"]))))
    timed = convert(to_record_batch(Place("t", 0), decode(encode([b"a"], timestamps_ms=[5]))))
    assert plain.column("timestampType").to_pylist() == [1]
    assert timed.column("timestampType").to_pylist() == [0]
    assert timed.column("timestamp").cast(pa.int64()).to_pylist() == [5_000]
    assert plain.schema == timed.schema


def test_a_time_that_spark_cannot_hold_is_that_of_the_leader() -> None:
    """One producer that takes nanoseconds for milliseconds does not keep everybody from reading the topic."""
    most, least = (1 << 63) - 1, -(1 << 63)
    given = [1_700_000_000_000_000_000, 5, most, least, most // 1000, -(most // 1000), -(most // 1000) - 2]
    made = convert(to_record_batch(Place("t", 0), decode(encode([b"a"] * len(given), timestamps_ms=given))))
    assert made.column("timestampType").to_pylist() == [1, 0, 1, 1, 0, 0, 1]
    times = made.column("timestamp").cast(pa.int64()).to_pylist()
    assert [times[at] for at in (1, 4, 5)] == [5_000, most // 1000 * 1000, -(most // 1000) * 1000]


def test_neither_drivers_nor_tasks_load_pandas() -> None:
    """It takes each of Spark's many processes longer than everything else together."""
    script = """
import sys
import pyspark_flotilla
assert "pyarrow" not in sys.modules and "flotilla.client" not in sys.modules
from flotilla.arrow import to_record_batch
from flotilla.client.positions import Place
from flotilla.records import decode, encode
from pyspark_flotilla.columns import convert
from pyspark_flotilla.cutting import Cutter, Target
rows = convert(to_record_batch(Place("t", 0), decode(encode([b"a"] * 2, keys=[b"k", None]))))
cutter = Cutter(lambda _: Target(2), "t", 0)
assert not list(cutter.add(rows.select(["key", "value"]))) and len(list(cutter.finish())) == 2
assert "pandas" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
