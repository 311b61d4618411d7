"""Counting of log lines.

State is bounded: a window is removed when it is complete, and written to the topic or to files at that time, once. The
table gets the changed counts after each micro-batch, and keeps the others itself.
"""

import argparse
import shutil
import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from flotilla_spark.arguments import connection_options, trigger
from flotilla_spark.jobs.topics import read_stream
from flotilla_spark.ownership import claim
from flotilla_spark.parsing import load_pattern, parse
from flotilla_spark.runner import StreamJob
from flotilla_spark.table import Group, Table
from pyspark_flotilla import in_order

UNPARSED = "(does not parse)"
_AHEAD_MAX = "INTERVAL 1 DAY"
_SECOND = "yyyy-MM-dd HH:mm:ss"
_CLEAR = "\033[2J\033[H"
_OTHER_LINES = 5  # lines of a terminal that are not rows


def count(lines: DataFrame, window: str, late: str) -> DataFrame:
    """Count parsed lines. Lines that do not parse are counted under a level of their own.

    One line from the future would complete all earlier windows. A line more than one day ahead of its record is
    therefore counted at the record's timestamp.
    """
    level = f.when(lines["problem"].isNotNull(), UNPARSED).otherwise(f.coalesce(lines["level"], f.lit("")))
    is_near = lines["time"] <= lines["timestamp"] + f.expr(_AHEAD_MAX)
    at = f.coalesce(f.when(is_near, lines["time"]), lines["timestamp"])
    named = lines.select(at.alias("time"), level.alias("level"), f.coalesce("source", f.lit("")).alias("source"))
    groups = named.withWatermark("time", late).groupBy(f.window("time", window), "level", "source")
    counted = groups.agg(f.count("*").alias("lines"))
    return counted.select(
        f.col("window.start").alias("from"), f.col("window.end").alias("to"), "level", "source", "lines"
    )


def to_records(counted: DataFrame) -> DataFrame:
    """Convert counts to JSON records with the source as the key, in a deterministic order, which Spark's is not."""
    ordered = in_order(counted, "from", "to", "level", "source")
    return ordered.select(f.col("source").alias("key"), f.to_json(f.struct("*")).alias("value"))


class Screen:
    """Prints the table: at each change, but only at the end for `--once` without a terminal."""

    def __init__(self, rows: int, *, is_once: bool) -> None:
        self.table = Table()
        self._rows = rows
        self._is_terminal = sys.stdout.isatty()
        self.is_deferred = is_once and not self._is_terminal

    def update(self, changed: DataFrame, _: int) -> None:
        """Add the changed counts of a micro-batch. Spark formats times, since Python would use the local time zone."""
        begin, end = f.date_format("from", _SECOND), f.date_format("to", _SECOND)
        rows = changed.select(begin.alias("from"), end.alias("to"), "level", "source", "lines").toLocalIterator()
        found = [(Group(row["from"], row["to"], row["level"], row["source"]), int(row["lines"])) for row in rows]
        self.table.update(found)
        if found and not self.is_deferred:
            self.draw()

    def draw(self) -> None:
        """Print the table."""
        text = self.table.draw(self._rows)
        if self._is_terminal:
            size = shutil.get_terminal_size()
            text = _CLEAR + self.table.draw(max(1, min(self._rows, size.lines - _OTHER_LINES)), size.columns)
        print(text, flush=True)  # noqa: T201 - the output of the application

    def mark_late(self) -> None:
        """Show in the table that late lines were not counted."""
        self.table.has_late = True


class TableJob(StreamJob):
    """A query that prints its table at the end, if it was not printed before."""

    def __init__(self, query: StreamingQuery, screen: Screen) -> None:
        super().__init__(query, screen.mark_late)
        self._screen = screen

    def summary(self) -> str:
        """Print the table if it was deferred; return the number of records."""
        if self._screen.is_deferred:
            self._screen.draw()
        return super().summary()


def start(session: SparkSession, options: argparse.Namespace) -> StreamJob:
    """Start the query."""
    pattern = load_pattern(session, options.pattern)
    if options.checkpoint is not None:
        claim(session, "log_stats", options.checkpoint, options.to_parquet, options.to_topic)
    counted = count(parse(read_stream(session, options), options.format, pattern), options.window, options.late)
    when = trigger(options)
    if options.to_topic is None and options.to_parquet is None:
        screen = Screen(options.rows, is_once=options.once)
        shown = counted.writeStream.outputMode("update").foreachBatch(screen.update)
        return TableJob(shown.trigger(**when).start(), screen)  # type: ignore[arg-type]
    if options.to_topic is not None:
        writer = to_records(counted).writeStream.format("flotilla")
        writer = writer.options(**connection_options(options), topic=options.to_topic)
    else:
        writer = counted.writeStream.format("parquet").option("path", options.to_parquet)
    writer = writer.outputMode("append").option("checkpointLocation", options.checkpoint)
    return StreamJob(writer.trigger(**when).start())  # type: ignore[arg-type]
