"""Lines, counted.

State is bounded: a window is forgotten when no line of it is waited for any more. For a topic or files it is written
then, once. The table gets what has changed after each micro-batch, and keeps the rest by itself.
"""

import argparse
import shutil
import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from flotilla_spark.arguments import source_options, trigger
from flotilla_spark.claims import claim
from flotilla_spark.drawing import Group, Table
from flotilla_spark.jobs.topics import read_stream
from flotilla_spark.parsing import load_pattern, parse
from flotilla_spark.running import StreamWork
from pyspark_flotilla import in_order

UNREAD = "(does not parse)"
_AHEAD = "INTERVAL 1 DAY"
_SECOND = "yyyy-MM-dd HH:mm:ss"
_CLEAR = "\033[2J\033[H"
_AROUND = 5  # lines of a terminal that are no rows


def count(lines: DataFrame, window: str, late: str) -> DataFrame:
    """Count parsed lines. Those that do not parse are a level of their own: they are lines, too.

    A line from the future would end all windows before it, and with them the counting of all others: where a line is
    more than a day ahead of its record, the record's time counts.
    """
    level = f.when(lines["problem"].isNotNull(), UNREAD).otherwise(f.coalesce(lines["level"], f.lit("")))
    is_near = lines["time"] <= lines["timestamp"] + f.expr(_AHEAD)
    at = f.coalesce(f.when(is_near, lines["time"]), lines["timestamp"])
    named = lines.select(at.alias("time"), level.alias("level"), f.coalesce("source", f.lit("")).alias("source"))
    groups = named.withWatermark("time", late).groupBy(f.window("time", window), "level", "source")
    counted = groups.agg(f.count("*").alias("lines"))
    return counted.select(
        f.col("window.start").alias("from"), f.col("window.end").alias("to"), "level", "source", "lines"
    )


def to_records(counted: DataFrame) -> DataFrame:
    """Write counts as JSON, with the source as the key; in an order of their own, as Spark's is by chance."""
    ordered = in_order(counted, "from", "to", "level", "source")
    return ordered.select(f.col("source").alias("key"), f.to_json(f.struct("*")).alias("value"))


class Screen:
    """Draws the table: on a terminal at each change, in a pipe too, but for a run that ends: there, at its end."""

    def __init__(self, rows: int, *, is_once: bool) -> None:
        self.table = Table()
        self._rows = rows
        self._is_terminal = sys.stdout.isatty()
        self.waits = is_once and not self._is_terminal

    def take(self, changed: DataFrame, _: int) -> None:
        """Take what a micro-batch has changed. Times are texts already: here they would be in this machine's zone."""
        begin, end = f.date_format("from", _SECOND), f.date_format("to", _SECOND)
        rows = changed.select(begin.alias("from"), end.alias("to"), "level", "source", "lines").toLocalIterator()
        found = [(Group(row["from"], row["to"], row["level"], row["source"]), int(row["lines"])) for row in rows]
        self.table.update(found)
        if found and not self.waits:
            self.show()

    def show(self) -> None:
        """Draw it."""
        text = self.table.draw(self._rows)
        if self._is_terminal:
            size = shutil.get_terminal_size()
            text = _CLEAR + self.table.draw(max(1, min(self._rows, size.lines - _AROUND)), size.columns)
        print(text, flush=True)  # noqa: T201 - it is what this is for

    def note_late(self) -> None:
        """Have the table say that it lacks lines."""
        self.table.has_late = True


class TableWork(StreamWork):
    """A query whose table is shown at its end, if it was not before."""

    def __init__(self, query: StreamingQuery, screen: Screen) -> None:
        super().__init__(query, screen.note_late)
        self._screen = screen

    def summary(self) -> str:
        """Show the table, and tell how many records were read."""
        if self._screen.waits:
            self._screen.show()
        return super().summary()


def start(session: SparkSession, options: argparse.Namespace) -> StreamWork:
    """Start the query."""
    pattern = load_pattern(session, options.pattern)
    if options.checkpoint is not None:
        claim(session, "log_stats", options.checkpoint, options.to_parquet, options.to_topic)
    counted = count(parse(read_stream(session, options), options.format, pattern), options.window, options.late)
    when = trigger(options)
    if options.to_topic is None and options.to_parquet is None:
        screen = Screen(options.rows, is_once=options.once)
        shown = counted.writeStream.outputMode("update").foreachBatch(screen.take)
        return TableWork(shown.trigger(**when).start(), screen)  # type: ignore[arg-type]
    if options.to_topic is not None:
        writer = to_records(counted).writeStream.format("flotilla")
        writer = writer.options(**source_options(options), topic=options.to_topic)
    else:
        writer = counted.writeStream.format("parquet").option("path", options.to_parquet)
    writer = writer.outputMode("append").option("checkpointLocation", options.checkpoint)
    return StreamWork(writer.trigger(**when).start())  # type: ignore[arg-type]
