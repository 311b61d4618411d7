"""Ranges of records as Arrow's record batches, as a table, and as a frame of pandas. Both clients have it.

Pieces are fetched on the loop, and become columns elsewhere: in the thread of whoever asks, or, if a loop asks, in one
beside it. pyarrow and pandas are optional: they are loaded when somebody wants a table, and whoever lacks them is told
what to install.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

from flotilla.client.errors import DataInvalid, ExtraMissing, TableTooLarge
from flotilla.client.ranges import Range, RangeOptions
from flotilla.client.reading import Piece, Reading
from flotilla.client.runner import Runner
from flotilla.records import BatchInvalid

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


def parse(topic: str, options: RangeOptions) -> tuple[Range, "pa.Schema"]:
    """Check what a user gives; raises ConfigInvalid, and ExtraMissing if there is no pyarrow."""
    from flotilla.arrow import select  # noqa: PLC0415 - pyarrow is optional, and takes a while to load

    others: dict[str, Any] = {name: value for name, value in options.items() if name != "columns"}
    return Range.parse(topic, **others), select(options.get("columns"))


class Collected:
    """The pieces of a range on their way to a table: partition by partition, each in order."""

    def __init__(self, wanted: Range, schema: "pa.Schema") -> None:
        self._wanted = wanted
        self._schema = schema
        self._batches: dict[int, list[pa.RecordBatch]] = {}
        self._bytes = 0

    def add(self, piece: Piece) -> None:
        """Take a piece. Raises DataInvalid, TableTooLarge."""
        for batch in to_arrow(piece, self._schema):
            self._bytes += batch.nbytes
            self._batches.setdefault(piece.place.partition, []).append(batch)
            if self._wanted.max_bytes is not None and self._bytes > self._wanted.max_bytes:
                raise TableTooLarge(
                    f"these records of '{piece.place.topic}' take more than max_bytes ({self._wanted.max_bytes}) as a "
                    "table: ask for fewer records or columns, raise max_bytes, or take them one by one with iter_arrow"
                )

    def table(self) -> "pa.Table":
        """Make a table of what came. Each batch is a chunk of it, so nothing is copied and nothing is too large."""
        import pyarrow as pa  # noqa: PLC0415 - as above

        batches = [batch for _, some in sorted(self._batches.items()) for batch in some]
        return pa.Table.from_batches(batches, self._schema)


def to_arrow(piece: Piece, schema: "pa.Schema") -> Iterator["pa.RecordBatch"]:
    """Turn what was fetched into columns. Raises DataInvalid."""
    from flotilla.arrow import to_record_batches  # noqa: PLC0415 - as above

    try:
        yield from to_record_batches(piece.place, piece.body, piece.start, piece.end, schema)
    except BatchInvalid as error:
        topic, partition = piece.place
        text = f"what was fetched of {topic}, partition {partition}, from offset {piece.start} on, is damaged: {error}"
        raise DataInvalid(text) from error


# -- on the loop --------------------------------------------------------------------------------------------


async def iterate(reading: Reading, schema: "pa.Schema") -> AsyncIterator["pa.RecordBatch"]:
    """Iterate over record batches."""
    try:
        while (piece := await reading.next()) is not None:
            batches = to_arrow(piece, schema)
            while (batch := await asyncio.to_thread(next, batches, None)) is not None:
                yield batch
    finally:
        reading.stop()


async def collect(reading: Reading, wanted: Range, schema: "pa.Schema") -> "pa.Table":
    """Read all of it."""
    collected = Collected(wanted, schema)
    try:
        while (piece := await reading.next()) is not None:
            await asyncio.to_thread(collected.add, piece)
    finally:
        reading.stop()
    return collected.table()


# -- in the thread of the user ------------------------------------------------------------------------------


def iterate_blocking(runner: Runner, reading: Reading, schema: "pa.Schema") -> Iterator["pa.RecordBatch"]:
    """Iterate over record batches."""
    try:
        while (piece := runner.run(reading.next())) is not None:
            yield from to_arrow(piece, schema)
    finally:
        _stop(runner, reading)


def collect_blocking(runner: Runner, reading: Reading, wanted: Range, schema: "pa.Schema") -> "pa.Table":
    """Read all of it."""
    collected = Collected(wanted, schema)
    try:
        while (piece := runner.run(reading.next())) is not None:
            collected.add(piece)
    finally:
        _stop(runner, reading)
    return collected.table()


def _stop(runner: Runner, reading: Reading) -> None:
    if runner.is_usable:  # else the client has ended, and the reading with it
        runner.call_soon(reading.stop)


# -- pandas -------------------------------------------------------------------------------------------------


def load_pandas() -> None:
    """Load pandas before anything is fetched; raises ExtraMissing."""
    try:
        import pandas as pd  # noqa: F401, PLC0415 - it is optional
    except ImportError as error:
        raise ExtraMissing("pandas", "pandas") from error


def to_pandas(table: "pa.Table") -> "pd.DataFrame":
    """Make a frame whose columns are those of the table, in its memory; the topic is a category."""
    import pandas as pd  # noqa: PLC0415 - it is optional
    import pyarrow as pa  # noqa: PLC0415 - as above

    return table.to_pandas(types_mapper=lambda kind: None if pa.types.is_dictionary(kind) else pd.ArrowDtype(kind))
