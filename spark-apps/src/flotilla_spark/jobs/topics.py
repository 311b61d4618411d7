"""Topics as streaming DataFrames."""

import argparse
from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession

from flotilla_spark.arguments import connection_options


def read_stream(session: SparkSession, options: argparse.Namespace, more: Mapping[str, str] | None = None) -> DataFrame:
    """Return a stream of the topics that the command line names."""
    given = {
        **connection_options(options),
        "subscribe": ",".join(options.topics),
        "startingOffsets": options.start,
        "failOnDataLoss": str(not options.allow_loss).lower(),
        **(more or {}),
    }
    if options.at_most is not None:
        given["maxOffsetsPerTrigger"] = str(options.at_most)
    return session.readStream.format("flotilla").options(**given).load()
