"""Failures during queries: killed brokers, removed records and recreated topics."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from flotilla import Client
from support.cluster import BrokerProcess, wait_until
from support.fleet import Fleet
from support.sparks import copy, error_text, fill, finish, read, read_stream, values_of

QUICK = ("--heartbeat-s", "0.1", "--election-s-min", "0.5", "--election-s-max", "1.0")
PARTITIONS = 2
ROWS = 40_000  # in each partition
PAUSE_S = 0.05


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A cluster whose brokers tests can kill."""
    with Fleet(Path(tmp_path_factory.mktemp("mortal")), brokers=3, broker_flags=QUICK) as fleet:
        yield fleet


def leader_of(fleet: Fleet, client: Client, topic: str) -> BrokerProcess:
    leader = wait_until("a leader", lambda: client.topics.describe(topic).partitions[0].leader)
    return next(broker for broker in fleet.brokers if broker.id == leader)


def noting(file: Path) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Pass rows on slowly, and create a file when the first arrive."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            file.touch()
            yield batch
            time.sleep(PAUSE_S)

    return work


def test_queries_survive_killed_brokers(spark: SparkSession, mortal: Fleet, tmp_path: Path) -> None:
    """A batch and a stream read all records once while leaders are killed and restarted."""
    values = [b"%099d" % at for at in range(ROWS)]
    with Client(mortal.url) as client:
        for topic in ("in", "out"):
            client.topics.create(topic, partitions=PARTITIONS)
        with client.producer(batch_bytes=100_000) as producer:
            for partition in range(PARTITIONS):
                producer.send_many("in", values, partition=partition)
        rows = read(spark, mortal.url, "in", maxRecordsPerPartition="10000").select("partition", "value")
        slow = rows.mapInArrow(noting(tmp_path / "began"), rows.schema)
        with ThreadPoolExecutor(1) as pool:
            counting = pool.submit(lambda: slow.groupBy("partition").count().collect())
            wait_until("rows", (tmp_path / "began").exists, 60)
            broker = leader_of(mortal, client, "in")
            broker.kill()
            broker.start()
            assert {tuple(row) for row in counting.result(120)} == {(at, ROWS) for at in range(PARTITIONS)}

        stream = read_stream(spark, mortal.url, "in", startingOffsets="earliest", maxOffsetsPerTrigger="50000")
        writer = stream.select("value", "partition").writeStream.format("flotilla").option("url", mortal.url)
        writer = writer.option("topic", "out").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        for topic in ("in", "out"):
            wait_until("records", lambda: any(one.next_offset for one in client.topics.offsets("out")), 60)
            broker = leader_of(mortal, client, topic)
            broker.kill()
            broker.start()
            broker.wait_alive()
        finish(query)
        for partition in range(PARTITIONS):
            found = client.read_arrow("out", partitions=[partition], columns=["value"])["value"].to_pylist()
            assert found == values


def test_batch_fails_on_removed_records_unless_fail_on_data_loss_is_off(
    spark: SparkSession, fleet: Fleet, client: Client, name: str
) -> None:
    """The error names the partition and the number of missing records."""
    client.topics.create(name, partitions=1)
    fill(client, name, *(b"%d" % at for at in range(100)))
    client.topics.delete_records(name, {0: 40})
    assert read(spark, fleet.url, name).count() == 60
    start = f'{{"{name}": {{"0": 10}}}}'
    text = error_text(lambda: read(spark, fleet.url, name, startingOffsets=start).count())
    assert f"30 of the records 10 to 99 of partition 0 of '{name}' are missing" in text
    assert "failOnDataLoss=false" in text
    assert read(spark, fleet.url, name, startingOffsets=start, failOnDataLoss="false").count() == 60
    behind = {"endingOffsets": f'{{"{name}": {{"0": 200}}}}'}
    text = error_text(lambda: read(spark, fleet.url, name, **behind).count())
    assert f"partition 0 of '{name}' ends at 100, before 200" in text
    assert read(spark, fleet.url, name, **behind, failOnDataLoss="false").count() == 60


def test_stream_fails_on_removed_records_unless_fail_on_data_loss_is_off(
    spark: SparkSession, mortal: Fleet, tmp_path: Path
) -> None:
    """Retention removes records while the query is stopped."""
    with Client(mortal.url) as client:
        client.topics.create("short", partitions=1)
        client.topics.create("short-out", partitions=1)

        def run(is_strict: str) -> list[int]:
            options = {"startingOffsets": "earliest", "failOnDataLoss": is_strict}
            return copy(read_stream(spark, mortal.url, "short", **options), mortal.url, "short-out", tmp_path / "c")

        fill(client, "short", b"one")
        assert run("true") == [1]
        for at in range(4):
            fill(client, "short", *[b"%050d" % at] * 2_000)
        client.topics.configure("short", retention_ms=1)
        (bounds,) = wait_until(
            "retention", lambda: [one for one in client.topics.offsets("short") if one.first_offset > 1], 60
        )
        client.topics.configure("short", retention_ms=None)
        text = error_text(lambda: run("true"))
        assert f"of the records 1 to {bounds.next_offset - 1} of partition 0 of 'short' are missing" in text
        run("false")
        (bounds,) = client.topics.offsets("short")
        assert len(values_of(client, "short-out")) == 1 + bounds.next_offset - bounds.first_offset


def test_stream_detects_a_recreated_topic(
    spark: SparkSession, fleet: Fleet, client: Client, name: str, tmp_path: Path
) -> None:
    """Its offsets show it: the query fails, or reads the new topic from its first offset."""
    client.topics.create(name, partitions=1)
    client.topics.create(f"{name}-out", partitions=1)
    fill(client, name, *[b"old"] * 10)

    def run(is_strict: str) -> list[int]:
        options = {"startingOffsets": "earliest", "failOnDataLoss": is_strict}
        return copy(read_stream(spark, fleet.url, name, **options), fleet.url, f"{name}-out", tmp_path / "c")

    assert run("true") == [10]
    client.topics.delete(name)
    assert f"partition 0 of '{name}' no longer exists" in error_text(lambda: run("true"))
    client.topics.create(name, partitions=1)
    fill(client, name, b"new 1", b"new 2")
    assert f"partition 0 of '{name}' ends at 2, before 10" in error_text(lambda: run("true"))
    run("false")
    assert values_of(client, f"{name}-out") == [b"old"] * 10 + [b"new 1", b"new 2"]
