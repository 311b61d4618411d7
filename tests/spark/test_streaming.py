"""Streams: size of micro-batches, checkpoints, and new partitions and topics."""

from collections import Counter
from pathlib import Path

from pyspark.sql import SparkSession

from flotilla import Client
from support.cluster import wait_until
from support.fleet import Fleet
from support.sparks import copy, error_text, fill, read_stream, values_of


def test_micro_batches_respect_the_limit_and_a_restart_continues_from_the_checkpoint(
    spark: SparkSession, fleet: Fleet, client: Client, name: str, tmp_path: Path
) -> None:
    """The limit is divided in proportion to the lag. A second run reads newer records, and all of a new partition."""
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
    assert Counter(value[:1] for value in first)[b"a"] in range(370, 380)  # three quarters, its share of all records

    fill(client, name, b"a900")
    client.topics.grow(name, 3)
    fill(client, name, b"c0", b"c1", partition=2)
    assert run() == [1, 2], "the start of a new partition is recorded first"
    found = values_of(client, f"{name}-out")
    wanted = [b"a%d" % at for at in range(901)] + [b"b%d" % at for at in range(300)] + [b"c0", b"c1"]
    assert sorted(found) == sorted(wanted)
    assert [one for one in found if one[:1] == b"a"] == wanted[:901]


def test_starting_offsets_are_kept_if_the_first_micro_batches_are_repeated(
    spark: SparkSession, fleet: Fleet, client: Client, name: str, tmp_path: Path
) -> None:
    """No record is skipped silently: a repeated micro-batch has the same start, and detects removed records."""
    for topic in (name, f"{name}-out"):
        client.topics.create(topic, partitions=1)
    fill(client, name, *(b"%d" % at for at in range(10)))
    checkpoint = tmp_path / "checkpoint"

    def run() -> list[int]:
        rows = read_stream(spark, fleet.url, name, startingOffsets="earliest")
        return copy(rows, fleet.url, f"{name}-out", checkpoint)

    assert run() == [10]
    for file in ("1", ".1.crc"):
        (checkpoint / "commits" / file).unlink()  # as if killed before the commit
    assert run() == [10]
    assert len(values_of(client, f"{name}-out")) == 10, "stored records are recognised"
    for file in ("1", ".1.crc"):
        (checkpoint / "commits" / file).unlink()
    client.topics.delete_records(name, {0: 4})
    assert f"4 of the records 0 to 9 of partition 0 of '{name}' are missing" in error_text(run)


def test_running_query_reads_new_partitions_and_matching_topics_from_their_first_offset(
    spark: SparkSession, fleet: Fleet, client: Client, name: str, tmp_path: Path
) -> None:
    """Without a restart: a topic gets a partition, and another topic matches the pattern later."""
    client.topics.create(f"{name}-in-1", partitions=1)
    client.topics.create(f"{name}-out", partitions=1)
    rows = read_stream(spark, fleet.url, subscribePattern=f"{name}-in-.*", maxRecordsPerPartition="2").select("value")
    writer = rows.writeStream.format("flotilla").option("url", fleet.url).option("topic", f"{name}-out")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        # The query starts at latest, so it must know the offsets before the first record is sent.
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
        output = query.lastProgress
        assert output is not None
        assert f'"{name}-in-2": {{"0": 2}}' in output.sources[0].endOffset
        assert f'"{name}-in-2": {{"0": 2}}' in output.sources[0].latestOffset
    finally:
        query.stop()
