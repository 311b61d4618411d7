"""Spark data source: `spark.read.format("flotilla")`, readStream, write and writeStream.

Spark finds this package by its name, so no registration is needed. Options and columns are those of Spark's Kafka
source.

Reading order: `options` (parsing of options), `offsets` (offset ranges of queries and tasks), `columns` (records to
rows) and `batching` (rows to batches) are pure; `readers` and `writers` implement the interfaces of Spark; `source` is
the entry point. `ordering` sorts rows after a shuffle, for exactly-once writes.
"""

from pyspark_flotilla.ordering import in_order
from pyspark_flotilla.source import FlotillaSource as DefaultSource

__all__ = ["DefaultSource", "in_order"]
