"""Records as Parquet.

What is written is what Spark's file sink writes, with its log of files in `_spark_metadata`: who reads the folder with
Spark sees every record once, also after a crash in the middle of a micro-batch.
"""

import argparse

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from flotilla_spark.arguments import trigger
from flotilla_spark.claims import claim
from flotilla_spark.jobs.topics import read_stream
from flotilla_spark.running import StreamWork


def with_day(records: DataFrame) -> DataFrame:
    """Add the column by which records are put into folders: the day in UTC."""
    return records.withColumn("day", f.to_date("timestamp"))


def start(session: SparkSession, options: argparse.Namespace) -> StreamWork:
    """Start the query."""
    claim(session, "archive", options.checkpoint, options.to)
    records = read_stream(session, options, {"includeHeaders": "true"})
    writer = with_day(records).writeStream.format("parquet").partitionBy("topic", "day")
    writer = writer.option("path", options.to).option("checkpointLocation", options.checkpoint)
    return StreamWork(writer.queryName("archive").trigger(**trigger(options)).start())  # type: ignore[arg-type]
