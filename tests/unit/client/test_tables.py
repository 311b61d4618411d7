"""Tables made of pieces: in order, of any size, bounded where they are to be."""

import asyncio
import gc
import threading
import tracemalloc
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from flotilla import AsyncClient
from flotilla.arrow import SCHEMA
from flotilla.client import tables
from flotilla.client.errors import ClientClosed, DataInvalid, TableTooLarge
from flotilla.client.positions import Place
from flotilla.client.ranges import Range
from flotilla.client.reading import Piece, Reading
from flotilla.client.tables import Collected, collect, iterate, parse, to_arrow, to_pandas
from flotilla.records import Compression, assign, encode

MIB = 1 << 20


def a_piece(partition: int, values: list[bytes], base_offset: int = 0) -> Piece:
    batch = encode(values)
    assign(batch, base_offset, 0)
    return Piece(Place("t", partition), base_offset, base_offset + len(values), bytes(batch))


def test_partitions_follow_each_other_however_they_come() -> None:
    """A table is the same however fast servers answer."""
    collected = Collected(Range.parse("t"), SCHEMA)
    for partition, value, base_offset in [(1, b"c", 0), (0, b"a", 0), (1, b"d", 1), (0, b"b", 1)]:
        collected.add(a_piece(partition, [value], base_offset))
    table = collected.table()
    assert table["value"].to_pylist() == [b"a", b"b", b"c", b"d"]
    assert table["offset"].to_pylist() == [0, 1, 0, 1]


def test_a_table_may_be_larger_than_any_array_of_arrow() -> None:
    """Offsets of an array are 32 bits: 2 GiB and more are many chunks, and never one."""
    collected = Collected(Range.parse("t", max_bytes=None), SCHEMA)
    piece = a_piece(0, [bytes(7 * MIB // 100)] * 100)
    for _ in range(320):  # of the same bytes, so that the test does not need as much memory
        collected.add(piece)
    table = collected.table()
    assert (table.num_rows, table["value"].num_chunks) == (32_000, 320)
    assert pc.sum(pc.binary_length(table["value"]).cast(pa.int64())).as_py() > 2**31
    table.validate(full=True)


def test_a_table_that_takes_too_much_memory_is_stopped() -> None:
    """Whoever asks for more than there is room for is told what to do, and the process lives on."""
    collected = Collected(Range.parse("t", max_bytes=3 * MIB), SCHEMA)
    piece = a_piece(0, [bytes(10_000)] * 100)
    for _ in range(3):
        collected.add(piece)
    with pytest.raises(TableTooLarge, match=r"more than max_bytes \(3145728\).*fewer records or columns.*iter_arrow"):
        collected.add(piece)


def test_damage_is_told_with_its_place() -> None:
    """An error of the format becomes one of the client."""
    piece = a_piece(2, [b"value"] * 100)
    damaged = Piece(piece.place, 0, 100, piece.body[:-8] + b"12345678")
    with pytest.raises(DataInvalid, match="what was fetched of t, partition 2, from offset 0 on, is damaged"):
        list(to_arrow(damaged, SCHEMA))


def test_a_small_value_does_not_hold_what_was_packed_beside_it() -> None:
    """The limit is about memory: a kilobyte on the disk may be 32 megabytes of keys, and nobody asked for those."""
    wanted, schema = parse("t", {"columns": ["value"]})
    collected = Collected(wanted, schema)
    packed = bytes(encode([b"v"] * 100, keys=[bytes(30 * MIB)] + [b""] * 99, compression=Compression.ZSTD))
    tracemalloc.start()
    try:
        for _ in range(4):
            collected.add(Piece(Place("t", 0), 0, 100, packed))
        assert tracemalloc.get_traced_memory()[0] < 10 * MIB
    finally:
        tracemalloc.stop()
    assert collected.table().num_rows == 400


class FakeReading(Reading):
    """Two pieces, and that is all."""

    def __init__(self) -> None:
        self.left: list[Piece | None] = [a_piece(0, [b"a"] * 100), a_piece(0, [b"b"] * 100, 100), None]

    async def next(self) -> Piece | None:
        return self.left.pop(0)

    def stop(self) -> None:
        self.left.clear()


def test_a_loop_is_not_held_up_by_columns_that_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer of small batches takes a second to open; whatever else is on the loop goes on meanwhile."""
    threads = set()

    def watched(piece: Piece, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        threads.add(threading.get_ident())
        yield from to_arrow(piece, schema)

    async def read() -> tuple[pa.Table, list[int]]:
        batches = [len(batch) async for batch in iterate(FakeReading(), SCHEMA)]
        return await collect(FakeReading(), Range.parse("t"), SCHEMA), batches

    monkeypatch.setattr(tables, "to_arrow", watched)
    table, batches = asyncio.run(read())
    assert (table.num_rows, batches) == (200, [100, 100])
    assert threading.get_ident() not in threads


def test_whoever_never_begins_to_read_leaves_nothing_with_the_client() -> None:
    """A program that asks again and again does not grow."""

    async def ask() -> int:
        async with AsyncClient("http://127.0.0.1:1") as client:
            kept = client.iter_arrow("t")
            for _ in range(3):
                client.iter_arrow("t")
            gc.collect()
            left = len(client._readings)
            del kept
            return left

    assert asyncio.run(ask()) == 1


def test_whoever_reads_with_a_client_that_is_closed_is_told_at_once() -> None:
    """And does not wait for servers whom nobody asks."""

    async def read() -> None:
        async with AsyncClient("http://127.0.0.1:1") as client:
            pass
        with pytest.raises(ClientClosed):
            await client.read_arrow("t")
        with pytest.raises(ClientClosed):
            client.iter_arrow("t")

    asyncio.run(read())


def test_a_table_without_records_has_its_columns() -> None:
    """As a table, and as a frame."""
    wanted, schema = parse("t", {"columns": ["value", "topic"]})
    table = Collected(wanted, schema).table()
    assert (table.num_rows, table.schema.names) == (0, ["value", "topic"])
    assert list(to_pandas(table).columns) == ["value", "topic"]
