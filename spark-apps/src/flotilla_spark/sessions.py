"""The Spark session of an application: that of `spark-submit`, or a local one, with little output.

Settings of `spark-submit`, `PYSPARK_SUBMIT_ARGS` or `spark-defaults.conf` are kept.
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
    "spark.sql.session.timeZone": "UTC",  # days and windows do not depend on the machine
    "spark.ui.showConsoleProgress": "false",  # `pyspark` turns it on, and its bars mix with our output
}
_DEFAULTS = {
    "spark.sql.streaming.forceDeleteTempCheckpointLocation": "true",
    "spark.sql.streaming.stopTimeout": "30s",
}
_LOCAL = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),  # the default of 200 is for clusters
    "spark.executor.heartbeatInterval": "2s",  # delivers the metrics of `load`'s progress
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
# Loggers that print the stack trace of a failure, which is reported in one line.
_VERBOSE_LOGGERS = (
    "org.apache.spark.TaskContextImpl",
    "org.apache.spark.api.python",
    "org.apache.spark.executor.Executor",
    "org.apache.spark.scheduler",
    "org.apache.spark.sql.execution",
    "org.apache.spark.util.Utils",
)
_VERBOSE_PYTHON_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger", "py4j")


def make_session(name: str, *, is_verbose: bool) -> SparkSession:
    """Make a session. Tasks use this Python interpreter, unless PYSPARK_PYTHON names another."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if is_verbose:
        SparkContext._ensure_initialized()  # noqa: SLF001 - starts the JVM, which reads the configuration
    else:
        warnings.filterwarnings("ignore", module=r"pyspark\.")
        for logger in _VERBOSE_PYTHON_LOGGERS:
            logging.getLogger(logger).setLevel(logging.CRITICAL + 1)
        with StderrFilter():
            SparkContext._ensure_initialized()  # noqa: SLF001
    given = SparkConf()
    wanted = dict(_DEFAULTS)
    if str(given.get("spark.master", "local")).startswith("local"):
        wanted |= _LOCAL
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
    jvm = session.sparkContext._jvm  # noqa: SLF001 - the only way to levels of single loggers
    if jvm is not None:
        log4j = jvm.org.apache.logging.log4j
        for logger in _VERBOSE_LOGGERS:
            log4j.core.config.Configurator.setLevel(logger, log4j.Level.OFF)


def disable_logging(session: SparkSession, *, is_verbose: bool) -> None:
    """Turn off Spark's log before a query is stopped: interrupted tasks log irrelevant errors."""
    if not is_verbose and "SPARK_LOG_LEVEL" not in os.environ:
        session.sparkContext.setLogLevel("OFF")


class StderrFilter:
    """Filters the start-up messages of Java and Spark from standard error, also those of child processes."""

    def __enter__(self) -> Self:
        sys.stderr.flush()
        self._kept = os.dup(2)
        reads, writes = os.pipe()
        os.dup2(writes, 2)
        os.close(writes)
        threading.Thread(target=_copy_filtered, args=(reads, os.dup(self._kept)), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        os.dup2(self._kept, 2)
        os.close(self._kept)


def _copy_filtered(reads: int, to: int) -> None:
    noise = tuple(one.encode() for one in _NOISE)
    with os.fdopen(reads, "rb") as lines:
        for line in lines:
            if not any(one in line for one in noise):
                os.write(to, line)
