"""What a producer makes of what servers say, with a router that answers as it is told."""

import asyncio
import logging
import time

import pytest

from flotilla.client.errors import ClientClosed, DeliveryFailed, DeliveryUnknown, Refused, TopicMissing
from flotilla.records import Compression
from support.fakeengine import FakeEngine, failed, make, refused, send_apart


def test_sequences_count_records_and_each_has_its_receipt() -> None:
    async def test() -> None:
        engine = FakeEngine()
        async with make(engine) as producer:
            first = await producer.send_many("t", [b"1", b"2", b"3"])
            await producer.flush()
            second = await producer.send("t", b"4")
            assert [one.offset for one in await first] == [100, 101, 102]
            assert await second == ("t", 0, 200)
            assert producer.stats == (4, 0, 0, 0, 0, 2)
        assert [(got.epoch, got.sequence) for got in engine.got] == [(0, 0), (0, 3)]
        assert engine.looked_up == 1

    asyncio.run(test())


@pytest.mark.parametrize("end", [DeliveryFailed("no"), DeliveryUnknown("who knows")])
def test_after_a_batch_that_failed_or_is_unknown_a_new_epoch_begins(end: Exception) -> None:
    """A late copy of the batch must not end up behind its successors: partitions refuse what is of an older epoch."""

    async def test() -> None:
        engine = FakeEngine()
        engine.ends = [None, end]
        producer = make(engine)
        deliveries = await send_apart(producer, b"1", b"2", b"3", b"4")
        assert [(got.values, got.epoch, got.sequence) for got in engine.got] == [
            ([b"1"], 0, 0),
            ([b"2"], 0, 1),
            ([b"3"], 1, 0),
            ([b"4"], 1, 1),
        ]
        assert [type(one.exception()) for one in deliveries] == [type(None), type(end), type(None), type(None)]
        with pytest.raises(type(end)):
            await deliveries[1]
        assert producer.stats.acknowledged == 3
        await producer.close()

    asyncio.run(test())


@pytest.mark.parametrize("code", ["unknown_producer", "sequence_gap", "sequence_overlap", "sequence_reused"])
def test_a_batch_of_which_no_copy_can_be_stored_is_sent_again_under_a_new_epoch(code: str) -> None:
    """A partition that forgot the producer, after a long silence or with its disk, does not cost records."""

    async def test() -> None:
        engine = FakeEngine()
        engine.ends = [None, refused(code)]
        producer = make(engine)
        deliveries = await send_apart(producer, b"1", b"2", b"3")
        assert [(got.values, got.epoch, got.sequence) for got in engine.got] == [
            ([b"1"], 0, 0),
            ([b"2"], 0, 1),
            ([b"2"], 1, 0),
            ([b"3"], 1, 1),
        ]
        assert all(one.exception() is None for one in deliveries)
        await producer.close()

    asyncio.run(test())


def test_a_batch_in_doubt_is_not_sent_again_whatever_the_sequence() -> None:
    async def test() -> None:
        doubt = DeliveryUnknown("lost")
        doubt.__cause__ = Refused("forgot", "unknown_producer", {})
        engine = FakeEngine()
        engine.ends = [doubt]
        producer = make(engine)
        (delivery,) = await send_apart(producer, b"1")
        assert isinstance(delivery.exception(), DeliveryUnknown)
        assert len(engine.got) == 1
        await producer.close()

    asyncio.run(test())


def test_what_does_not_help_is_not_tried_for_ever() -> None:
    async def test() -> None:
        engine = FakeEngine()
        engine.ends = [refused("sequence_gap")] * 9
        producer = make(engine)
        (delivery,) = await send_apart(producer, b"1")
        assert isinstance(delivery.exception(), DeliveryFailed)
        assert [got.epoch for got in engine.got] == [0, 1, 2]
        engine.ends = [refused("epoch_stale"), refused("too_large")]
        await send_apart(producer, b"2", b"3")
        assert [got.values for got in engine.got[3:]] == [[b"2"], [b"3"]]
        await producer.close()

    asyncio.run(test())


def test_records_for_a_topic_that_was_removed_fail_and_later_ones_go_to_the_new_one() -> None:
    async def test() -> None:
        engine = FakeEngine()
        producer = make(engine)
        engine.gate.clear()
        first = await producer.send("t", b"old 1")
        await asyncio.sleep(0.01)
        second = await producer.send("t", b"old 2")
        engine.ends = [failed(TopicMissing("gone", "not_found", {}))]
        engine.info = None
        engine.gate.set()
        await producer.flush()
        assert isinstance(first.exception(), DeliveryFailed)
        assert isinstance(second.exception(), DeliveryFailed)
        assert [got.values for got in engine.got] == [[b"old 1"]]
        with pytest.raises(TopicMissing):
            await producer.send("t", b"nowhere")
        engine.info = engine.make(id_="id-2")
        receipt = await (await producer.send("t", b"new"))
        assert receipt.partition == 0
        assert [(got.topic_id, got.epoch, got.sequence) for got in engine.got[1:]] == [("id-2", 0, 0)]
        await producer.close()

    asyncio.run(test())


def test_a_topic_that_was_made_again_unnoticed_gets_new_records_only() -> None:
    async def test() -> None:
        engine = FakeEngine()
        producer = make(engine)
        await send_apart(producer, b"1")
        engine.info = engine.make(2, "id-2")
        await send_apart(producer, b"2")
        delivery = await producer.send("t", b"3", partition=1)
        await delivery
        assert [got.topic_id for got in engine.got] == ["id-1", "id-1", "id-2"]
        await producer.close()

    asyncio.run(test())


def test_a_record_that_could_not_be_sent_in_time_has_failed() -> None:
    async def test() -> None:
        engine = FakeEngine()
        producer = make(engine, delivery_s=0.05)
        engine.gate.clear()
        engine.ends = [DeliveryUnknown("late")]
        first = await producer.send("t", b"1")
        await asyncio.sleep(0.01)
        second = await producer.send("t", b"2")
        await asyncio.sleep(0.06)
        engine.gate.set()
        with pytest.raises(DeliveryUnknown):
            await first
        with pytest.raises(DeliveryFailed, match=r"within 0\.05 s"):
            await second
        assert len(engine.got) == 1
        await producer.close()

    asyncio.run(test())


def test_a_record_does_not_fail_early_because_it_came_to_older_ones() -> None:
    """Each record has its time for delivery, but for a tenth: while servers are away, parcels do not stay open."""

    async def test() -> None:
        engine = FakeEngine()
        producer = make(engine, delivery_s=0.5)
        engine.gate.clear()
        await producer.send("t", b"under way", partition=0)
        while producer.accumulator._topics["t"].lanes[0].open is not None:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0)
        waiting = [await producer.send("t", b"waits", partition=0)]
        began = producer.accumulator.pending()[-1]
        async with asyncio.timeout(10):
            while producer.accumulator.pending()[-1] is began:
                await asyncio.sleep(0.01)
                waiting.append(await producer.send("t", b"waits", partition=0))
        assert 1 < len(began) < len(waiting)
        engine.gate.set()
        await producer.flush()
        assert [value for got in engine.got for value in got.values] == [b"under way"] + [b"waits"] * len(waiting)
        await producer.close()

    asyncio.run(test())


def test_closing_settles_everything() -> None:
    async def test() -> None:
        engine = FakeEngine()
        producer = make(engine)
        engine.gate.clear()
        first = await producer.send("t", b"1")
        await asyncio.sleep(0.01)
        second = await producer.send("t", b"2")
        with pytest.raises(TimeoutError, match="still on their way"):
            await producer.flush(0.01)
        assert producer.stats.waiting == 2
        await producer.close(timeout_s=0.01)
        assert isinstance(first.exception(), DeliveryUnknown)
        assert isinstance(second.exception(), DeliveryFailed)
        assert producer.stats == (0, 1, 1, 0, 0, 2)
        with pytest.raises(ClientClosed):
            await producer.send("t", b"3")
        await producer.close()

    asyncio.run(test())


def test_a_producer_flushes_when_its_block_ends() -> None:
    async def test() -> None:
        engine = FakeEngine()
        async with make(engine, linger_s=30.0) as producer:
            delivery = await producer.send("t", b"1")
        assert delivery.done()

    asyncio.run(test())


def test_a_batch_lingers_for_more_records() -> None:
    async def test() -> None:
        engine = FakeEngine()
        producer = make(engine, linger_s=0.05)
        began = time.monotonic()
        first = await producer.send("t", b"1")
        await asyncio.sleep(0.01)
        second = await producer.send("t", b"2")
        await second
        assert first.done()
        assert 0.04 < time.monotonic() - began < 5
        assert [got.values for got in engine.got] == [[b"1", b"2"]]
        await producer.close()

    asyncio.run(test())


def test_compression_is_what_was_asked_for_or_what_the_topic_wishes() -> None:
    async def test() -> None:
        engine = FakeEngine(compression="zstd")
        for asked, size in (("none", 10), ("zstd", 10_000), ("auto", 1000), ("auto", 100_000)):
            async with make(engine, compression=asked) as producer:
                await producer.send("t", bytes(size))
        none, zstd = Compression.NONE, Compression.ZSTD
        assert [got.compression for got in engine.got] == [none, zstd, zstd, zstd]

    asyncio.run(test())


def test_the_log_tells_of_many_failures_in_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    """While servers are away, thousands of batches may fail at once: each delivery tells, and the log counts."""

    async def test() -> None:
        engine = FakeEngine()
        engine.ends = [DeliveryFailed("no"), *([DeliveryUnknown("who knows")] * 99)]
        producer = make(engine)
        await send_apart(producer, *(b"%d" % number for number in range(100)))
        assert len(caplog.messages) == 1
        await producer.close()

    asyncio.run(test())
    first, last = caplog.messages
    assert first.startswith("1 record did not get through, the last to partition 0 of 't': ")
    assert last == "99 records did not get through, the last to partition 0 of 't': who knows"


def test_a_mistake_of_ours_is_told_as_unknown_and_the_rest_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        engine = FakeEngine()
        engine.ends = [ZeroDivisionError("oops")]
        producer = make(engine)
        bad, good = await send_apart(producer, b"1", b"2")
        assert isinstance(bad.exception(), DeliveryUnknown)
        assert good.exception() is None
        await producer.close()

    with caplog.at_level(logging.ERROR):
        asyncio.run(test())
    assert "oops" in caplog.text
