"""Ranges of records as Arrow record batches, as an Arrow table, or as a pandas frame; for both clients.

Chunks are fetched on the event loop and decoded elsewhere: in the caller's thread, or, for asynchronous callers, in a
worker thread. pyarrow and pandas are optional: they are imported on first use, and ExtraMissing names what to install.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

from flotilla.client.errors import DataInvalid, ExtraMissing, TableTooLarge
from flotilla.client.range_reader import RangeChunk, RangeReader
from flotilla.client.ranges import Range, RangeOptions
from flotilla.client.runner import Runner
from flotilla.records import BatchInvalid

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


def parse(topic: str, options: RangeOptions) -> tuple[Range, "pa.Schema"]:
    """Validate the user's options. Raises ConfigInvalid; ExtraMissing without pyarrow."""
    from flotilla.arrow import select  # noqa: PLC0415 - pyarrow is optional, and takes a while to load

    others: dict[str, Any] = {name: value for name, value in options.items() if name != "columns"}
    return Range.parse(topic, **others), select(options.get("columns"))


class TableBuilder:
    """Collects the chunks of a range for a table: partition by partition, each in order."""

    def __init__(self, wanted: Range, schema: "pa.Schema") -> None:
        self._wanted = wanted
        self._schema = schema
        self._batches: dict[int, list[pa.RecordBatch]] = {}
        self._bytes = 0

    def add(self, chunk: RangeChunk) -> None:
        """Decode and add a chunk. Raises DataInvalid, TableTooLarge."""
        for batch in to_arrow(chunk, self._schema):
            self._bytes += batch.nbytes
            self._batches.setdefault(chunk.topic_partition.partition, []).append(batch)
            if self._wanted.max_bytes is not None and self._bytes > self._wanted.max_bytes:
                raise TableTooLarge(
                    f"the table of topic '{chunk.topic_partition.topic}' exceeds max_bytes ({self._wanted.max_bytes}): "
                    "read fewer records or columns, raise max_bytes, or use iter_arrow"
                )

    def table(self) -> "pa.Table":
        """Build the table. Each batch is an Arrow chunk: no copy, and no size limit of an array."""
        import pyarrow as pa  # noqa: PLC0415 - as above

        batches = [batch for _, some in sorted(self._batches.items()) for batch in some]
        return pa.Table.from_batches(batches, self._schema)


def to_arrow(chunk: RangeChunk, schema: "pa.Schema") -> Iterator["pa.RecordBatch"]:
    """Decode a chunk to record batches. Raises DataInvalid."""
    from flotilla.arrow import to_record_batches  # noqa: PLC0415 - as above

    try:
        yield from to_record_batches(chunk.topic_partition, chunk.body, chunk.start, chunk.end, schema)
    except BatchInvalid as error:
        text = f"{chunk.topic_partition}: fetched data from offset {chunk.start} is damaged: {error}"
        raise DataInvalid(text) from error


# -- for asynchronous callers -------------------------------------------------------------------------------


async def iterate(reader: RangeReader, schema: "pa.Schema") -> AsyncIterator["pa.RecordBatch"]:
    """Iterate over the record batches of a range."""
    try:
        while (chunk := await reader.next()) is not None:
            batches = to_arrow(chunk, schema)
            while (batch := await asyncio.to_thread(next, batches, None)) is not None:
                yield batch
    finally:
        reader.stop()


async def collect(reader: RangeReader, wanted: Range, schema: "pa.Schema") -> "pa.Table":
    """Read the whole range as a table."""
    builder = TableBuilder(wanted, schema)
    try:
        while (chunk := await reader.next()) is not None:
            await asyncio.to_thread(builder.add, chunk)
    finally:
        reader.stop()
    return builder.table()


# -- for blocking callers -----------------------------------------------------------------------------------


def iterate_blocking(runner: Runner, reader: RangeReader, schema: "pa.Schema") -> Iterator["pa.RecordBatch"]:
    """Iterate over the record batches of a range."""
    try:
        while (chunk := runner.run(reader.next())) is not None:
            yield from to_arrow(chunk, schema)
    finally:
        _stop(runner, reader)


def collect_blocking(runner: Runner, reader: RangeReader, wanted: Range, schema: "pa.Schema") -> "pa.Table":
    """Read the whole range as a table."""
    builder = TableBuilder(wanted, schema)
    try:
        while (chunk := runner.run(reader.next())) is not None:
            builder.add(chunk)
    finally:
        _stop(runner, reader)
    return builder.table()


def _stop(runner: Runner, reader: RangeReader) -> None:
    if runner.is_usable:  # else the client was closed, and the reader with it
        runner.call_soon(reader.stop)


# -- pandas -------------------------------------------------------------------------------------------------


def load_pandas() -> None:
    """Import pandas before anything is fetched. Raises ExtraMissing."""
    try:
        import pandas as pd  # noqa: F401, PLC0415 - it is optional
    except ImportError as error:
        raise ExtraMissing("pandas", "pandas") from error


def to_pandas(table: "pa.Table") -> "pd.DataFrame":
    """Return a frame with the columns of the table, without a copy; the topic is categorical."""
    import pandas as pd  # noqa: PLC0415 - it is optional
    import pyarrow as pa  # noqa: PLC0415 - as above

    return table.to_pandas(types_mapper=lambda kind: None if pa.types.is_dictionary(kind) else pd.ArrowDtype(kind))
