"""Streams: micro-batches no larger than said, going on from a checkpoint, and partitions and topics that come."""

from collections import Counter
from pathlib import Path

from pyspark.sql import SparkSession

from flotilla import Client
from support.cluster import wait_until
from support.fleet import Fleet
from support.sparks import complaint, copy, fill, read_stream, values_of


def test_micro_batches_are_no_larger_than_said_and_a_checkpoint_is_gone_on_from(
    spark: SparkSession, fleet: Fleet, client: Client, name: str, tmp_path: Path
) -> None:
    """A limit holds, in proportion; a second run reads what came since, and new partitions whole."""
    client.topics.create(name, partitions=2)
    client.topics.create(f"{name}-out", partitions=1)
    fill(client, name, *(b"a%d" % at for at in range(900)))
    fill(client, name, *(b"b%d" % at for at in range(300)), partition=1)
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "500"}

    def run() -> list[int]:
        return copy(read_stream(spark, fleet.url, name, **options), fleet.url, f"{name}-out", tmp_path / "checkpoint")

    counts = run()
    assert sum(counts) == 1_200
    assert all(450 < count <= 500 for count in counts[:2])
    assert len(counts) == 3
    first = values_of(client, f"{name}-out")[: counts[0]]
    assert Counter(value[:1] for value in first)[b"a"] in range(370, 380)  # three quarters, as it has of all

    fill(client, name, b"a900")
    client.topics.grow(name, 3)
    fill(client, name, b"c0", b"c1", partition=2)
    assert run() == [1, 2], "where a new partition begins is noted first"
    found = values_of(client, f"{name}-out")
    wanted = [b"a%d" % at for at in range(901)] + [b"b%d" % at for at in range(300)] + [b"c0", b"c1"]
    assert sorted(found) == sorted(wanted)
    assert [one for one in found if one[:1] == b"a"] == wanted[:901]


def test_where_a_query_began_is_kept_whatever_becomes_of_its_first_micro_batches(
    spark: SparkSession, fleet: Fleet, client: Client, name: str, tmp_path: Path
) -> None:
    """Nothing is skipped in silence: a micro-batch that is run again begins where it did, and misses what is gone."""
    for topic in (name, f"{name}-out"):
        client.topics.create(topic, partitions=1)
    fill(client, name, *(b"%d" % at for at in range(10)))
    checkpoint = tmp_path / "checkpoint"

    def run() -> list[int]:
        rows = read_stream(spark, fleet.url, name, startingOffsets="earliest")
        return copy(rows, fleet.url, f"{name}-out", checkpoint)

    assert run() == [10]
    for file in ("1", ".1.crc"):
        (checkpoint / "commits" / file).unlink()  # as if it had been killed before it could say that it was done
    assert run() == [10]
    assert len(values_of(client, f"{name}-out")) == 10, "what was stored is recognised"
    for file in ("1", ".1.crc"):
        (checkpoint / "commits" / file).unlink()
    client.topics.delete_records(name, {0: 4})
    assert f"4 of the records 0 to 9 of partition 0 of '{name}' are not there" in complaint(run)


def test_partitions_and_topics_that_come_while_a_query_runs_are_read_from_their_beginning(
    spark: SparkSession, fleet: Fleet, client: Client, name: str, tmp_path: Path
) -> None:
    """One query, that nobody starts again: a topic grows, another one matches the pattern later."""
    client.topics.create(f"{name}-in-1", partitions=1)
    client.topics.create(f"{name}-out", partitions=1)
    rows = read_stream(spark, fleet.url, subscribePattern=f"{name}-in-.*", maxRecordsPerPartition="2").select("value")
    writer = rows.writeStream.format("flotilla").option("url", fleet.url).option("topic", f"{name}-out")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        # It begins with what comes, so where that is has to be known before anything does.
        wait_until(
            "a beginning", lambda: (tmp_path / "checkpoint" / "offsets" / "0").exists() or query.lastProgress, 90
        )
        fill(client, f"{name}-in-1", b"1")
        wait_until("the first record", lambda: values_of(client, f"{name}-out") == [b"1"], 60)
        client.topics.grow(f"{name}-in-1", 2)
        fill(client, f"{name}-in-1", b"2", b"3", b"4", partition=1)
        client.topics.create(f"{name}-in-2", partitions=1)
        fill(client, f"{name}-in-2", b"5", b"6")
        wanted = [b"1", b"2", b"3", b"4", b"5", b"6"]
        wait_until("all records", lambda: len(values_of(client, f"{name}-out")) >= 6, 60)
        query.processAllAvailable()
        assert sorted(values_of(client, f"{name}-out")) == wanted
        told = query.lastProgress
        assert told is not None
        assert f'"{name}-in-2": {{"0": 2}}' in told.sources[0].endOffset
        assert f'"{name}-in-2": {{"0": 2}}' in told.sources[0].latestOffset
    finally:
        query.stop()
