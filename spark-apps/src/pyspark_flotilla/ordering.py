"""Rows in an order that is the same whenever a task runs, for writing them exactly once."""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


def in_order(rows: "DataFrame", *columns: str) -> "DataFrame":
    """Have the rows of each task sorted by columns that tell them apart.

    `sortWithinPartitions` does that for batches, and is not allowed in streams. A task holds all of its rows at once.
    """
    if not columns:
        raise ValueError("say by which columns rows are sorted: those that tell them apart")
    return rows.mapInArrow(partial(_sort, columns), rows.schema)


def _sort(columns: tuple[str, ...], batches: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
    import pyarrow as pa  # noqa: PLC0415 - only tasks need it

    found = list(batches)
    if found:
        ordered = pa.Table.from_batches(found).sort_by([(name, "ascending") for name in columns])
        yield from ordered.combine_chunks().to_batches()
