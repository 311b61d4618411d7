"""Topics become partitioned Parquet: one folder for each topic and day. Exactly once, and it can be started again.

What is written is what Spark's file sink writes, with its log of files in `_spark_metadata`: who reads the folder with
Spark sees every record once, also after a crash in the middle of a micro-batch.
"""

import argparse
import sys
from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from flotilla_spark.arguments import add_run, add_topics, make_parser, make_session, read_stream


def with_day(records: DataFrame) -> DataFrame:
    """Add the column by which records are put into folders."""
    return records.withColumn("day", f.to_date("timestamp"))


def make_arguments() -> argparse.ArgumentParser:
    """Say what it takes."""
    parser = make_parser("archive", "Archive topics as Parquet, in folders by topic and day, exactly once.")
    add_topics(parser)
    parser.add_argument("--to", required=True, metavar="FOLDER", help="where the files go: a folder, or a URL")
    add_run(parser, needs_checkpoint=True)
    return parser


def main(arguments: Sequence[str]) -> int:
    """Run it."""
    options = make_arguments().parse_args(arguments)
    session = make_session("archive")
    records = read_stream(session, options, {"includeHeaders": "true"})
    writer = with_day(records).writeStream.format("parquet").partitionBy("topic", "day")
    writer = writer.option("path", options.to).option("checkpointLocation", options.checkpoint)
    trigger = {"availableNow": True} if options.once else {"processingTime": options.every}
    query = writer.trigger(**trigger).start()
    query.awaitTermination()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
