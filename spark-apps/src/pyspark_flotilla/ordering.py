"""Deterministic order of the rows of a task, for exactly-once writes."""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


def in_order(rows: "DataFrame", *columns: str) -> "DataFrame":
    """Sort the rows of each task by columns that identify a row.

    In a batch, use `sortWithinPartitions`, which Spark does not allow in streams. A task holds all its rows in memory.
    """
    if not columns:
        raise ValueError("in_order needs columns to sort by, which identify a row")
    return rows.mapInArrow(partial(_sort, columns), rows.schema)


def _sort(columns: tuple[str, ...], batches: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
    import pyarrow as pa  # noqa: PLC0415 - only tasks need it

    found = list(batches)
    if found:
        ordered = pa.Table.from_batches(found).sort_by([(name, "ascending") for name in columns])
        yield from ordered.combine_chunks().to_batches()
