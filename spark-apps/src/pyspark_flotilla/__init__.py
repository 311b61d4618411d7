"""Flotilla as a data source of Spark: `spark.read.format("flotilla")`, and readStream, write and writeStream.

Spark finds this package by its name, so nothing has to be registered. Options and columns are those of Kafka's source.

Reading order: `options` (what users say), `offsets` (which records that means, and who reads them), `columns` (records
become rows) and `cutting` (rows become batches) are pure; `reading` and `writing` are what Spark calls; `source` ties
them together. `ordering` is for streams that write what comes out of a shuffle.
"""

from pyspark_flotilla.ordering import in_order
from pyspark_flotilla.source import FlotillaSource as DefaultSource

__all__ = ["DefaultSource", "in_order"]
