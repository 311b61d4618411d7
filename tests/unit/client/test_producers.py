"""The two producers: what they wait for, and in which thread."""

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


def test_send_waits_for_buffer_space_or_raises_buffer_full() -> None:
    """Memory is bounded: `buffer_bytes` is back pressure."""

    async def test() -> None:
        engine = FakeEngine()
        producer = make(engine, buffer_bytes=1000, batch_bytes=1000)
        engine.gate.clear()
        await producer.send("t", bytes(900))
        full = r"the buffer is full: 924 bytes of buffer_bytes=1000 await their outcome; wait for deliveries, or raise"
        for block, timeout_s in ((False, None), (False, 9.0), (True, 0.0)):
            with pytest.raises(BufferFull, match=full):
                await producer.send("t", bytes(900), block=block, timeout_s=timeout_s)
        with pytest.raises(BufferFull, match=r"buffer stayed full for 0\.01 s"):
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


def test_unknown_partition_refreshes_metadata_once_before_it_raises() -> None:
    """Topics grow: cached metadata may be stale."""

    async def test() -> None:
        engine = FakeEngine(partitions=1)
        producer = make(engine)
        await producer.send("t", b"1")
        engine.info = engine.make(partitions=3)
        assert (await (await producer.send("t", b"2", partition=2))).partition == 2
        engine.info = engine.make(partitions=4)
        assert len(await producer.send_many("t", [b"3"], partition=3)) == 1
        before = engine.looked_up
        with pytest.raises(RecordInvalid, match="has no partition 4, only 0 to 3"):
            await producer.send("t", b"x", partition=4)
        assert engine.looked_up == before + 1
        await producer.close()

    asyncio.run(test())


def test_async_send_in_a_loop_yields_to_other_tasks() -> None:
    async def test() -> None:
        engine = FakeEngine()
        producer = make(engine)
        for _ in range(2000):
            last = await producer.send("t", b"x")
        assert len(engine.got) > 0
        await last
        await producer.close()

    asyncio.run(test())


def test_on_delivery_gets_each_delivery_and_its_exceptions_are_logged(caplog: pytest.LogCaptureFixture) -> None:
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


def test_blocking_send_waits_for_buffer_space_or_raises_buffer_full() -> None:
    world = Blocking(buffer_bytes=1000, batch_bytes=1000)
    world.runner.call_soon(world.engine.gate.clear)
    first = world.producer.send("t", bytes(900))
    with pytest.raises(BufferFull, match="the buffer is full: 924 bytes of buffer_bytes=1000 await their outcome"):
        world.producer.send("t", bytes(900), block=False)
    with pytest.raises(BufferFull, match=r"buffer stayed full for 0\.01 s"):
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


def test_send_in_a_callback_with_full_buffer_raises_instead_of_deadlocking() -> None:
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


def test_send_that_waits_for_buffer_space_raises_when_the_producer_closes() -> None:
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
