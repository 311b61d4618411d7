"""A session of Spark: that of `spark-submit`, or one on this machine, and a quiet one.

What is configured, by `spark-submit`, `PYSPARK_SUBMIT_ARGS` or `spark-defaults.conf`, stays as it is.
"""

import logging
import os
import sys
import threading
import warnings
from typing import Self

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

_ALWAYS = {
    "spark.sql.session.timeZone": "UTC",  # days and windows are the same everywhere
}
_BY_DEFAULT = {
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.streaming.forceDeleteTempCheckpointLocation": "true",
    "spark.sql.streaming.stopTimeout": "30s",
}
_ON_ONE_MACHINE = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),  # 200, Spark's own number, is for clusters
    "spark.executor.heartbeatInterval": "2s",  # brings the numbers for progress
}
_NOISE = (
    "Using incubator modules",
    "Using Spark's default log4j profile",
    "Setting default log level to",
    "To adjust logging level use",
    "Unable to load native-hadoop library",
    "WARN Utils: Your hostname",
    "WARN Utils: Set SPARK_LOCAL_IP",
    "PySpark does not yet fully support pandas",
    "  require_minimum_pandas_version()",
)
# These write the whole stack of a failure, which is told in one line.
_LOUD = (
    "org.apache.spark.api.python",
    "org.apache.spark.executor.Executor",
    "org.apache.spark.scheduler",
    "org.apache.spark.sql.execution",
    "org.apache.spark.util.Utils",
)
_LOUD_PYTHON = ("SQLQueryContextLogger", "DataFrameQueryContextLogger", "py4j")


def make_session(name: str, *, is_verbose: bool) -> SparkSession:
    """Make a session. Tasks use the Python that this is, unless PYSPARK_PYTHON names another."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if is_verbose:
        SparkContext._ensure_initialized()  # noqa: SLF001 - starts Java, so that it can be asked what is configured
    else:
        warnings.filterwarnings("ignore", module=r"pyspark\.")
        for logger in _LOUD_PYTHON:
            logging.getLogger(logger).setLevel(logging.CRITICAL + 1)
        with Sieve():
            SparkContext._ensure_initialized()  # noqa: SLF001
    given = SparkConf()
    wanted = dict(_BY_DEFAULT)
    if str(given.get("spark.master", "local")).startswith("local"):
        wanted |= _ON_ONE_MACHINE
    builder = SparkSession.builder
    for setting, value in {**{n: v for n, v in wanted.items() if not given.contains(n)}, **_ALWAYS}.items():
        builder = builder.config(setting, value)
    if not given.contains("spark.app.name") or given.get("spark.app.name") == "pyspark-shell":
        builder = builder.appName(f"flotilla {name}")
    session = builder.getOrCreate()
    _set_levels(session, os.environ.get("SPARK_LOG_LEVEL"), is_verbose=is_verbose)
    return session


def _set_levels(session: SparkSession, level: str | None, *, is_verbose: bool) -> None:
    session.sparkContext.setLogLevel(level or ("WARN" if is_verbose else "ERROR"))
    if level is not None or is_verbose:
        return
    jvm = session.sparkContext._jvm  # noqa: SLF001 - Spark has no other way to the levels of single loggers
    if jvm is not None:
        log4j = jvm.org.apache.logging.log4j
        for logger in _LOUD:
            log4j.core.config.Configurator.setLevel(logger, log4j.Level.OFF)


class Sieve:
    """Keeps from standard error what Java and Spark say at each start. Whatever is started inside writes through it."""

    def __enter__(self) -> Self:
        sys.stderr.flush()
        self._kept = os.dup(2)
        reads, writes = os.pipe()
        os.dup2(writes, 2)
        os.close(writes)
        threading.Thread(target=_sift, args=(reads, os.dup(self._kept)), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        os.dup2(self._kept, 2)
        os.close(self._kept)


def _sift(reads: int, to: int) -> None:
    noise = tuple(one.encode() for one in _NOISE)
    with os.fdopen(reads, "rb") as lines:
        for line in lines:
            if not any(one in line for one in noise):
                os.write(to, line)
