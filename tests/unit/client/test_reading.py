"""A range as it is fetched: complete, in order, bounded, and ended cleanly, whatever happens meanwhile."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from flotilla.arrow import to_record_batches
from flotilla.client import reading as module
from flotilla.client.cluster import TopicInfo
from flotilla.client.engine import Engine
from flotilla.client.errors import ClientClosed, DataInvalid, OffsetOutOfRange, ServerUnreachable, TopicMissing
from flotilla.client.ranges import Range
from flotilla.client.reading import Piece, Reading
from flotilla.client.routing import Fetched
from support.fakepartition import FakePartition, FakeRouter, topic_of

WAIT_S = 30.0


class FakeEngine:
    """A client without connections."""

    def __init__(self, router: FakeRouter) -> None:
        self.router = router
        self.cluster = self
        self.clock = asyncio.get_running_loop().time
        self.config = SimpleNamespace(request_s=0.2)

    async def refresh(self, _: str) -> TopicInfo:
        return topic_of(self.router)

    def read(self, **options: Any) -> Reading:  # noqa: ANN401 - as a range has them
        return Reading(cast("Engine", self), Range.parse("t", **options))


def run(test: Callable[[FakeEngine], Awaitable[None]], *partitions: FakePartition) -> None:
    async def main() -> None:
        async with asyncio.timeout(WAIT_S):
            await test(FakeEngine(FakeRouter(*partitions)))

    asyncio.run(main())


def a_partition(*counts: int, padding: int = 0) -> FakePartition:
    partition = FakePartition()
    for count in counts:
        partition.append(count, padding)
    return partition


def offsets_of(piece: Piece) -> list[int]:
    batches = to_record_batches(piece.place, piece.body, piece.start, piece.end)
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


async def all_offsets(reading: Reading) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    while (piece := await reading.next()) is not None:
        found.setdefault(piece.place.partition, []).extend(offsets_of(piece))
    return found


def test_every_record_of_the_range_comes_once_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over many answers, partitions, and batches that begin before the range or end behind it."""
    monkeypatch.setattr(module, "FETCH_BYTES", 1)  # a batch in each answer

    async def test(engine: FakeEngine) -> None:
        expected = {at: list(range(4, 11)) for at in range(20)} | {3: [4, 5]}
        assert await all_offsets(engine.read(start=4, end=11)) == expected

    partitions = [a_partition(3, 3, 1, 1, 5, 2) for _ in range(20)]
    partitions[3] = a_partition(6)
    run(test, *partitions)


def test_latest_is_what_is_there_when_it_begins() -> None:
    """The result is well defined while others produce."""

    async def test(engine: FakeEngine) -> None:
        reading = engine.read()
        await reading.begin()
        engine.router.partitions[0].append(3)
        assert await all_offsets(reading) == {0: [0, 1]}
        assert await reading.next() is None

    run(test, a_partition(2))


def test_where_there_is_nothing_nothing_comes() -> None:
    """An empty partition, an empty range, a range that lies behind the end."""

    async def test(engine: FakeEngine) -> None:
        for options in ({"partitions": [0]}, {"start": 2, "end": 2}, {"start": 5}, {"start": "latest"}, {"end": 0}):
            assert await all_offsets(engine.read(**options)) == {}, options

    run(test, a_partition(), a_partition(2))


def test_a_partition_that_is_not_there_is_named() -> None:
    """Nothing is left out in silence."""

    async def test(engine: FakeEngine) -> None:
        with pytest.raises(TopicMissing, match="there is no partition 3 of 't': it has 1"):
            await engine.read(partitions=[0, 3]).next()

    run(test, a_partition(2))


def test_records_that_are_gone_are_told_or_left_out_as_asked(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever names an offset gets it, or an error that says how many are missing."""

    async def test(engine: FakeEngine) -> None:
        engine.router.partitions[0].first = 3
        with pytest.raises(OffsetOutOfRange, match="2 records of 't', partition 0, from offset 1 on, were removed"):
            await engine.read(start=1).next()
        assert await all_offsets(engine.read(start=1, end=5, on_gone="earliest")) == {0: [3, 4]}
        assert "2 records from offset 1 on were removed, and are left out" in caplog.text
        assert await all_offsets(engine.read()) == {0: [3, 4, 5]}

    run(test, a_partition(3, 3))


@pytest.mark.parametrize("on_gone", ["raise", "earliest"])
def test_records_that_vanish_while_they_are_read_are_told_or_left_out_as_asked(
    on_gone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table never has a hole that nobody knows of; `earliest` may begin later, as long as nothing was read."""
    monkeypatch.setattr(module, "FETCH_BYTES", 1)

    async def test(engine: FakeEngine) -> None:
        (partition,) = engine.router.partitions
        reading = engine.read(on_gone=on_gone)
        await reading.begin()
        partition.first = 2
        first = await reading.next()
        assert first is not None
        assert offsets_of(first) == [2, 3]
        partition.first = 90
        rest = all_offsets(reading)
        if on_gone == "earliest":
            assert (await rest)[0][-10:] == list(range(90, 100))
        else:
            with pytest.raises(OffsetOutOfRange, match="were removed"):
                await rest

    run(test, a_partition(*[2] * 50))


def test_memory_is_bounded_however_slow_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some partitions at a time, an answer each, and a few that wait."""
    monkeypatch.setattr(module, "FETCH_BYTES", 1)

    async def test(engine: FakeEngine) -> None:
        reading = engine.read()
        await reading.next()
        for _ in range(100):
            await asyncio.sleep(0)
        asked = [query for _, query, max_bytes in engine.router.asked if query != "offset=latest"]
        assert len(asked) <= module.PARTITIONS_MAX + module._AHEAD_MAX + 1
        assert sum(map(len, (await all_offsets(reading)).values())) == 20 * 10 - 1

    run(test, *[a_partition(*[1] * 10) for _ in range(20)])


def test_what_goes_wrong_is_told_and_ends_it() -> None:
    """Whoever waits does not wait for ever."""

    async def test(engine: FakeEngine) -> None:
        reading = engine.read()
        await reading.begin()
        engine.router.trouble = ServerUnreachable("nobody is there")
        with pytest.raises(ServerUnreachable, match="nobody is there"):
            await reading.next()
        assert reading.is_closed
        with pytest.raises(ClientClosed):
            await reading.next()

    run(test, a_partition(2), a_partition(2))


def test_a_partition_that_has_less_than_before_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records that were seen come back with the next leader, or an error says that nobody has them."""
    monkeypatch.setattr(module, "_WAIT_S", 0.05)

    async def test(engine: FakeEngine) -> None:
        (partition,) = engine.router.partitions
        reading = engine.read()
        await reading.begin()
        partition.batches.clear()
        with pytest.raises(ServerUnreachable, match="nobody has offset 0"):
            await reading.next()

    run(test, a_partition(2))


def test_an_answer_that_cannot_be_read_is_told() -> None:
    """Damage is never taken for data."""

    async def test(engine: FakeEngine) -> None:
        batches = engine.router.partitions[0].batches
        for body, message in [(b"rubbish" * 20, "cannot be read"), (batches[0][2], "ends at 2; 3 was asked for")]:
            batches[1] = 2, 2, body
            with pytest.raises(DataInvalid, match=message):
                await engine.read(start=3).next()

    run(test, a_partition(2, 2))


class SlowRouter(FakeRouter):
    """One that answers only when it is told to; the second partition is in trouble."""

    def __init__(self, *partitions: FakePartition) -> None:
        super().__init__(*partitions)
        self.is_open = asyncio.Event()
        self.waiting = self.waiting_max = 0

    async def fetch(self, topic: TopicInfo, index: int, query: str, **options: Any) -> Fetched:  # noqa: ANN401 - as they are
        self.waiting += 1
        self.waiting_max = max(self.waiting, self.waiting_max)
        try:
            if index == 1 and self.trouble is not None:
                raise self.trouble
            await self.is_open.wait()
        finally:
            self.waiting -= 1
        return await super().fetch(topic, index, query, **options)


def run_slowly(test: Callable[[FakeEngine, SlowRouter], Awaitable[None]]) -> None:
    async def main() -> None:
        router = SlowRouter(*[a_partition(2) for _ in range(20)])
        async with asyncio.timeout(WAIT_S):
            await test(FakeEngine(router), router)
            await asyncio.sleep(0.01)
            assert len(asyncio.all_tasks()) == 1  # that of this test

    asyncio.run(main())


def test_not_all_partitions_are_asked_at_once_where_they_begin() -> None:
    """A question about a time is answered with a batch, and there may be a thousand partitions."""

    async def test(engine: FakeEngine, router: SlowRouter) -> None:
        reading = engine.read()
        beginning = asyncio.ensure_future(reading.begin())
        await asyncio.sleep(0.01)
        router.is_open.set()
        await beginning
        assert router.waiting_max == module.PARTITIONS_MAX
        assert await all_offsets(reading) == {at: [0, 1] for at in range(20)}

    run_slowly(test)


def test_trouble_with_one_partition_ends_what_is_asked_about_the_others() -> None:
    """Nothing goes on in the background for somebody who was told already."""

    async def test(engine: FakeEngine, router: SlowRouter) -> None:
        router.trouble = ServerUnreachable("nobody is there")
        with pytest.raises(ServerUnreachable, match="nobody is there"):
            await engine.read().begin()

    run_slowly(test)


def test_a_reading_that_is_closed_before_it_knows_what_is_there_ends_at_once() -> None:
    """Whoever waits is told, and nothing is fetched afterwards."""

    async def test(engine: FakeEngine, router: SlowRouter) -> None:
        reading = engine.read()
        waiting = asyncio.ensure_future(reading.next())
        await asyncio.sleep(0.01)
        reading.close()
        await asyncio.sleep(0.01)
        assert (waiting.done(), router.waiting) == (True, 0)
        with pytest.raises(ClientClosed, match="closed meanwhile"):
            await waiting

    run_slowly(test)


def test_whoever_is_cancelled_before_it_begins_leaves_nothing_behind() -> None:
    """As with a deadline of their own."""

    async def test(engine: FakeEngine, _: SlowRouter) -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(engine.read().next(), 0.01)

    run_slowly(test)


def test_a_reading_that_is_closed_lets_go_of_everything() -> None:
    """Whoever waits is told, and nothing goes on in the background."""

    async def test(engine: FakeEngine) -> None:
        reading = engine.read()
        await reading.begin()
        engine.router.partitions[0].batches.clear()
        waiting = asyncio.ensure_future(reading.next())
        await asyncio.sleep(0.01)
        reading.close()
        with pytest.raises(ClientClosed):
            await waiting
        await asyncio.wait(reading._tasks, timeout=WAIT_S)
        assert all(task.cancelled() for task in reading._tasks)

    run(test, a_partition(2))
