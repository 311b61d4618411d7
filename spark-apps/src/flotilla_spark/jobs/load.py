"""Loading of files into a topic, with progress output."""

import argparse
import hashlib
import json
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import ArrayType, BinaryType, MapType, StringType, StructType, VariantType

from flotilla_spark.arguments import connection_options
from flotilla_spark.errors import ColumnInvalid

LINE = "line"
_TASKS_MIN = "16"
_PROGRESS_S, _PROGRESS_PLAIN_S = 0.5, 5.0
# RFC 4180: quotes are doubled, and quoted cells can contain line breaks. Rows with too few or too many cells, and
# files with different columns, are errors; by default Spark would fill or mix them.
_CSV = {"header": "true", "multiLine": "true", "escape": '"', "mode": "FAILFAST", "enforceSchema": "false"}


def read(session: SparkSession, paths: Sequence[str], format_: str) -> DataFrame:
    """Read files. JSON lines are read as text, so that records have the bytes of the file."""
    if format_ == "jsonl":
        lines = session.read.text(list(paths)).select(f.col("value").alias(LINE))
        return lines.where(f.trim(LINE) != "")
    reader = session.read.format(format_)
    return (reader.options(**_CSV) if format_ == "csv" else reader).load(list(paths))


def to_records(rows: DataFrame, options: argparse.Namespace) -> DataFrame:
    """Convert rows to records; raises ColumnInvalid."""
    if options.format == "jsonl":
        fields = f.from_json(LINE, "map<string,string>")
        value = f.col(LINE) if options.value is None else fields.getItem(options.value)
        made = [value.cast("binary").alias("value")]
        if options.key is not None:
            made.append(fields.getItem(options.key).cast("binary").alias("key"))
        return rows.select(*made)
    for name in (options.value, options.key, options.headers):
        if name is not None and name not in rows.columns:
            raise ColumnInvalid(f"no column '{name}' in the files; columns: {', '.join(rows.columns)}")
    whole = f.to_json(f.struct("*"), {"ignoreNullFields": "false"}).cast("binary")
    made = [(whole if options.value is None else _to_bytes(rows, options.value)).alias("value")]
    if options.key is not None:
        made.append(_to_bytes(rows, options.key).alias("key"))
    if options.headers is not None:
        made.append(_column(options.headers).alias("headers"))
    return rows.select(*made)


def _column(name: str) -> Column:
    return f.col("`" + name.replace("`", "``") + "`")


def _to_bytes(rows: DataFrame, name: str) -> Column:
    """Convert a column to bytes: text as UTF-8, numbers and times as text, nested values as JSON."""
    kind = rows.schema[name].dataType
    if isinstance(kind, BinaryType):
        return _column(name)
    if isinstance(kind, ArrayType | MapType | StructType | VariantType):
        return f.to_json(_column(name)).cast("binary")
    return (_column(name) if isinstance(kind, StringType) else _column(name).cast("string")).cast("binary")


def fingerprint(session: SparkSession, options: argparse.Namespace) -> str:
    """Return a digest of all inputs of the tasks, so that one run id with other files is another load."""
    files = session.read.format("binaryFile").load(list(options.paths)).select("path", "length", "modificationTime")
    read = sorted((row.path, row.length, row.modificationTime.timestamp()) for row in files.collect())
    columns = (options.format, options.value, options.key, options.headers, options.compression)
    shares = [session.conf.get(f"spark.sql.files.{name}") for name in ("maxPartitionBytes", "openCostInBytes")]
    return hashlib.sha256(json.dumps([read, columns, shares]).encode()).hexdigest()[:32]


class LoadJob:
    """A batch write in a thread, with progress output."""

    def __init__(self, session: SparkSession, records: DataFrame, options: argparse.Namespace) -> None:
        self._session = session
        self._context = session.sparkContext
        self._observation = Observation("load")
        counted = records.observe(self._observation, f.count(f.lit(1)).alias("records"))
        writer = counted.write.format("flotilla").options(**connection_options(options), topic=options.topic)
        self._writer = writer.option("includeHeaders", str(options.headers is not None).lower())
        self._writer = self._writer.option("compression", options.compression).mode("append")
        if options.run_id is not None:
            self._writer = self._writer.option("runId", f"{options.run_id} {fingerprint(session, options)}")
        again = "the next run loads all records again"
        self._next_run = (
            again if options.run_id is None else "the next run with the same --run-id loads the missing records"
        )
        self._error: Exception | None = None
        self._is_done = False
        self._is_terminal = sys.stderr.isatty()
        self._printed_s = time.monotonic()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            # Spark looks up Python data sources in the session of the current thread, and this thread is new.
            jvm: Any = self._context._jvm  # noqa: SLF001
            SparkSession._get_j_spark_session_class(jvm).setActiveSession(self._session._jsparkSession)  # noqa: SLF001
            self._writer.save()
            self._is_done = True
        except Exception as error:  # noqa: BLE001 - raised in the main thread
            self._error = error

    def wait(self, seconds: float) -> bool:
        """Wait, and print the progress from time to time."""
        self._thread.join(seconds)
        if self._thread.is_alive():
            now_s = time.monotonic()
            if now_s - self._printed_s >= (_PROGRESS_S if self._is_terminal else _PROGRESS_PLAIN_S):
                self._printed_s = now_s
                self._print_progress()
            return False
        if self._is_terminal:
            print("\r\033[K", end="", file=sys.stderr, flush=True)  # noqa: T201 - for terminals
        if self._error is not None:
            raise self._error
        return True

    def _print_progress(self) -> None:
        text = describe_progress(self._stage())
        if text is not None:
            begin, end = ("\r\033[K", "") if self._is_terminal else ("", "\n")
            print(f"{begin}flotilla-spark load: {text}", end=end, file=sys.stderr, flush=True)  # noqa: T201

    def _stage(self) -> tuple[int, int, int] | None:
        """Return completed tasks, all tasks and records of the running stage."""
        active = self._context.statusTracker().getActiveStageIds()
        if not active:
            return None
        store: Any = self._context._jsc.sc().statusStore()  # noqa: SLF001 - the tracker has no record counts
        stage = store.lastStageAttempt(max(active))
        return stage.numCompleteTasks(), stage.numTasks(), stage.inputRecords()

    def stop(self) -> None:
        """Cancel the job. Written records are kept."""
        self._context.cancelAllJobs()
        self._thread.join(30)

    def summary(self) -> str:
        """Return the number of written records."""
        if not self._is_done:
            return f"not finished: written records are kept, and {self._next_run}"
        return f"{self._observation.get['records']:,} records written"


def describe_progress(stage: tuple[int, int, int] | None) -> str | None:
    """Describe the progress; None if no stage is running."""
    if stage is None:
        return None
    done, parts, records = stage
    return f"{records:,} records, {done} of {parts} tasks, {100 * done // max(parts, 1)} %"


def start(session: SparkSession, options: argparse.Namespace) -> LoadJob:
    """Start the job."""
    if options.run_id is not None:  # repeated tasks must be the same for any number of cores
        session.conf.set("spark.sql.files.minPartitionNum", _TASKS_MIN)
    return LoadJob(session, to_records(read(session, options.paths, options.format), options), options)
