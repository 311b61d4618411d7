"""Appenders: batches with a producer id of the caller, with a router that returns configured outcomes."""

import asyncio
from typing import cast

import pytest

from flotilla.client.appender import AsyncAppender
from flotilla.client.engine import Engine
from flotilla.client.errors import ConfigInvalid, DeliveryFailed, DeliveryUnknown, RecordInvalid, Refused, TopicMissing
from flotilla.records import Column, Compression
from support.fakeengine import FakeEngine, failed, refused

ID = b"0123456789abcdef"


def make(engine: FakeEngine, epoch: int = 3, compression: str = "none") -> AsyncAppender:
    return AsyncAppender(cast("Engine", engine), ID, epoch, compression=compression)


def passed(remembered_from: int) -> DeliveryFailed:
    return failed(Refused("passed", "sequence_overlap", {"remembered_from": remembered_from}))


def reused(count: int) -> DeliveryFailed:
    return failed(Refused("reused", "sequence_reused", {"count": count}))


def test_appender_counts_sequences_per_partition() -> None:
    async def test() -> None:
        engine = FakeEngine(partitions=2)
        appender = make(engine)
        assert await appender.append("t", 0, [b"1", b"2"]) == 100
        assert await appender.append("t", 1, [b"3"]) == 200
        assert await appender.append("t", 0, [b"4"]) == 300
        found = [(got.partition, got.epoch, got.sequence, got.values) for got in engine.got]
        assert found == [(0, 3, 0, [b"1", b"2"]), (1, 3, 0, [b"3"]), (0, 3, 2, [b"4"])]

    asyncio.run(test())


def test_append_columns_sends_the_same_batch_as_append() -> None:
    async def test() -> None:
        engine = FakeEngine()
        appender = make(engine)
        values = Column(memoryview(bytes([0, 0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0])).cast("i"), memoryview(b"abb"))
        await appender.append_columns("t", 0, values)
        await appender.append_columns("t", 0, values, compression="zstd")
        assert [(got.sequence, got.values) for got in engine.got] == [(0, [b"a", b"bb"]), (2, [b"a", b"bb"])]
        with pytest.raises(RecordInvalid, match="must rise from 0"):
            await appender.append_columns("t", 0, Column(values.offsets[1:], values.data))

    asyncio.run(test())


def test_concurrent_appends_to_one_partition_are_sent_in_sequence_order() -> None:
    """Sequences are assigned in the order in which batches are stored."""

    async def test() -> None:
        engine = FakeEngine()
        appender = make(engine)
        await asyncio.gather(*(appender.append("t", 0, [b"%d" % at]) for at in range(5)))
        assert [(got.sequence, got.values) for got in engine.got] == [(at, [b"%d" % at]) for at in range(5)]

    asyncio.run(test())


def test_batch_before_the_remembered_sequences_counts_as_stored() -> None:
    """The same work stored everything before the sequences that a partition remembers."""

    async def test() -> None:
        engine = FakeEngine()
        engine.ends = [passed(remembered_from=2)]
        appender = make(engine)
        assert await appender.append("t", 0, [b"1", b"2"]) is None
        assert await appender.append("t", 0, [b"3"]) == 200
        assert [got.sequence for got in engine.got] == [0, 2]

    asyncio.run(test())


def test_batch_that_overlaps_remembered_sequences_is_sent_from_there() -> None:
    """Only the records before the remembered sequences count as stored."""

    async def test() -> None:
        engine = FakeEngine()
        engine.ends = [passed(remembered_from=1)]
        assert await make(engine).append("t", 0, [b"1", b"2"]) is None
        assert [(got.sequence, got.values) for got in engine.got] == [(0, [b"1", b"2"]), (1, [b"2"])]

    asyncio.run(test())


def test_appender_repeats_the_shorter_batch_of_an_interrupted_attempt() -> None:
    """The partition recognises the same batch, with its keys and headers; then the rest is sent."""

    async def test() -> None:
        engine = FakeEngine()
        engine.ends = [reused(count=1)]
        appender = make(engine)
        offsets = memoryview(bytes([0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0])).cast("i")
        some = memoryview(bytes([0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0])).cast("i")
        keys = Column(some, memoryview(b"k"), memoryview(bytes([0b010])))
        assert await appender.append_columns("t", 0, Column(offsets, memoryview(b"abc")), keys=keys) == 200
        assert [(got.sequence, got.values) for got in engine.got] == [
            (0, [b"a", b"b", b"c"]),
            (0, [b"a"]),
            (1, [b"b", b"c"]),
        ]
        assert await appender.append("t", 0, [b"d"]) == 400
        assert engine.got[-1].sequence == 3

    asyncio.run(test())


@pytest.mark.parametrize(
    "ends",
    [
        [refused("sequence_overlap")],
        [refused("sequence_reused")],
        [reused(count=2)],
        [reused(count=3)],
        [reused(count=1), reused(count=1)],
        [passed(remembered_from=0)],
    ],
)
def test_append_of_different_records_with_a_used_sequence_fails(ends: list[Exception | None]) -> None:
    """The work was not the same: it fails instead of storing records twice."""

    async def test() -> None:
        engine = FakeEngine()
        engine.ends = list(ends)
        with pytest.raises(DeliveryFailed):
            await make(engine).append("t", 0, [b"1", b"2"])
        assert engine.ends == []

    asyncio.run(test())


def test_appender_reuses_the_sequence_after_a_failure() -> None:
    async def test() -> None:
        engine = FakeEngine()
        engine.ends = [DeliveryUnknown("who knows")]
        appender = make(engine)
        with pytest.raises(DeliveryUnknown):
            await appender.append("t", 0, [b"1"])
        await appender.append("t", 0, [b"1"])
        assert [(got.epoch, got.sequence) for got in engine.got] == [(3, 0), (3, 0)]

    asyncio.run(test())


def test_appender_rejects_invalid_arguments() -> None:
    async def test() -> None:
        engine = FakeEngine()
        for producer_id in (b"short", bytes(16)):
            with pytest.raises(ConfigInvalid, match="must be 16 bytes"):
                AsyncAppender(cast("Engine", engine), producer_id, 0)
        with pytest.raises(ConfigInvalid, match="none or zstd"):
            make(engine, compression="gzip")
        with pytest.raises(RecordInvalid, match="at least one record"):
            await make(engine).append("t", 0, [])
        with pytest.raises(TopicMissing, match="topic 't' has no partition 5, only 0 to 0"):
            await make(engine).append("t", 5, [b"x"])
        await make(engine, compression="zstd").append("t", 0, [b"x" * 1000])
        assert engine.got[-1].compression is Compression.ZSTD

    asyncio.run(test())
