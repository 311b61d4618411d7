"""Spark for tests: a session, frames of topics, streams to their end, and what it says when something is wrong."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from flotilla import Client
from support.sparkapps import QUICK

STREAM_S_MAX = 120
_PRELOAD = Path(__file__).resolve().parent / "sparkpreload"
_CONFIG = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "2g",
    "spark.driver.extraJavaOptions": QUICK,
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
}


def session(name: str) -> SparkSession:
    """Start Spark here: two tasks at a time, of which each may fail twice."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with _on_path(_PRELOAD):
        made = _make(name)
    made.sparkContext.setLogLevel("ERROR")
    return made


def _make(name: str) -> SparkSession:
    builder = SparkSession.builder.appName(name).master("local[2,3]")
    for option, value in _CONFIG.items():
        builder = builder.config(option, value)
    return builder.getOrCreate()


@contextlib.contextmanager
def _on_path(folder: Path) -> Iterator[None]:
    """Have a folder on the path of the Python processes that Java starts: it keeps the variables that it was given."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(folder) if before is None else f"{folder}{os.pathsep}{before}"
    try:
        yield
    finally:
        del os.environ["PYTHONPATH"]
        if before is not None:
            os.environ["PYTHONPATH"] = before


def read(spark: SparkSession, url: str, topic: str | None = None, /, **options: Any) -> DataFrame:  # noqa: ANN401
    """A topic, or what options say, as a frame."""
    return spark.read.format("flotilla").option("url", url).options(**_named(topic, options)).load()


def read_stream(spark: SparkSession, url: str, topic: str | None = None, /, **options: Any) -> DataFrame:  # noqa: ANN401
    """The same as a stream."""
    return spark.readStream.format("flotilla").option("url", url).options(**_named(topic, options)).load()


def _named(topic: str | None, options: Mapping[str, Any]) -> dict[str, Any]:
    return dict(options) if topic is None else {"subscribe": topic, **options}


def copy(rows: DataFrame, url: str, topic: str, checkpoint: Path) -> list[int]:
    """Append all that a stream has now to a topic; return how many rows each micro-batch had."""
    writer = rows.select("key", "value").writeStream.format("flotilla").option("url", url).option("topic", topic)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    return finish(query)


def finish(query: StreamingQuery) -> list[int]:
    """Wait for a query that ends by itself; return how many rows each micro-batch had."""
    try:
        assert query.awaitTermination(STREAM_S_MAX), "the query does not end"
    finally:
        query.stop()
    return [one.numInputRows for one in query.recentProgress if one.numInputRows]


def fill(client: Client, topic: str, *values: bytes, partition: int = 0) -> None:
    """Append records to a partition."""
    with client.producer() as producer:
        producer.send_many(topic, values, partition=partition)


def values_of(client: Client, topic: str) -> list[bytes]:
    """What a topic has, partition by partition."""
    found: list[bytes] = client.read_arrow(topic, columns=["value"])["value"].to_pylist()
    return found


def complaint(work: Callable[[], object]) -> str:
    """What Spark says of something that has to fail: all that a user sees."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - Spark has many kinds, and the text is what counts
        work()
    return str(caught.value)
