"""Tables from chunks: order, size and limits."""

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
from flotilla.client.positions import TopicPartition
from flotilla.client.range_reader import RangeChunk, RangeReader
from flotilla.client.ranges import Range
from flotilla.client.tables import TableBuilder, collect, iterate, parse, to_arrow, to_pandas
from flotilla.records import Compression, assign, encode

MIB = 1 << 20


def a_piece(partition: int, values: list[bytes], base_offset: int = 0) -> RangeChunk:
    batch = encode(values)
    assign(batch, base_offset, 0)
    return RangeChunk(TopicPartition("t", partition), base_offset, base_offset + len(values), bytes(batch))


def test_table_has_partitions_in_order_whatever_the_arrival() -> None:
    """A table is the same however fast servers answer."""
    builder = TableBuilder(Range.parse("t"), SCHEMA)
    for partition, value, base_offset in [(1, b"c", 0), (0, b"a", 0), (1, b"d", 1), (0, b"b", 1)]:
        builder.add(a_piece(partition, [value], base_offset))
    table = builder.table()
    assert table["value"].to_pylist() == [b"a", b"b", b"c", b"d"]
    assert table["offset"].to_pylist() == [0, 1, 0, 1]


def test_table_may_exceed_the_size_of_an_arrow_array() -> None:
    """Offsets of an array have 32 bits: a table of 2 GiB or more has several chunks."""
    builder = TableBuilder(Range.parse("t", max_bytes=None), SCHEMA)
    chunk = a_piece(0, [bytes(7 * MIB // 100)] * 100)
    for _ in range(320):  # of the same bytes, so that the test does not need as much memory
        builder.add(chunk)
    table = builder.table()
    assert (table.num_rows, table["value"].num_chunks) == (32_000, 320)
    assert pc.sum(pc.binary_length(table["value"]).cast(pa.int64())).as_py() > 2**31
    table.validate(full=True)


def test_table_above_max_bytes_raises() -> None:
    """The error says what to do."""
    builder = TableBuilder(Range.parse("t", max_bytes=3 * MIB), SCHEMA)
    chunk = a_piece(0, [bytes(10_000)] * 100)
    for _ in range(3):
        builder.add(chunk)
    with pytest.raises(TableTooLarge, match=r"exceeds max_bytes \(3145728\).*fewer records or columns.*iter_arrow"):
        builder.add(chunk)


def test_damaged_chunk_raises_data_invalid_with_partition_and_offset() -> None:
    chunk = a_piece(2, [b"value"] * 100)
    damaged = RangeChunk(chunk.topic_partition, 0, 100, chunk.body[:-8] + b"12345678")
    with pytest.raises(DataInvalid, match="t-2: fetched data from offset 0 is damaged"):
        list(to_arrow(damaged, SCHEMA))


def test_small_value_does_not_retain_decompressed_keys() -> None:
    """`max_bytes` limits memory: a kilobyte on disk may be 32 megabytes of keys that are not selected."""
    wanted, schema = parse("t", {"columns": ["value"]})
    builder = TableBuilder(wanted, schema)
    packed = bytes(encode([b"v"] * 100, keys=[bytes(30 * MIB)] + [b""] * 99, compression=Compression.ZSTD))
    tracemalloc.start()
    try:
        for _ in range(4):
            builder.add(RangeChunk(TopicPartition("t", 0), 0, 100, packed))
        assert tracemalloc.get_traced_memory()[0] < 10 * MIB
    finally:
        tracemalloc.stop()
    assert builder.table().num_rows == 400


class FakeReading(RangeReader):
    """Two chunks, and that is all."""

    def __init__(self) -> None:
        self.left: list[RangeChunk | None] = [a_piece(0, [b"a"] * 100), a_piece(0, [b"b"] * 100, 100), None]

    async def next(self) -> RangeChunk | None:
        return self.left.pop(0)

    def stop(self) -> None:
        self.left.clear()


def test_decoding_does_not_run_on_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decoding a response of small batches takes a second; other tasks continue meanwhile."""
    threads = set()

    def watched(chunk: RangeChunk, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        threads.add(threading.get_ident())
        yield from to_arrow(chunk, schema)

    async def read() -> tuple[pa.Table, list[int]]:
        batches = [len(batch) async for batch in iterate(FakeReading(), SCHEMA)]
        return await collect(FakeReading(), Range.parse("t"), SCHEMA), batches

    monkeypatch.setattr(tables, "to_arrow", watched)
    table, batches = asyncio.run(read())
    assert (table.num_rows, batches) == (200, [100, 100])
    assert threading.get_ident() not in threads


def test_unused_readers_are_not_retained_by_the_client() -> None:
    async def ask() -> int:
        async with AsyncClient("http://127.0.0.1:1") as client:
            kept = client.iter_arrow("t")
            for _ in range(3):
                client.iter_arrow("t")
            gc.collect()
            left = len(client._readers)
            del kept
            return left

    assert asyncio.run(ask()) == 1


def test_reading_with_a_closed_client_raises_at_once() -> None:
    """Without waiting for servers."""

    async def read() -> None:
        async with AsyncClient("http://127.0.0.1:1") as client:
            pass
        with pytest.raises(ClientClosed):
            await client.read_arrow("t")
        with pytest.raises(ClientClosed):
            client.iter_arrow("t")

    asyncio.run(read())


def test_empty_table_has_its_columns() -> None:
    wanted, schema = parse("t", {"columns": ["value", "topic"]})
    table = TableBuilder(wanted, schema).table()
    assert (table.num_rows, table.schema.names) == (0, ["value", "topic"])
    assert list(to_pandas(table).columns) == ["value", "topic"]
