"""Exactly-once: a job is killed during micro-batches and restarted from its checkpoints."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from flotilla import Client
from support.cluster import wait_until
from support.fleet import Fleet
from support.sparkjob import TOKEN

PARTITIONS = 2
ROWS = 80_000  # in each partition
ROWS_PER_BATCH = 60_000
KILLS = 2


def start(folder: Path, fleet: Fleet, source: str, target: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "support.sparkjob", str(folder), fleet.url, source, target, str(ROWS_PER_BATCH)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    with (folder / "log.txt").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)


def kill(job: "subprocess.Popen[bytes]") -> None:
    """Kill a job with its JVM. Python workers notice it and exit a little later."""
    os.killpg(job.pid, signal.SIGKILL)
    job.wait()


def last(folder: Path) -> int:
    """Return the last micro-batch in a log of a checkpoint."""
    return max((int(file.name) for file in folder.glob("*") if file.name.isdecimal()), default=-1)


def is_midway(checkpoint: Path, client: Client, target: str) -> bool:
    """Return whether a micro-batch is stored in part. The first one has no rows."""
    begun, done = last(checkpoint / "offsets"), last(checkpoint / "commits")
    stored = sum(one.next_offset for one in client.topics.offsets(target))
    most = min(begun * ROWS_PER_BATCH, PARTITIONS * ROWS)
    return begun > done and (begun - 1) * ROWS_PER_BATCH < stored < most


def kill_midway(job: "subprocess.Popen[bytes]", folder: Path, client: Client, target: str) -> None:
    """Kill a job during a micro-batch."""
    try:
        wait_until(
            "the middle of a micro-batch",
            lambda: is_midway(folder / "to-topic", client, target) or job.poll() is not None,
            180,
        )
        assert job.poll() is None, (folder / "log.txt").read_text()[-3000:]
    finally:
        if job.poll() is None:
            kill(job)


def test_job_that_is_killed_repeatedly_stores_each_record_once(
    spark: SparkSession, fleet: Fleet, client: Client, name: str, tmp_path: Path
) -> None:
    """To a topic and to Parquet: every record once, in order within a partition.

    The log has a warning about options of Kafka clients. Neither the log nor a checkpoint contains the token.
    """
    target = f"{name}-out"
    for topic in (name, target):
        client.topics.create(topic, partitions=PARTITIONS)
    values = [b"%08d" % at for at in range(ROWS)]
    with client.producer() as producer:
        for partition in range(PARTITIONS):
            producer.send_many(name, values, partition=partition)
    for _ in range(KILLS):
        kill_midway(start(tmp_path, fleet, name, target), tmp_path, client, target)
    job = start(tmp_path, fleet, name, target)
    try:
        assert job.wait(240) == 0, (tmp_path / "log.txt").read_text()[-3000:]
    finally:
        if job.poll() is None:
            kill(job)

    for partition in range(PARTITIONS):
        found = client.read_arrow(target, partitions=[partition], columns=["value"])["value"].to_pylist()
        assert found == values
    rows = spark.read.parquet(str(tmp_path / "rows"))
    assert (rows.count(), rows.distinct().count()) == (PARTITIONS * ROWS, PARTITIONS * ROWS)

    log = (tmp_path / "log.txt").read_text(errors="replace")
    assert "ignored an option of Kafka clients: option=kafka.group.id" in log
    files = [file for part in ("to-topic", "to-files") for file in (tmp_path / part).rglob("*") if file.is_file()]
    assert files
    assert [file for file in (tmp_path / "log.txt", *files) if TOKEN.encode() in file.read_bytes()] == []
