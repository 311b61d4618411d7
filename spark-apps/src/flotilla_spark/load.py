"""Files become records: Parquet, CSV and JSON lines. Progress is shown while it runs.

Each row is a record: the column `--value` as it is, or, without that, the whole row as JSON.
"""

import argparse
import sys
import threading
from collections.abc import Sequence
from typing import Self

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from flotilla_spark.arguments import make_parser, make_session, source_options

_LOOK_S = 1.0


def to_records(rows: DataFrame, value: str | None, key: str | None) -> DataFrame:
    """Make records of rows."""
    content = f.col(value).cast("binary") if value is not None else f.to_json(f.struct("*")).cast("binary")
    made = [content.alias("value")]
    if key is not None:
        made.append(f.col(key).cast("string").cast("binary").alias("key"))
    return rows.select(*made)


def read(session: SparkSession, paths: Sequence[str], format_: str) -> DataFrame:
    """Read files."""
    reader = session.read.format({"jsonl": "json"}.get(format_, format_))
    if format_ == "csv":
        reader = reader.option("header", "true")
    return reader.load(list(paths))


class Progress:
    """Shows how many tasks are done, on standard error, until it is stopped."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        tracker = self._session.sparkContext.statusTracker()
        while not self._is_over.wait(_LOOK_S):
            for stage in tracker.getActiveStageIds():
                info = tracker.getStageInfo(stage)
                if info is not None:
                    text = f"load: {info.numCompletedTasks} of {info.numTasks} parts are written"
                    print(text, file=sys.stderr, flush=True)  # noqa: T201 - for people


def make_arguments() -> argparse.ArgumentParser:
    """Say what it takes."""
    parser = make_parser("load", "Load files into a topic.")
    parser.add_argument("topic", help="where records go; it has to be there")
    parser.add_argument("paths", nargs="+", metavar="PATH", help="files and folders, or URLs")
    parser.add_argument("--format", choices=("parquet", "csv", "jsonl"), default="parquet", help="of the files")
    parser.add_argument("--value", metavar="COLUMN", help="what the record is; by default the whole row, as JSON")
    parser.add_argument("--key", metavar="COLUMN", help="its key")
    parser.add_argument("--compression", choices=("none", "zstd", "auto"), default="auto", help="of batches")
    return parser


def main(arguments: Sequence[str]) -> int:
    """Run it."""
    options = make_arguments().parse_args(arguments)
    session = make_session("load")
    records = to_records(read(session, options.paths, options.format), options.value, options.key)
    writer = records.write.format("flotilla").options(**source_options(options), topic=options.topic)
    with Progress(session):
        writer.option("compression", options.compression).mode("append").save()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
