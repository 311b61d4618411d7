"""The sender of a producer, with a router that returns configured outcomes."""

import asyncio
import logging
import time

import pytest

from flotilla.client.errors import ClientClosed, DeliveryFailed, DeliveryUnknown, Refused, TopicMissing
from flotilla.records import Compression
from support.fakeengine import FakeEngine, failed, make, refused, send_apart


def test_sender_counts_sequences_and_returns_receipts() -> None:
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
def test_failed_or_unknown_batch_starts_a_new_epoch(end: Exception) -> None:
    """A delayed copy of the batch must not be stored after its successors: partitions reject older epochs."""

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
def test_batch_with_sequence_error_that_is_not_stored_is_sent_with_a_new_epoch(code: str) -> None:
    """A partition that lost the producer's state, by expiry or with its disk, loses no records."""

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


def test_batch_in_doubt_is_not_sent_with_a_new_epoch() -> None:
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


def test_epoch_bumps_per_batch_are_limited() -> None:
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


def test_records_for_a_deleted_topic_fail_and_later_ones_go_to_the_new_topic() -> None:
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


def test_recreated_topic_gets_only_new_records() -> None:
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


def test_record_that_was_not_sent_within_delivery_s_fails() -> None:
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
        with pytest.raises(DeliveryFailed, match=r"within delivery_s \(0\.05 s\)"):
            await second
        assert len(engine.got) == 1
        await producer.close()

    asyncio.run(test())


def test_record_in_an_older_batch_keeps_its_delivery_time() -> None:
    """Up to a tenth of `delivery_s`: while servers are unavailable, batches do not stay open."""

    async def test() -> None:
        engine = FakeEngine()
        producer = make(engine, delivery_s=0.5)
        engine.gate.clear()
        await producer.send("t", b"in flight", partition=0)
        while producer._accumulator._topics["t"].queues[0].open is not None:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0)
        waiting = [await producer.send("t", b"waits", partition=0)]
        began = producer._accumulator.pending()[-1]
        async with asyncio.timeout(10):
            while producer._accumulator.pending()[-1] is began:
                await asyncio.sleep(0.01)
                waiting.append(await producer.send("t", b"waits", partition=0))
        assert 1 < len(began) < len(waiting)
        engine.gate.set()
        await producer.flush()
        assert [value for got in engine.got for value in got.values] == [b"in flight"] + [b"waits"] * len(waiting)
        await producer.close()

    asyncio.run(test())


def test_close_settles_all_records() -> None:
    async def test() -> None:
        engine = FakeEngine()
        producer = make(engine)
        engine.gate.clear()
        first = await producer.send("t", b"1")
        await asyncio.sleep(0.01)
        second = await producer.send("t", b"2")
        with pytest.raises(TimeoutError, match=r"some records have no outcome after 0\.01 s"):
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


def test_producer_flushes_at_the_end_of_its_with_block() -> None:
    async def test() -> None:
        engine = FakeEngine()
        async with make(engine, linger_s=30.0) as producer:
            delivery = await producer.send("t", b"1")
        assert delivery.done()

    asyncio.run(test())


def test_batch_lingers_for_more_records() -> None:
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


def test_compression_is_the_option_or_the_topic_setting() -> None:
    async def test() -> None:
        engine = FakeEngine(compression="zstd")
        for asked, size in (("none", 10), ("zstd", 10_000), ("auto", 1000), ("auto", 100_000)):
            async with make(engine, compression=asked) as producer:
                await producer.send("t", bytes(size))
        none, zstd = Compression.NONE, Compression.ZSTD
        assert [got.compression for got in engine.got] == [none, zstd, zstd, zstd]

    asyncio.run(test())


def test_failures_are_logged_in_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    """While servers are unavailable, thousands of batches may fail at once: the log counts them."""
    caplog.set_level(logging.WARNING, "flotilla.client.sender")  # commands of other tests may have raised it

    async def test() -> None:
        engine = FakeEngine()
        engine.ends = [DeliveryFailed("no"), *([DeliveryUnknown("who knows")] * 99)]
        producer = make(engine)
        await send_apart(producer, *(b"%d" % number for number in range(100)))
        assert len(caplog.messages) == 1
        await producer.close()

    asyncio.run(test())
    first, last = caplog.messages
    assert first.startswith("deliveries failed or unknown records=1 last_partition=t-0 last_error=")
    assert last == "deliveries failed or unknown records=99 last_partition=t-0 last_error='who knows'"


def test_close_logs_the_records_without_an_acknowledgement(caplog: pytest.LogCaptureFixture) -> None:
    """A program that checks no delivery would not notice that they are lost: those in flight, and those not sent."""
    caplog.set_level(logging.WARNING, "flotilla.client.sender")  # commands of other tests may have raised it

    async def test() -> None:
        engine = FakeEngine()
        producer = make(engine, batch_bytes=1000)
        engine.gate.clear()
        await producer.send("t", b"in flight")
        await asyncio.sleep(0.01)
        await producer.send_many("t", [bytes(600)] * 5)
        await producer.close(timeout_s=0.01)
        assert producer.stats == (0, 5, 1, 0, 0, 6)

    asyncio.run(test())
    first, last = caplog.messages
    assert first.startswith("deliveries failed or unknown records=1 last_partition=t-0 ")
    assert first.endswith("last_error='the producer was closed before the server responded'")
    assert last.startswith("deliveries failed or unknown records=5 last_partition=t-0 ")
    assert last.endswith("last_error='the producer was closed before the records were sent'")


def test_internal_error_is_an_unknown_outcome_and_the_sender_continues(caplog: pytest.LogCaptureFixture) -> None:
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
