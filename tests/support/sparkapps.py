"""The Spark applications, for tests: in this process with an existing session, or as real processes."""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from pyspark.sql import SparkSession

from flotilla import Client

LIMIT_S = 240.0  # Spark starts slowly on a loaded machine
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"


class Job(Protocol):
    """A running application."""

    def wait(self, seconds: float) -> bool: ...
    def stop(self) -> None: ...
    def summary(self) -> str: ...


def parse(name: str, *arguments: object) -> argparse.Namespace:
    """Parse a command line."""
    parser: argparse.ArgumentParser = import_module(f"flotilla_spark.{name}").make_parser()
    return parser.parse_args([str(one) for one in arguments])


def start(spark: SparkSession, name: str, *arguments: object) -> Any:  # noqa: ANN401 - as jobs have it
    """Start an application in this process."""
    return import_module(f"flotilla_spark.jobs.{name}").start(spark, parse(name, *arguments))


def finish(job: Job) -> str:
    """Wait for the end; return the summary."""
    until_s = time.monotonic() + LIMIT_S
    while not job.wait(0.2):
        assert time.monotonic() < until_s
    return job.summary()


def run(spark: SparkSession, name: str, *arguments: object) -> str:
    """Run an application in this process to its end."""
    return finish(start(spark, name, *arguments))


def child(url: str, name: str, *arguments: object, **more: Any) -> subprocess.Popen[str]:  # noqa: ANN401
    """Start an application as a process, in its own process group."""
    command = [sys.executable, "-m", f"flotilla_spark.{name}", *(str(one) for one in arguments)]
    more = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **more}
    return subprocess.Popen(command, env=environment(url), start_new_session=True, **more)


def environment(url: str) -> dict[str, str]:
    """Return the environment of a process."""
    dropped = ("FLOTILLA_", "SPARK_", "PYSPARK_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**kept, "FLOTILLA_URL": url, "PATH": path, "SPARK_SUBMIT_OPTS": QUICK}


def kill(process: subprocess.Popen[str]) -> None:
    """Kill a process and its JVM."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def send(client: Client, topic: str, values: Iterable[bytes], partitions: int = 1, **more: Any) -> None:  # noqa: ANN401
    """Create a topic unless it exists, and send records to it."""
    client.topics.create(topic, partitions=partitions, exist_ok=True)
    with client.producer() as producer:
        producer.send_many(topic, list(values), **more)
        producer.flush()


def fetch(client: Client, topic: str) -> list[Any]:
    """Read all records of a topic."""
    return list(client.consumer(topic).records(until="end"))


def json_lines(rows: Sequence[dict[str, Any]]) -> list[bytes]:
    """Encode rows as JSON lines."""
    return [json.dumps(row).encode() for row in rows]
