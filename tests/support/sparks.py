"""Spark for tests: a session, DataFrames of topics, finite streams, and error texts."""

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
    """Start a session in this process: two tasks at a time, two retries for each."""
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
    """Add a folder to PYTHONPATH of the Python processes that the JVM starts: it keeps its initial environment."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(folder) if before is None else f"{folder}{os.pathsep}{before}"
    try:
        yield
    finally:
        del os.environ["PYTHONPATH"]
        if before is not None:
            os.environ["PYTHONPATH"] = before


def read(spark: SparkSession, url: str, topic: str | None = None, /, **options: Any) -> DataFrame:  # noqa: ANN401
    """Return a topic, or the selection of the options, as a DataFrame."""
    return spark.read.format("flotilla").option("url", url).options(**_named(topic, options)).load()


def read_stream(spark: SparkSession, url: str, topic: str | None = None, /, **options: Any) -> DataFrame:  # noqa: ANN401
    """Return the same as a stream."""
    return spark.readStream.format("flotilla").option("url", url).options(**_named(topic, options)).load()


def _named(topic: str | None, options: Mapping[str, Any]) -> dict[str, Any]:
    return dict(options) if topic is None else {"subscribe": topic, **options}


def copy(rows: DataFrame, url: str, topic: str, checkpoint: Path) -> list[int]:
    """Append the current records of a stream to a topic; return the number of rows of each micro-batch."""
    writer = rows.select("key", "value").writeStream.format("flotilla").option("url", url).option("topic", topic)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    return finish(query)


def finish(query: StreamingQuery) -> list[int]:
    """Wait for a finite query; return the number of rows of each micro-batch."""
    try:
        assert query.awaitTermination(STREAM_S_MAX), "the query does not stop"
    finally:
        query.stop()
    return [one.numInputRows for one in query.recentProgress if one.numInputRows]


def fill(client: Client, topic: str, *values: bytes, partition: int = 0) -> None:
    """Append records to a partition."""
    with client.producer() as producer:
        producer.send_many(topic, values, partition=partition)


def values_of(client: Client, topic: str) -> list[bytes]:
    """Return all values of a topic, partition by partition."""
    found: list[bytes] = client.read_arrow(topic, columns=["value"])["value"].to_pylist()
    return found


def error_text(work: Callable[[], object]) -> str:
    """Return the error text, as a user sees it, of a call that must fail."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - Spark raises many kinds; the text matters
        work()
    return str(caught.value)
