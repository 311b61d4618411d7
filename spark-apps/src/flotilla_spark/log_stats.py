"""How many lines of each level and source there are in each window of time: on the terminal, in a topic or as Parquet.

On the terminal, the last windows are a table that is drawn anew after each micro-batch. In a topic or as Parquet, a
window is written once, when no line of it can come any more: that is `--late` after its end.
"""

import argparse
import sys
from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from flotilla_spark.arguments import (
    add_format,
    add_run,
    add_topics,
    check_format,
    make_parser,
    make_session,
    read_stream,
    source_options,
)
from flotilla_spark.parsing import parse

_ROWS = 40
_UNREAD = "(does not parse)"


def count(lines: DataFrame, window: str, late: str) -> DataFrame:
    """Count parsed lines. Those that do not parse are a level of their own: they are lines, too."""
    level = f.when(lines["problem"].isNotNull(), _UNREAD).otherwise(f.coalesce(lines["level"], f.lit("")))
    at = f.coalesce(lines["time"], lines["timestamp"])
    named = lines.select(at.alias("time"), level.alias("level"), f.coalesce("source", f.lit("")).alias("source"))
    groups = named.withWatermark("time", late).groupBy(f.window("time", window), "level", "source")
    counted = groups.agg(f.count("*").alias("lines"))
    return counted.select(
        f.col("window.start").alias("from"), f.col("window.end").alias("to"), "level", "source", "lines"
    )


def to_records(counted: DataFrame) -> DataFrame:
    """Write counts as JSON, with the source as the key."""
    return counted.select(f.col("source").alias("key"), f.to_json(f.struct("*")).alias("value"))


def show(counted: DataFrame, number: int) -> None:
    """Draw the last windows."""
    rows = counted.orderBy(f.desc("from"), f.desc("lines")).limit(_ROWS).collect()
    if sys.stdout.isatty():
        print("\033[2J\033[H", end="")  # noqa: T201 - a terminal is what this is for
    print(f"batch {number}")  # noqa: T201
    print(f"{'from':19}  {'to':8}  {'level':16}  {'source':24}  {'lines':>10}")  # noqa: T201
    for row in rows:
        begin, end = f"{row['from']:%Y-%m-%d %H:%M:%S}", f"{row['to']:%H:%M:%S}"
        print(f"{begin}  {end}  {row['level'][:16]:16}  {row['source'][:24]:24}  {row['lines']:>10,}")  # noqa: T201
    sys.stdout.flush()


def make_arguments() -> argparse.ArgumentParser:
    """Say what it takes."""
    parser = make_parser("log_stats", "Count lines of logs by level and source, in windows of time.")
    add_topics(parser)
    add_format(parser)
    windows = parser.add_argument_group("windows")
    windows.add_argument("--window", default="1 minute", metavar="TIME", help="how long one is")
    windows.add_argument("--late", default="1 minute", metavar="TIME", help="how late lines may come")
    out = parser.add_argument_group("where the counts go; by default to the terminal").add_mutually_exclusive_group()
    out.add_argument("--to-topic", metavar="TOPIC", help="as JSON, when a window is over")
    out.add_argument("--to-parquet", metavar="FOLDER", help="as files, when a window is over")
    add_run(parser, needs_checkpoint=False)
    return parser


def start(counted: DataFrame, options: argparse.Namespace) -> StreamingQuery:
    """Start the query."""
    trigger = {"availableNow": True} if options.once else {"processingTime": options.every}
    if options.to_topic is not None:
        writer = to_records(counted).writeStream.outputMode("append").format("flotilla")
        writer = writer.options(**source_options(options), topic=options.to_topic)
    elif options.to_parquet is not None:
        writer = counted.writeStream.outputMode("append").format("parquet").option("path", options.to_parquet)
    else:
        writer = counted.writeStream.outputMode("complete").foreachBatch(show)
    if options.checkpoint is not None:
        writer = writer.option("checkpointLocation", options.checkpoint)
    return writer.trigger(**trigger).start()


def main(arguments: Sequence[str]) -> int:
    """Run it."""
    parser = make_arguments()
    options = parser.parse_args(arguments)
    check_format(parser, options)
    if (options.to_topic or options.to_parquet) and options.checkpoint is None:
        parser.error("--to-topic and --to-parquet need --checkpoint: without it, a run that begins again writes again")
    session = make_session("log_stats")
    lines = parse(read_stream(session, options), options.format, options.pattern)
    start(count(lines, options.window, options.late), options).awaitTermination()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
