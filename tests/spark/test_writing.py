"""Writes: partitions of rows, validation, and retries of tasks."""

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
from support.sparks import error_text, values_of

ROWS = 60_000


def save(rows: DataFrame, fleet: Fleet, **options: str) -> None:
    rows.write.format("flotilla").option("url", fleet.url).options(**options).mode("append").save()


def test_rows_go_to_the_same_partitions_as_with_a_producer(
    spark: SparkSession, fleet: Fleet, client: Client, name: str
) -> None:
    """By key, by the column partition, to the topic of the row or of the option; with headers."""
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
        ("CAST(NULL AS STRING) AS value", {}, "column value is null in a row"),
        ("'x' AS value, CAST(NULL AS STRING) AS topic", {"topic": ""}, "column topic is null in a row"),
        ("'x' AS value", {"topic": ""}, "no topic: set the option topic, or add a column topic"),
        ("'x' AS value, 1 AS colour", {}, "unknown columns: colour; allowed are value, key, topic"),
        ("'x' AS key", {}, "column value is missing"),
        ("1 AS value", {}, "column value has type int; it must be binary or string"),
        ("'x' AS value, 1.5D AS partition", {}, "column partition has type double; it must be integer or"),
        ("'x' AS value, array('a') AS headers", {}, "it must be array<struct<key:string,value:binary>>"),
        ("'x' AS value, 7 AS partition", {}, "column partition is 7 in a row, but topic 'refusing' has 2 partitions"),
        ("'x' AS value", {"topic": "nowhere"}, "nowhere"),
        ("'x' AS value", {"compression": "gzip"}, "it must be none, zstd or auto"),
        ("'x' AS value", {"startingOffsets": "latest"}, "option startingOffsets applies to reads only"),
        ("'x' AS value", {"compresion": "zstd"}, "did you mean compression?"),
    ],
)
def test_invalid_rows_and_options_are_rejected(
    spark: SparkSession, fleet: Fleet, client: Client, columns: str, options: dict[str, str], text: str
) -> None:
    """Nothing is stored."""
    client.topics.create("refusing", partitions=2, exist_ok=True)
    rows = spark.range(1).selectExpr(*columns.split(", "))
    assert text in error_text(lambda: save(rows, fleet, **{"topic": "refusing", **options}))
    assert values_of(client, "refusing") == []


def test_rows_that_were_read_can_be_written_unchanged(
    spark: SparkSession, fleet: Fleet, client: Client, name: str
) -> None:
    """As with the Kafka sink: offsets and timestamps are assigned again, and headers are kept unless turned off."""
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


def test_overwrite_mode_is_rejected(spark: SparkSession, fleet: Fleet) -> None:
    """It would delete the records of other writers."""
    writer = spark.range(1).selectExpr("'x' AS value").write.format("flotilla").option("url", fleet.url)
    text = error_text(lambda: writer.option("topic", "any").mode("overwrite").save())
    assert "mode('overwrite') is not supported" in text


def test_batches_have_the_compression_and_the_size_limit_of_the_topic(
    spark: SparkSession, fleet: Fleet, client: Client, name: str
) -> None:
    """Settings of the topic apply without options."""
    client.topics.create(name, partitions=1, compression="zstd", batch_bytes_max=50_000)
    save(spark.range(5_000).selectExpr("repeat('x', 100) AS value"), fleet, topic=name)
    (partition,) = client.topics.partitions(name)
    assert partition.records == 5_000
    assert partition.size_bytes is not None
    assert partition.size_bytes < 100_000


def failing_once(url: str, topic: str, flag: Path, *, changes: bool) -> Callable[..., Iterator[pa.RecordBatch]]:
    """Fail the first attempt after some rows are stored; let the second succeed."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        mark = str(context.attemptNumber()) if changes else "-"
        for at, batch in enumerate(batches):
            values = [f"{mark}{one:0100d}".encode() for one in batch.column("id").to_pylist()]
            yield pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary())})
            if at == 4 and not flag.exists():
                deadline = time.monotonic() + 60  # workers cannot import test helpers
                with Client(url) as client:
                    while not any(one.next_offset for one in client.topics.offsets(topic)):
                        assert time.monotonic() < deadline, "nothing is stored"
                        time.sleep(0.05)
                flag.touch()
                raise RuntimeError("this task fails once")

    return work


@pytest.mark.parametrize("changes", [False, True])
def test_retried_task_stores_nothing_twice(
    spark: SparkSession, fleet: Fleet, client: Client, name: str, tmp_path: Path, changes: bool
) -> None:
    """Equal rows are recognised. Different rows fail the job, and stored rows are kept once."""
    client.topics.create(name, partitions=1)
    flag = tmp_path / "failed"
    rows = spark.range(0, ROWS, 1, 1).mapInArrow(failing_once(fleet.url, name, flag, changes=changes), "value binary")
    if changes:
        text = error_text(lambda: save(rows, fleet, topic=name))
        assert "expected the same" in text
    else:
        save(rows, fleet, topic=name)
    assert flag.exists()
    found = [int(value[1:]) for value in values_of(client, name)]
    assert found == list(range(len(found)))
    assert len(found) < ROWS if changes else len(found) == ROWS
