"""Rows of files as records, and how far that is."""

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

from flotilla_spark.arguments import source_options
from flotilla_spark.errors import ColumnInvalid

LINE = "line"
_PARTS = "16"
_SHOW_S, _SHOW_PLAIN_S = 0.5, 5.0
# As RFC 4180 has it: a quote is doubled, and a line may go on in quotes. Rows with too few or too many cells, and files
# whose columns differ, are refused: Spark would fill them up, or mix them.
_CSV = {"header": "true", "multiLine": "true", "escape": '"', "mode": "FAILFAST", "enforceSchema": "false"}


def read(session: SparkSession, paths: Sequence[str], format_: str) -> DataFrame:
    """Read files. JSON lines stay lines, so that records are what the files say, to the byte."""
    if format_ == "jsonl":
        lines = session.read.text(list(paths)).select(f.col("value").alias(LINE))
        return lines.where(f.trim(LINE) != "")
    reader = session.read.format(format_)
    return (reader.options(**_CSV) if format_ == "csv" else reader).load(list(paths))


def to_records(rows: DataFrame, options: argparse.Namespace) -> DataFrame:
    """Make records of rows; raises ColumnInvalid."""
    if options.format == "jsonl":
        fields = f.from_json(LINE, "map<string,string>")
        value = f.col(LINE) if options.value is None else fields.getItem(options.value)
        made = [value.cast("binary").alias("value")]
        if options.key is not None:
            made.append(fields.getItem(options.key).cast("binary").alias("key"))
        return rows.select(*made)
    for name in (options.value, options.key, options.headers):
        if name is not None and name not in rows.columns:
            raise ColumnInvalid(f"there is no column '{name}' in the files: there are {', '.join(rows.columns)}")
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
    """Write a column as bytes: texts as UTF-8, numbers and times as texts, what has parts as JSON."""
    kind = rows.schema[name].dataType
    if isinstance(kind, BinaryType):
        return _column(name)
    if isinstance(kind, ArrayType | MapType | StructType | VariantType):
        return f.to_json(_column(name)).cast("binary")
    return (_column(name) if isinstance(kind, StringType) else _column(name).cast("string")).cast("binary")


def fingerprint(session: SparkSession, options: argparse.Namespace) -> str:
    """Give a digest of all that tasks depend on: under one name, other files are another load, and none is left out."""
    files = session.read.format("binaryFile").load(list(options.paths)).select("path", "length", "modificationTime")
    read = sorted((row.path, row.length, row.modificationTime.timestamp()) for row in files.collect())
    columns = (options.format, options.value, options.key, options.headers, options.compression)
    shares = [session.conf.get(f"spark.sql.files.{name}") for name in ("maxPartitionBytes", "openCostInBytes")]
    return hashlib.sha256(json.dumps([read, columns, shares]).encode()).hexdigest()[:32]


class LoadWork:
    """A job that writes, in a thread, and tells how far it is."""

    def __init__(self, session: SparkSession, records: DataFrame, options: argparse.Namespace) -> None:
        self._session = session
        self._context = session.sparkContext
        self._seen = Observation("load")
        counted = records.observe(self._seen, f.count(f.lit(1)).alias("records"))
        writer = counted.write.format("flotilla").options(**source_options(options), topic=options.topic)
        self._writer = writer.option("includeHeaders", str(options.headers is not None).lower())
        self._writer = self._writer.option("compression", options.compression).mode("append")
        if options.run_id is not None:
            self._writer = self._writer.option("runId", f"{options.run_id} {fingerprint(session, options)}")
        again = "the next run begins at the beginning"
        self._next = again if options.run_id is None else "under the same --run-id, the next run loads what is missing"
        self._error: Exception | None = None
        self._is_done = False
        self._is_terminal = sys.stderr.isatty()
        self._shown_s = time.monotonic()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            # Java looks for sources written in Python in the session of its thread, and this is a new one.
            jvm: Any = self._context._jvm  # noqa: SLF001
            SparkSession._get_j_spark_session_class(jvm).setActiveSession(self._session._jsparkSession)  # noqa: SLF001
            self._writer.save()
            self._is_done = True
        except Exception as error:  # noqa: BLE001 - the main thread raises it
            self._error = error

    def wait(self, seconds: float) -> bool:
        """Wait, and show how far it is."""
        self._thread.join(seconds)
        if self._thread.is_alive():
            now_s = time.monotonic()
            if now_s - self._shown_s >= (_SHOW_S if self._is_terminal else _SHOW_PLAIN_S):
                self._shown_s = now_s
                self._show()
            return False
        if self._is_terminal:
            print("\r\033[K", end="", file=sys.stderr, flush=True)  # noqa: T201 - for people
        if self._error is not None:
            raise self._error
        return True

    def _show(self) -> None:
        text = describe(self._stage())
        if text is not None:
            begin, end = ("\r\033[K", "") if self._is_terminal else ("", "\n")
            print(f"{begin}flotilla-spark load: {text}", end=end, file=sys.stderr, flush=True)  # noqa: T201

    def _stage(self) -> tuple[int, int, int] | None:
        """Ask Spark about the stage that writes: parts that are done, all parts, records so far."""
        active = self._context.statusTracker().getActiveStageIds()
        if not active:
            return None
        store: Any = self._context._jsc.sc().statusStore()  # noqa: SLF001 - the tracker does not know records
        stage = store.lastStageAttempt(max(active))
        return stage.numCompleteTasks(), stage.numTasks(), stage.inputRecords()

    def stop(self) -> None:
        """Have it end: what is written stays."""
        self._context.cancelAllJobs()
        self._thread.join(30)

    def summary(self) -> str:
        """Tell how many records were written."""
        if not self._is_done:
            return f"it was not done: what was written stays, and {self._next}"
        return f"{self._seen.get['records']:,} records were written"


def describe(stage: tuple[int, int, int] | None) -> str | None:
    """Say how far it is."""
    if stage is None:
        return None
    done, parts, records = stage
    return f"{records:,} records, {done} of {parts} parts, {100 * done // max(parts, 1)} %"


def start(session: SparkSession, options: argparse.Namespace) -> LoadWork:
    """Start the job."""
    if options.run_id is not None:  # its tasks have to be the same, however many cores there are when it begins again
        session.conf.set("spark.sql.files.minPartitionNum", _PARTS)
    return LoadWork(session, to_records(read(session, options.paths, options.format), options), options)
