"""`archive`: every record exactly once, also after a kill, and never in the folder of another query."""

import shutil
import time
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from flotilla import Client
from flotilla_spark.errors import FolderInUse
from support.fleet import Fleet
from support.sparkapps import LIMIT_S, child, kill, run, send
from support.sparks import error_text

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


def places(spark: SparkSession, folder: Path) -> list[tuple[int, int]]:
    rows = spark.read.parquet(str(folder)).select("partition", "offset").collect()
    return sorted((row["partition"], row["offset"]) for row in rows)


def test_archive_writes_folders_by_topic_and_day(
    spark: SparkSession, fleet: Fleet, client: Client, name: str, tmp_path: Path
) -> None:
    client.topics.create(name, partitions=1)
    days = [datetime(2026, 1, 31, 23, 59, 59, tzinfo=UTC), datetime(2026, 2, 1, tzinfo=UTC)]
    with client.producer() as producer:
        for day in days:
            stamp = int(day.timestamp() * 1000)
            producer.send(name, b"\xff\x00", key=b"k", headers=(("h", b"\x01"),), timestamp_ms=stamp)
        producer.flush()
    to, checkpoint = tmp_path / "archive", tmp_path / "checkpoint"
    output = run(spark, "archive", name, "--url", fleet.url, "--to", to, "--checkpoint", checkpoint, "--once")
    assert output == "2 records read"
    assert [path.name for path in sorted((to / f"topic={name}").glob("day=*"))] == ["day=2026-01-31", "day=2026-02-01"]
    first, second = spark.read.parquet(str(to)).orderBy("offset").collect()
    assert (bytes(first["key"]), bytes(first["value"]), first["topic"], str(first["day"])) == (
        b"k",
        b"\xff\x00",
        name,
        "2026-01-31",
    )
    assert [(one["key"], bytes(one["value"])) for one in second["headers"]] == [("h", b"\x01")]
    assert pq.read_table(to).num_rows == 2  # other readers ignore Spark's metadata


def test_archive_that_is_killed_while_it_writes_has_every_record_once_after_a_restart(
    spark: SparkSession, fleet: Fleet, client: Client, name: str, tmp_path: Path
) -> None:
    """Exactly-once when read with Spark: SIGKILL for the application and its JVM."""
    count = 2_000
    send(client, name, (b"%d" % at for at in range(count)), partitions=2)
    to, checkpoint = tmp_path / "archive", tmp_path / "checkpoint"
    flags = (name, "--to", to, "--checkpoint", checkpoint)
    process = child(fleet.url, "archive", *flags, "--at-most", 100, "--every", "1s")
    try:
        until_s = time.monotonic() + LIMIT_S
        while not (to / "_spark_metadata" / "2").exists():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < until_s
            time.sleep(0.02)
    finally:
        kill(process)
    before = places(spark, to)
    assert 0 < len(before) < count
    run(spark, "archive", *flags, "--url", fleet.url, "--once")
    found = places(spark, to)
    assert len(found) == count
    assert found == sorted(
        (partition, at) for partition in (0, 1) for at in range(len(found))[: _size(found, partition)]
    )
    values = spark.read.parquet(str(to)).selectExpr("cast(cast(value as string) as int) value").collect()
    assert sorted(row["value"] for row in values) == list(range(count))


def _size(found: list[tuple[int, int]], partition: int) -> int:
    return sum(one == partition for one, _ in found)


def test_archive_continues_from_its_checkpoint(
    spark: SparkSession, fleet: Fleet, client: Client, name: str, tmp_path: Path
) -> None:
    flags = (name, "--url", fleet.url, "--to", tmp_path / "a", "--checkpoint", tmp_path / "c", "--once")
    for total in (10, 20):
        send(client, name, [b"x"] * 10)
        assert run(spark, "archive", *flags) == "10 records read"
        assert places(spark, tmp_path / "a") == [(0, at) for at in range(total)]
    assert run(spark, "archive", *flags) == "0 records read"


def test_archive_fails_on_removed_records_unless_loss_is_allowed(
    spark: SparkSession, fleet: Fleet, client: Client, name: str, tmp_path: Path
) -> None:
    """After a pause longer than the retention time, --allow-loss continues."""
    flags = (name, "--url", fleet.url, "--to", tmp_path / "a", "--checkpoint", tmp_path / "c", "--once")
    send(client, name, [b"x"] * 10)
    run(spark, "archive", *flags)
    send(client, name, [b"x"] * 10)
    client.topics.delete_records(name, {0: 15})
    output = error_text(lambda: run(spark, "archive", *flags))
    assert "5 of the records 10 to 19" in output
    assert "--allow-loss" in output
    run(spark, "archive", *flags, "--allow-loss")
    assert places(spark, tmp_path / "a") == [(0, at) for at in (*range(10), *range(15, 20))]


def test_archive_refuses_folders_and_checkpoints_of_other_queries(
    spark: SparkSession, fleet: Fleet, client: Client, name: str, tmp_path: Path
) -> None:
    """With a new checkpoint, Spark would silently skip micro-batches that the folder seems to have."""
    send(client, name, [b"x"])
    common = (name, "--url", fleet.url, "--once")
    run(spark, "archive", *common, "--to", tmp_path / "a", "--checkpoint", tmp_path / "c")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "notes.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    shutil.copytree(tmp_path / "c", tmp_path / "bare")
    (tmp_path / "bare" / "_flotilla.json").unlink()
    (tmp_path / "bare" / "._flotilla.json.crc").unlink()
    for to, checkpoint, words in (
        ("a", "new", "written with another checkpoint"),
        ("new", "c", "belongs to another output folder"),
        ("foreign", "new", "that 'archive' did not write"),
        ("file", "new", "is a file"),
        ("new", "bare", "belongs to another query"),
    ):
        with pytest.raises(FolderInUse, match=words):
            run(spark, "archive", *common, "--to", tmp_path / to, "--checkpoint", tmp_path / checkpoint)
    with pytest.raises(FolderInUse, match="belongs to the application 'archive'"):
        run(spark, "route", *common, "--others", "elsewhere", "--checkpoint", tmp_path / "c")
    assert places(spark, tmp_path / "a") == [(0, 0)]
