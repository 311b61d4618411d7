"""Rows become records: where they go, what is refused, and that a task which runs again stores nothing twice."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from flotilla import Client
from support.fleet import Fleet
from support.sparks import complaint, values_of

ROWS = 60_000


def save(rows: DataFrame, fleet: Fleet, **options: str) -> None:
    rows.write.format("flotilla").option("url", fleet.url).options(**options).mode("append").save()


def test_rows_go_where_a_producer_would_put_them(spark: SparkSession, fleet: Fleet, client: Client, name: str) -> None:
    """By key, by the column partition, and to the topic of the row or of the option; with headers."""
    for topic in (f"{name}-a", f"{name}-b", f"{name}-sent"):
        client.topics.create(topic, partitions=4)
    keys = [b"key %d" % at for at in range(50)]
    with client.producer() as producer:
        producer.send_many(f"{name}-sent", keys, keys=keys)
    rows = spark.createDataFrame(
        [(f"{name}-a", key.decode(), key, None, [("trace", b"1")]) for key in keys]
        + [(f"{name}-b", None, b"%d" % at, at, None) for at in range(4)],
        "topic string, key string, value binary, partition long, headers array<struct<key: string, value: binary>>",
    )
    save(rows, fleet)

    def keyed(topic: str) -> list[tuple[Any, ...]]:
        found = client.read_arrow(topic, columns=["partition", "key", "value"]).to_pylist()
        return sorted((row["partition"], row["key"], row["value"]) for row in found)

    assert keyed(f"{name}-a") == keyed(f"{name}-sent")
    assert keyed(f"{name}-b") == [(at, None, b"%d" % at) for at in range(4)]
    headers = client.read_arrow(f"{name}-a", columns=["headers"])["headers"].to_pylist()
    assert headers == [[{"name": "trace", "value": b"1"}]] * 50
    save(rows.drop("partition"), fleet, topic=f"{name}-b")
    assert len(values_of(client, f"{name}-b")) == 58


@pytest.mark.parametrize(
    ("columns", "options", "text"),
    [
        ("CAST(NULL AS STRING) AS value", {}, "a row has no value"),
        ("'x' AS value, CAST(NULL AS STRING) AS topic", {"topic": ""}, "a row names no topic"),
        ("'x' AS value", {"topic": ""}, "say where rows go: with the option topic, or a column"),
        ("'x' AS value, 1 AS colour", {}, "nothing of a record: colour. Records have value, key, topic"),
        ("'x' AS key", {}, "there is no column 'value'"),
        ("1 AS value", {}, "the column value is of type int; it must be binary or string"),
        ("'x' AS value, 1.5D AS partition", {}, "the column partition is of type double; it must be integer or"),
        ("'x' AS value, array('a') AS headers", {}, "it must be array<struct<key:string,value:binary>>"),
        ("'x' AS value, 7 AS partition", {}, "a row is for partition 7 of 'refusing', which has 2"),
        ("'x' AS value", {"topic": "nowhere"}, "nowhere"),
        ("'x' AS value", {"compression": "gzip"}, "it must be none, zstd or auto"),
        ("'x' AS value", {"startingOffsets": "latest"}, "the option startingOffsets is for reading"),
        ("'x' AS value", {"compresion": "zstd"}, "did you mean compression?"),
    ],
)
def test_rows_that_cannot_be_records_are_refused_in_our_words(
    spark: SparkSession, fleet: Fleet, client: Client, columns: str, options: dict[str, str], text: str
) -> None:
    """And nothing is stored."""
    client.topics.create("refusing", partitions=2, exist_ok=True)
    rows = spark.range(1).selectExpr(*columns.split(", "))
    assert text in complaint(lambda: save(rows, fleet, **{"topic": "refusing", **options}))
    assert values_of(client, "refusing") == []


def test_what_was_read_can_be_written_as_it_is(spark: SparkSession, fleet: Fleet, client: Client, name: str) -> None:
    """As with Kafka's sink: offsets and times are given anew, and headers go along unless they are not wanted."""
    for topic in (name, f"{name}-a", f"{name}-b"):
        client.topics.create(topic, partitions=2)
    with client.producer() as producer:
        producer.send(name, b"x", key=b"k", headers=(("h", b"1"),), partition=1)
    reader = spark.read.format("flotilla").option("url", fleet.url).option("includeHeaders", "true")
    save(reader.load(name), fleet, topic=f"{name}-a", compression="zstd")
    save(reader.load(name), fleet, topic=f"{name}-b", includeHeaders="false")
    found = [client.read_arrow(f"{name}-{to}", columns=["partition", "key", "headers"]).to_pylist() for to in "ab"]
    assert found == [
        [{"partition": 1, "key": b"k", "headers": [{"name": "h", "value": b"1"}]}],
        [{"partition": 1, "key": b"k", "headers": None}],
    ]


def test_a_log_is_not_overwritten(spark: SparkSession, fleet: Fleet) -> None:
    """It would take records away from others; mode('overwrite') says so."""
    writer = spark.range(1).selectExpr("'x' AS value").write.format("flotilla").option("url", fleet.url)
    text = complaint(lambda: writer.option("topic", "any").mode("overwrite").save())
    assert "a log is never overwritten" in text


def test_batches_are_compressed_as_the_topic_wishes(
    spark: SparkSession, fleet: Fleet, client: Client, name: str
) -> None:
    """And no larger than it takes."""
    client.topics.create(name, partitions=1, compression="zstd", batch_bytes_max=50_000)
    save(spark.range(5_000).selectExpr("repeat('x', 100) AS value"), fleet, topic=name)
    (partition,) = client.topics.partitions(name)
    assert partition.records == 5_000
    assert partition.size_bytes is not None
    assert partition.size_bytes < 100_000


def failing_once(url: str, topic: str, flag: Path, *, changes: bool) -> Callable[..., Iterator[pa.RecordBatch]]:
    """What a first attempt does: pass most rows on, wait until some are stored, and fail. A second one succeeds."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        mark = str(context.attemptNumber()) if changes else "-"
        for at, batch in enumerate(batches):
            values = [f"{mark}{one:0100d}".encode() for one in batch.column("id").to_pylist()]
            yield pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary())})
            if at == 4 and not flag.exists():
                deadline = time.monotonic() + 60  # a worker of Spark's does not have what tests share
                with Client(url) as client:
                    while not any(one.next_offset for one in client.topics.offsets(topic)):
                        assert time.monotonic() < deadline, "nothing is stored"
                        time.sleep(0.05)
                flag.touch()
                raise RuntimeError("this task fails once")

    return work


@pytest.mark.parametrize("changes", [False, True])
def test_a_task_that_runs_again_stores_nothing_twice(
    spark: SparkSession, fleet: Fleet, client: Client, name: str, tmp_path: Path, changes: bool
) -> None:
    """The same rows are recognised. If they are others than before, the job fails, and what is stored is there once."""
    client.topics.create(name, partitions=1)
    flag = tmp_path / "failed"
    rows = spark.range(0, ROWS, 1, 1).mapInArrow(failing_once(fleet.url, name, flag, changes=changes), "value binary")
    if changes:
        text = complaint(lambda: save(rows, fleet, topic=name))
        assert "expected the same" in text
    else:
        save(rows, fleet, topic=name)
    assert flag.exists()
    found = [int(value[1:]) for value in values_of(client, name)]
    assert found == list(range(len(found)))
    assert len(found) < ROWS if changes else len(found) == ROWS
