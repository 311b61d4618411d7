"""The two producers: who waits for what, in which thread."""

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

from flotilla.client.deliveries import Delivery
from flotilla.client.errors import BufferFull, ClientClosed, RecordInvalid
from flotilla.client.producer import AsyncProducer, Producer
from flotilla.client.runner import Runner
from support.fakeengine import FakeEngine, make


def test_whoever_sends_waits_for_room_or_is_told() -> None:
    """Memory is bounded: `buffer_bytes` is back pressure."""

    async def test() -> None:
        engine = FakeEngine()
        producer = make(engine, buffer_bytes=1000, batch_bytes=1000)
        engine.gate.clear()
        await producer.send("t", bytes(900))
        with pytest.raises(BufferFull):
            await producer.send("t", bytes(900), block=False)
        with pytest.raises(BufferFull, match=r"within 0\.01 s"):
            await producer.send("t", bytes(900), timeout_s=0.01)
        with pytest.raises(BufferFull) as caught:
            await producer.send_many("t", [bytes(20), bytes(900)], block=False)
        assert caught.value.deliveries is not None
        assert len(caught.value.deliveries) == 1
        waiting = asyncio.create_task(producer.send("t", bytes(800)))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        engine.gate.set()
        assert (await (await waiting)).partition == 0
        await producer.close()

    asyncio.run(test())


def test_a_partition_that_is_not_known_is_looked_up_once_before_anybody_is_refused() -> None:
    """Topics grow: what one knows of them may be old."""

    async def test() -> None:
        engine = FakeEngine(partitions=1)
        producer = make(engine)
        await producer.send("t", b"1")
        engine.info = engine.make(partitions=3)
        assert (await (await producer.send("t", b"2", partition=2))).partition == 2
        engine.info = engine.make(partitions=4)
        assert len(await producer.send_many("t", [b"3"], partition=3)) == 1
        before = engine.looked_up
        with pytest.raises(RecordInvalid, match="has 4 partitions, and no 4"):
            await producer.send("t", b"x", partition=4)
        assert engine.looked_up == before + 1
        await producer.close()

    asyncio.run(test())


def test_an_async_sender_that_never_waits_does_not_stop_the_loop() -> None:
    async def test() -> None:
        engine = FakeEngine()
        producer = make(engine)
        for _ in range(2000):
            last = await producer.send("t", b"x")
        assert len(engine.got) > 0
        await last
        await producer.close()

    asyncio.run(test())


def test_callbacks_get_each_delivery_and_those_that_raise_disturb_nobody(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        engine = FakeEngine()
        seen: list[int] = []

        def note(delivery: Delivery) -> None:
            seen.append(delivery.result().offset)
            raise ValueError("a mistake of the user")

        async with make(engine, on_delivery=note) as producer:
            await producer.send_many("t", [b"1", b"2"])
        assert seen == [100, 101]

    with caplog.at_level(logging.ERROR):
        asyncio.run(test())
    assert "a mistake of the user" in caplog.text


class Blocking:
    """A blocking producer on a loop in a thread."""

    def __init__(self, *, on_delivery: Callable[[Delivery], object] | None = None, **options: Any) -> None:  # noqa: ANN401 - any option
        self.runner = Runner()

        async def begin() -> tuple[FakeEngine, AsyncProducer]:
            engine = FakeEngine(4)
            return engine, make(engine, on_delivery=on_delivery, **options)

        self.engine, producer = self.runner.run(begin())
        self.producer = Producer(self.runner, producer)

    def close(self) -> None:
        self.producer.close(timeout_s=5)
        self.runner.close()


def test_threads_share_a_blocking_producer() -> None:
    world = Blocking(buffer_bytes=20_000, batch_bytes=5_000)
    found: list[Delivery] = []

    def send(name: int) -> None:
        values = [b"%d %d" % (name, number) for number in range(500)]
        found.extend(world.producer.send("t", value, key=value[-1:]) for value in values)

    threads = [threading.Thread(target=send, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    world.producer.flush(10)
    assert all(delivery.done() for delivery in found)
    assert world.producer.stats.acknowledged == 2000
    for name in range(4):
        for partition in range(4):
            values = [v for got in world.engine.got if got.partition == partition for v in got.values]
            mine = [int(value.split()[1]) for value in values if value.startswith(b"%d " % name)]
            assert mine == sorted(mine)
    world.close()


def test_a_blocking_sender_waits_for_room_or_is_told() -> None:
    world = Blocking(buffer_bytes=1000, batch_bytes=1000)
    world.runner.call_soon(world.engine.gate.clear)
    first = world.producer.send("t", bytes(900))
    with pytest.raises(BufferFull):
        world.producer.send("t", bytes(900), block=False)
    with pytest.raises(BufferFull):
        world.producer.send("t", bytes(900), timeout_s=0.01)
    with pytest.raises(BufferFull) as caught:
        world.producer.send_many("t", [bytes(20), bytes(900)], timeout_s=0.01)
    assert caught.value.deliveries is not None
    with pytest.raises(TimeoutError):
        world.producer.flush(0.01)
    threading.Timer(0.02, world.runner.call_soon, (world.engine.gate.set,)).start()
    assert world.producer.send("t", bytes(900)).result(5).offset
    assert first.done()
    world.close()


def test_a_callback_that_sends_when_there_is_no_room_is_told_instead_of_waiting_for_itself() -> None:
    trouble: list[Exception] = []

    def resend(_: Delivery) -> None:
        try:
            while True:
                world.producer.send("t", bytes(900))
        except Exception as error:  # noqa: BLE001 - whatever it is, the test looks at it
            trouble.append(error)

    world = Blocking(buffer_bytes=1000, batch_bytes=1000, on_delivery=resend)
    world.producer.send("t", b"x").result(5)
    world.close()
    assert isinstance(trouble[0], RuntimeError)
    with pytest.raises(ClientClosed):
        world.producer.send("t", b"x")


def test_a_sender_that_waits_for_room_learns_that_the_producer_was_closed() -> None:
    world = Blocking(buffer_bytes=1000, batch_bytes=1000)
    world.runner.call_soon(world.engine.gate.clear)
    world.producer.send("t", bytes(900))
    caught: list[BaseException] = []

    def send() -> None:
        try:
            world.producer.send("t", bytes(900))
        except ClientClosed as error:
            caught.append(error)

    thread = threading.Thread(target=send)
    thread.start()
    world.producer.close(timeout_s=0.1)
    thread.join(5)
    assert len(caught) == 1
    world.runner.close()
