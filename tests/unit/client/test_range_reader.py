"""The range reader: complete, in order, bounded, and closed cleanly."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from flotilla.arrow import to_record_batches
from flotilla.client import range_reader as module
from flotilla.client.cluster import TopicInfo
from flotilla.client.engine import Engine
from flotilla.client.errors import ClientClosed, DataInvalid, OffsetOutOfRange, ServerUnreachable, TopicMissing
from flotilla.client.range_reader import RangeChunk, RangeReader
from flotilla.client.ranges import Range
from flotilla.client.router import FetchResult
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

    def read(self, **options: Any) -> RangeReader:  # noqa: ANN401 - as a range has them
        return RangeReader(cast("Engine", self), Range.parse("t", **options))


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


def offsets_of(chunk: RangeChunk) -> list[int]:
    batches = to_record_batches(chunk.topic_partition, chunk.body, chunk.start, chunk.end)
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


async def all_offsets(reader: RangeReader) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    while (chunk := await reader.next()) is not None:
        found.setdefault(chunk.topic_partition.partition, []).extend(offsets_of(chunk))
    return found


def test_range_reader_returns_every_record_once_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over many responses and partitions, with batches that start before the range or end after it."""
    monkeypatch.setattr(module, "FETCH_BYTES", 1)  # a batch in each answer

    async def test(engine: FakeEngine) -> None:
        expected = {at: list(range(4, 11)) for at in range(20)} | {3: [4, 5]}
        assert await all_offsets(engine.read(start=4, end=11)) == expected

    partitions = [a_partition(3, 3, 1, 1, 5, 2) for _ in range(20)]
    partitions[3] = a_partition(6)
    run(test, *partitions)


def test_end_of_the_range_is_resolved_at_the_start() -> None:
    """The result is well defined while producers append."""

    async def test(engine: FakeEngine) -> None:
        reader = engine.read()
        await reader.begin()
        engine.router.partitions[0].append(3)
        assert await all_offsets(reader) == {0: [0, 1]}
        assert await reader.next() is None

    run(test, a_partition(2))


def test_empty_range_has_no_chunks() -> None:
    """An empty partition, an empty range, a range after the end."""

    async def test(engine: FakeEngine) -> None:
        for options in ({"partitions": [0]}, {"start": 2, "end": 2}, {"start": 5}, {"start": "latest"}, {"end": 0}):
            assert await all_offsets(engine.read(**options)) == {}, options

    run(test, a_partition(), a_partition(2))


def test_missing_partition_raises_with_its_number() -> None:
    async def test(engine: FakeEngine) -> None:
        with pytest.raises(TopicMissing, match="topic 't' has no partition 3, only 0 to 0"):
            await engine.read(partitions=[0, 3]).next()

    run(test, a_partition(2))


def test_deleted_records_raise_or_are_skipped_as_on_gone_says(caplog: pytest.LogCaptureFixture) -> None:
    """With an explicit offset, the error has the number of missing records."""

    async def test(engine: FakeEngine) -> None:
        engine.router.partitions[0].first = 3
        with pytest.raises(OffsetOutOfRange, match="t-0: 2 records from offset 1 were deleted"):
            await engine.read(start=1).next()
        assert await all_offsets(engine.read(start=1, end=5, on_gone="earliest")) == {0: [3, 4]}
        assert "deleted records skipped partition=t-0 records=2 offset=1" in caplog.text
        assert await all_offsets(engine.read()) == {0: [3, 4, 5]}

    run(test, a_partition(3, 3))


@pytest.mark.parametrize("on_gone", ["raise", "earliest"])
def test_records_deleted_during_the_read_raise_or_are_skipped_as_on_gone_says(
    on_gone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table has no unnoticed gap; `earliest` may start later until the first record is read."""
    monkeypatch.setattr(module, "FETCH_BYTES", 1)

    async def test(engine: FakeEngine) -> None:
        (partition,) = engine.router.partitions
        reader = engine.read(on_gone=on_gone)
        await reader.begin()
        partition.first = 2
        first = await reader.next()
        assert first is not None
        assert offsets_of(first) == [2, 3]
        partition.first = 90
        rest = all_offsets(reader)
        if on_gone == "earliest":
            assert (await rest)[0][-10:] == list(range(90, 100))
        else:
            with pytest.raises(OffsetOutOfRange, match="were deleted"):
                await rest

    run(test, a_partition(*[2] * 50))


def test_memory_is_bounded_with_a_slow_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limited number of partitions at a time, one response each, and a few that wait."""
    monkeypatch.setattr(module, "FETCH_BYTES", 1)

    async def test(engine: FakeEngine) -> None:
        reader = engine.read()
        await reader.next()
        for _ in range(100):
            await asyncio.sleep(0)
        asked = [query for _, query, max_bytes in engine.router.asked if query != "offset=latest"]
        assert len(asked) <= module.PARTITIONS_MAX + module._AHEAD_MAX + 1
        assert sum(map(len, (await all_offsets(reader)).values())) == 20 * 10 - 1

    run(test, *[a_partition(*[1] * 10) for _ in range(20)])


def test_error_is_raised_and_ends_the_reader() -> None:
    """The caller does not wait forever."""

    async def test(engine: FakeEngine) -> None:
        reader = engine.read()
        await reader.begin()
        engine.router.trouble = ServerUnreachable("no response")
        with pytest.raises(ServerUnreachable, match="no response"):
            await reader.next()
        assert reader.is_closed
        with pytest.raises(ClientClosed):
            await reader.next()

    run(test, a_partition(2), a_partition(2))


def test_partition_that_lost_records_raises_after_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next leader has the records, or the reader raises an error."""
    monkeypatch.setattr(module, "_WAIT_S", 0.05)

    async def test(engine: FakeEngine) -> None:
        (partition,) = engine.router.partitions
        reader = engine.read()
        await reader.begin()
        partition.batches.clear()
        with pytest.raises(ServerUnreachable, match="no server returned offset 0"):
            await reader.next()

    run(test, a_partition(2))


def test_unreadable_response_raises_data_invalid() -> None:
    async def test(engine: FakeEngine) -> None:
        batches = engine.router.partitions[0].batches
        for body, message in [(b"rubbish" * 20, "invalid fetch response"), (batches[0][2], "ends at 2, requested 3")]:
            batches[1] = 2, 2, body
            with pytest.raises(DataInvalid, match=message):
                await engine.read(start=3).next()

    run(test, a_partition(2, 2))


class SlowRouter(FakeRouter):
    """A router that responds on request only; the second partition fails."""

    def __init__(self, *partitions: FakePartition) -> None:
        super().__init__(*partitions)
        self.is_open = asyncio.Event()
        self.waiting = self.waiting_max = 0

    async def fetch(self, topic: TopicInfo, index: int, query: str, **options: Any) -> FetchResult:  # noqa: ANN401 - as they are
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


def test_offset_queries_are_limited_in_concurrency() -> None:
    """The response to a query by time has a batch, and there may be a thousand partitions."""

    async def test(engine: FakeEngine, router: SlowRouter) -> None:
        reader = engine.read()
        beginning = asyncio.ensure_future(reader.begin())
        await asyncio.sleep(0.01)
        router.is_open.set()
        await beginning
        assert router.waiting_max == module.PARTITIONS_MAX
        assert await all_offsets(reader) == {at: [0, 1] for at in range(20)}

    run_slowly(test)


def test_error_of_one_partition_cancels_the_queries_of_others() -> None:
    """Nothing continues in the background after the error."""

    async def test(engine: FakeEngine, router: SlowRouter) -> None:
        router.trouble = ServerUnreachable("no response")
        with pytest.raises(ServerUnreachable, match="no response"):
            await engine.read().begin()

    run_slowly(test)


def test_reader_closed_while_it_resolves_offsets_raises_at_once() -> None:
    """The caller gets ClientClosed, and nothing is fetched afterwards."""

    async def test(engine: FakeEngine, router: SlowRouter) -> None:
        reader = engine.read()
        waiting = asyncio.ensure_future(reader.next())
        await asyncio.sleep(0.01)
        reader.close()
        await asyncio.sleep(0.01)
        assert (waiting.done(), router.waiting) == (True, 0)
        with pytest.raises(ClientClosed, match="closed during the call"):
            await waiting

    run_slowly(test)


def test_cancelled_begin_leaves_no_tasks() -> None:
    """For example by a timeout of the caller."""

    async def test(engine: FakeEngine, _: SlowRouter) -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(engine.read().next(), 0.01)

    run_slowly(test)


def test_closed_reader_releases_all_resources() -> None:
    """The caller gets ClientClosed, and nothing continues in the background."""

    async def test(engine: FakeEngine) -> None:
        reader = engine.read()
        await reader.begin()
        engine.router.partitions[0].batches.clear()
        waiting = asyncio.ensure_future(reader.next())
        await asyncio.sleep(0.01)
        reader.close()
        with pytest.raises(ClientClosed):
            await waiting
        await asyncio.wait(reader._tasks, timeout=WAIT_S)
        assert all(task.cancelled() for task in reader._tasks)

    run(test, a_partition(2))
