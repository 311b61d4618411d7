"""The fetcher: order, completeness, memory, and changes of the position."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flotilla.client.config import ConsumerConfig
from flotilla.client.errors import DataInvalid, FlotillaError, OffsetOutOfRange, ServerUnreachable, TopicMissing
from flotilla.client.fetcher import Fetcher, check_consecutive
from flotilla.client.partition_fetch import BatchCursor
from flotilla.records import BatchInvalid
from support.fakepartition import FakePartition, FakeRouter, topic_of
from unit.manager.dataplane import batch_at

WAIT_S = 5.0
BATCH_BYTES = 10_000


class Bench:
    """A fetcher, and a caller that waits for it."""

    def __init__(self, router: FakeRouter, config: ConsumerConfig) -> None:
        self.router = router
        self.ready = asyncio.Event()
        clock = asyncio.get_running_loop().time
        self.fetcher = Fetcher(router, config, clock, self.ready.set, lambda: None)  # type: ignore[arg-type]
        for index, partition in enumerate(router.partitions):
            self.fetcher.add(topic_of(router), index, partition.first)
        self.fetches = list(self.fetcher.fetches.values())

    async def next(self) -> BatchCursor:
        async with asyncio.timeout(WAIT_S):
            while True:
                self.ready.clear()
                if (cursor := self.fetcher.pop()) is not None:
                    return cursor
                await self.ready.wait()

    async def offsets(self, count: int) -> list[int]:
        """Read `count` records."""
        found: list[int] = []
        while len(found) < count:
            found += [record.offset for record in (await self.next()).records()]
        return found

    async def rest(self) -> None:
        """Wait until no more fetches are sent."""
        asked = -1
        while asked != len(self.router.asked):
            asked = len(self.router.asked)
            for _ in range(10):
                await asyncio.sleep(0)


def run(
    test: Callable[[Bench], Awaitable[None]], *partitions: FakePartition, config: ConsumerConfig | None = None
) -> None:
    async def main() -> None:
        bench = Bench(FakeRouter(*partitions), config or ConsumerConfig(wait_s=0.5))
        try:
            await test(bench)
        finally:
            bench.fetcher.close()

    asyncio.run(main())


def a_partition(*counts: int, padding: int = 0) -> FakePartition:
    partition = FakePartition()
    for count in counts:
        partition.append(count, padding)
    return partition


def test_fetcher_returns_records_in_order_once_and_then_new_ones() -> None:
    """No gaps and no duplicates."""

    async def test(bench: Bench) -> None:
        assert await bench.offsets(6) == [0, 1, 2, 3, 4, 5]
        bench.router.partitions[0].append(2)
        assert await bench.offsets(2) == [6, 7]

    run(test, a_partition(3, 1, 2))


def test_batch_that_starts_before_the_position_is_returned_from_the_position() -> None:
    """Servers send whole batches."""

    async def test(bench: Bench) -> None:
        (fetch,) = bench.fetches
        bench.fetcher.seek(fetch, 4)
        cursor = await bench.next()
        assert (cursor.batch.batch.header.base_offset, cursor.batch.start, cursor.batch.offset) == (3, 1, 4)
        assert cursor.batch.values == [b"4 ", b"5 "]
        assert [record.value for record in cursor.records()] == [b"4 ", b"5 "]
        assert (fetch.position, fetch.processed) == (6, 5)

    run(test, a_partition(3, 3))


def test_partitions_take_turns() -> None:
    """A partition with many records does not delay others."""

    async def test(bench: Bench) -> None:
        await bench.rest()
        turns = [(await bench.next()).batch.partition for _ in range(4)]
        assert turns == [0, 1, 0, 0]

    run(test, a_partition(1, 1, 1), a_partition(1))


def test_prefetch_memory_is_bounded_with_a_slow_consumer() -> None:
    """Partitions share `prefetch_bytes`; each fetches again when half of its share is free."""
    config = ConsumerConfig(fetch_bytes=4 * BATCH_BYTES, prefetch_bytes=20 * BATCH_BYTES, wait_s=0.5)

    async def test(bench: Bench) -> None:
        for _ in range(30):
            await bench.rest()
            assert sum(fetch.buffered_bytes for fetch in bench.fetches) <= config.prefetch_bytes
            await bench.next()
        await bench.rest()
        assert min(fetch.buffered_bytes for fetch in bench.fetches) >= config.prefetch_bytes / 2 / 3

    full = [a_partition(*[1] * 100, padding=BATCH_BYTES - 200) for _ in range(2)]
    run(test, *full, config=config)


def test_batch_above_all_limits_is_returned() -> None:
    """A limit never blocks a partition."""

    async def test(bench: Bench) -> None:
        assert await bench.offsets(3) == [0, 1, 2]

    run(test, a_partition(1, 1, 1, padding=BATCH_BYTES), config=ConsumerConfig(fetch_bytes=1, prefetch_bytes=1))


def test_seek_invalidates_batches_that_were_taken_before() -> None:
    """The position changes at once."""

    async def test(bench: Bench) -> None:
        (fetch,) = bench.fetches
        cursor = await bench.next()
        records = cursor.records()
        assert next(records).offset == 0
        bench.fetcher.seek(fetch, 5)
        assert not cursor.is_valid
        assert cursor.rest() is None
        assert await bench.offsets(1) == [5]

    run(test, a_partition(3, 3))


def test_interrupted_cursor_loses_no_record() -> None:
    """An iteration can be interrupted between any two records."""

    async def test(bench: Bench) -> None:
        cursor = await bench.next()
        records = cursor.records()
        assert next(records).offset == 0
        cursor.is_open = False
        assert list(records) == []
        cursor.is_open = True
        assert next(cursor.records()).offset == 1
        rest = cursor.rest()
        assert rest is not None
        assert (rest.offset, rest.values, len(rest)) == (2, [b"2 ", b"3 "], 2)
        assert cursor.rest() is None

    run(test, a_partition(4))


def test_pause_drops_prefetched_records_and_resume_continues_there() -> None:
    async def test(bench: Bench) -> None:
        (fetch,) = bench.fetches
        assert next((await bench.next()).records()).offset == 0
        bench.fetcher.pause(fetch)
        await bench.rest()
        assert bench.fetcher.pop() is None
        assert fetch.buffered_bytes == 0
        bench.fetcher.resume(fetch)
        assert await bench.offsets(3) == [1, 2, 3]

    run(test, a_partition(2, 2))


def test_deleted_records_are_skipped_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    """on_gone="earliest" is the default."""

    async def test(bench: Bench) -> None:
        partition, (fetch,) = bench.router.partitions[0], bench.fetches
        partition.first = 3
        bench.fetcher.seek(fetch, 1)
        assert await bench.offsets(3) == [3, 4, 5]
        assert "position moved partition=t-0 offset=1 new_offset=3" in caplog.text

    run(test, a_partition(3, 3))


def test_on_gone_latest_continues_at_the_next_offset() -> None:
    async def test(bench: Bench) -> None:
        partition, (fetch,) = bench.router.partitions[0], bench.fetches
        partition.first = 2
        bench.fetcher.seek(fetch, 1)
        await bench.rest()
        assert fetch.position == 3
        partition.append(1)
        assert await bench.offsets(1) == [3]

    run(test, a_partition(3), config=ConsumerConfig(on_gone="latest"))


def test_on_gone_raise_raises_and_seek_continues() -> None:
    async def test(bench: Bench) -> None:
        (fetch,) = bench.fetches
        bench.fetcher.seek(fetch, 9)
        with pytest.raises(OffsetOutOfRange) as caught:
            await bench.next()
        assert (caught.value.first_offset, caught.value.next_offset) == (0, 3)
        bench.fetcher.seek(fetch, 2)
        assert await bench.offsets(1) == [2]

    run(test, a_partition(3), config=ConsumerConfig(on_gone="raise"))


def test_fetcher_retries_while_servers_are_unavailable(caplog: pytest.LogCaptureFixture) -> None:
    async def test(bench: Bench) -> None:
        bench.router.trouble = ServerUnreachable("no response")
        await bench.rest()
        assert bench.fetcher.pop() is None
        assert "fetch failed, retrying partition=t-0 error='no response'" in caplog.text
        bench.router.trouble = None
        assert await bench.offsets(1) == [0]

    run(test, a_partition(1))


def test_missing_topic_raises_after_prefetched_records() -> None:
    """Prefetched records are returned first."""

    async def test(bench: Bench) -> None:
        await bench.rest()
        bench.router.trouble = TopicMissing("it is gone", "not_found", {})
        bench.router.partitions[0].grown.set()
        await bench.rest()
        assert await bench.offsets(2) == [0, 1]
        with pytest.raises(TopicMissing):
            await bench.next()

    run(test, a_partition(2), config=ConsumerConfig(wait_s=0.01))


def test_unexpected_error_of_a_fetch_raises_after_prefetched_records_and_seek_continues() -> None:
    """No error ends the fetches of a partition silently."""

    async def test(bench: Bench) -> None:
        await bench.rest()
        bench.router.trouble = ZeroDivisionError("oops")
        bench.router.partitions[0].grown.set()
        await bench.rest()
        assert await bench.offsets(2) == [0, 1]
        with pytest.raises(FlotillaError, match="internal error of the client: ZeroDivisionError") as caught:
            await bench.next()
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
        bench.router.trouble = None
        bench.fetcher.seek(bench.fetches[0], 1)
        assert await bench.offsets(1) == [1]

    run(test, a_partition(2), config=ConsumerConfig(wait_s=0.01))


def test_damaged_batch_raises_and_is_fetched_again() -> None:
    async def test(bench: Bench) -> None:
        bench.router.damage = True
        with pytest.raises(DataInvalid, match="damaged"):
            await bench.next()
        bench.router.damage = False
        assert await bench.offsets(2) == [0, 1]

    run(test, a_partition(2))


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 1), st.integers(1, 5)),
        st.tuples(st.just("records"), st.just(0), st.integers(1, 4)),
        st.tuples(st.just("batch"), st.just(0), st.just(0)),
        st.tuples(st.just("seek"), st.integers(0, 1), st.integers(0, 30)),
        st.tuples(st.just("pause"), st.integers(0, 1), st.just(0)),
        st.tuples(st.just("resume"), st.integers(0, 1), st.just(0)),
        st.tuples(st.just("remove"), st.integers(0, 1), st.integers(0, 30)),
        st.tuples(st.just("rest"), st.just(0), st.just(0)),
    ),
    max_size=40,
)


class Model:
    """Where each partition is to go on; takes steps, and checks what comes."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.expected = [fetch.position for fetch in bench.fetches]
        self.cursor: BatchCursor | None = None

    async def step(self, what: str, at: int, number: int) -> None:
        fetch, partition = self.bench.fetches[at], self.bench.router.partitions[at]
        match what:
            case "append":
                partition.append(number)
            case "seek":
                self.expected[at] = min(number, partition.next)
                self.bench.fetcher.seek(fetch, self.expected[at])
            case "remove":
                partition.first = max(partition.first, min(number, partition.next))
            case "pause" | "resume":
                getattr(self.bench.fetcher, what)(fetch)
            case "rest":
                await self.bench.rest()
            case _:
                self.take(what, number)

    def take(self, what: str, number: int) -> None:
        cursor = self.cursor
        if cursor is None or not cursor.is_valid or cursor.fetch.position >= cursor.batch.next_offset:
            cursor = self.cursor = self.bench.fetcher.pop()
        if cursor is not None and what == "batch" and (batch := cursor.rest()) is not None:
            self.check(batch.partition, [record.offset for record in batch])
        elif cursor is not None and what == "records":
            for _, record in zip(range(number), cursor.records(), strict=False):
                self.check(record.partition, [record.offset])

    def check(self, partition: int, offsets: list[int]) -> None:
        assert offsets == list(range(offsets[0], offsets[0] + len(offsets)))
        expected, first = self.expected[partition], self.bench.router.partitions[partition].first
        assert expected <= offsets[0] <= max(expected, first)
        self.expected[partition] = offsets[-1] + 1


@given(steps=STEPS, fetch_bytes=st.sampled_from([1, 300, 1 << 20]))
def test_fetcher_always_returns_the_record_at_the_position(steps: list[tuple[str, int, int]], fetch_bytes: int) -> None:
    """The next record is the one at the position, or the first after it that is not deleted."""

    async def test(bench: Bench) -> None:
        model = Model(bench)
        for step in steps:
            await model.step(*step)

    run(test, FakePartition(), FakePartition(), config=ConsumerConfig(fetch_bytes=fetch_bytes, wait_s=0.5))


@pytest.mark.parametrize(
    ("bases", "asked", "wrong"),
    [
        ([0, 3], 0, None),
        ([0, 3], 2, None),
        ([1], 0, "batch at offset 1, expected 0"),
        ([0], 3, "batch at offset 0, expected 3"),
        ([0, 4], 0, "batch at offset 4, expected 3"),
        ([0, 0], 0, "batch at offset 0, expected 3"),
        ([3, 0], 3, "batch at offset 0, expected 6"),
    ],
)
def test_response_with_gaps_or_duplicates_is_rejected(bases: list[int], asked: int, wrong: str | None) -> None:
    views = [memoryview(batch_at(base, [b"a", b"b", b"c"])) for base in bases]
    if wrong is None:
        assert check_consecutive(views, asked) == bases[-1] + 3
    else:
        with pytest.raises(BatchInvalid, match=wrong):
            check_consecutive(views, asked)
