"""Archiving of records as Parquet.

Spark's file sink lists committed files in `_spark_metadata`. A reader that uses Spark sees every record once, also
after a crash during a micro-batch.
"""

import argparse

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from flotilla_spark.arguments import trigger
from flotilla_spark.jobs.topics import read_stream
from flotilla_spark.ownership import claim
from flotilla_spark.runner import StreamJob


def with_day(records: DataFrame) -> DataFrame:
    """Add the column `day` (UTC), by which folders are partitioned."""
    return records.withColumn("day", f.to_date("timestamp"))


def start(session: SparkSession, options: argparse.Namespace) -> StreamJob:
    """Start the query."""
    claim(session, "archive", options.checkpoint, options.to)
    records = read_stream(session, options, {"includeHeaders": "true"})
    writer = with_day(records).writeStream.format("parquet").partitionBy("topic", "day")
    writer = writer.option("path", options.to).option("checkpointLocation", options.checkpoint)
    return StreamJob(writer.queryName("archive").trigger(**trigger(options)).start())  # type: ignore[arg-type]
