"""What is fetched ahead: order, completeness, room, and everything that changes where a partition goes on."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flotilla.client.config import ConsumerConfig
from flotilla.client.errors import DataInvalid, OffsetOutOfRange, ServerUnreachable, TopicMissing
from flotilla.client.fetching import Fetcher, follow
from flotilla.client.lanes import Chunk
from flotilla.records import BatchInvalid
from support.fakepartition import FakePartition, FakeRouter, topic_of
from unit.manager.dataplane import batch_at

WAIT_S = 5.0
BATCH_BYTES = 10_000


class Bench:
    """A fetcher, and somebody who waits for it."""

    def __init__(self, router: FakeRouter, config: ConsumerConfig) -> None:
        self.router = router
        self.ready = asyncio.Event()
        clock = asyncio.get_running_loop().time
        self.fetcher = Fetcher(router, config, clock, self.ready.set, lambda: None)  # type: ignore[arg-type]
        for index, partition in enumerate(router.partitions):
            self.fetcher.add(topic_of(router), index, partition.first)
        self.lanes = list(self.fetcher.lanes.values())

    async def next(self) -> Chunk:
        async with asyncio.timeout(WAIT_S):
            while True:
                self.ready.clear()
                if (chunk := self.fetcher.pop()) is not None:
                    return chunk
                await self.ready.wait()

    async def offsets(self, count: int) -> list[int]:
        """Read so many records."""
        found: list[int] = []
        while len(found) < count:
            found += [record.offset for record in (await self.next()).records()]
        return found

    async def rest(self) -> None:
        """Let everything under way come to rest."""
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


def test_records_come_in_order_each_once_and_new_ones_follow() -> None:
    """Nothing is skipped and nothing comes twice."""

    async def test(bench: Bench) -> None:
        assert await bench.offsets(6) == [0, 1, 2, 3, 4, 5]
        bench.router.partitions[0].append(2)
        assert await bench.offsets(2) == [6, 7]

    run(test, a_partition(3, 1, 2))


def test_a_batch_that_begins_before_the_position_is_handed_out_from_the_position_on() -> None:
    """Servers send whole batches."""

    async def test(bench: Bench) -> None:
        (lane,) = bench.lanes
        bench.fetcher.seek(lane, 4)
        chunk = await bench.next()
        assert (chunk.batch.batch.header.base_offset, chunk.batch.start, chunk.batch.offset) == (3, 1, 4)
        assert chunk.batch.values == [b"4 ", b"5 "]
        assert [record.value for record in chunk.records()] == [b"4 ", b"5 "]
        assert (lane.position, lane.done) == (6, 5)

    run(test, a_partition(3, 3))


def test_partitions_take_turns() -> None:
    """One that has much does not keep others waiting."""

    async def test(bench: Bench) -> None:
        await bench.rest()
        turns = [(await bench.next()).batch.partition for _ in range(4)]
        assert turns == [0, 1, 0, 0]

    run(test, a_partition(1, 1, 1), a_partition(1))


def test_memory_is_bounded_however_much_there_is_and_however_slow_the_user() -> None:
    """Partitions share `prefetch_bytes`; each goes on when half of its share is used up."""
    config = ConsumerConfig(fetch_bytes=4 * BATCH_BYTES, prefetch_bytes=20 * BATCH_BYTES, wait_s=0.5)

    async def test(bench: Bench) -> None:
        for _ in range(30):
            await bench.rest()
            assert sum(lane.held_bytes for lane in bench.lanes) <= config.prefetch_bytes
            await bench.next()
        await bench.rest()
        assert min(lane.held_bytes for lane in bench.lanes) >= config.prefetch_bytes / 2 / 3

    full = [a_partition(*[1] * 100, padding=BATCH_BYTES - 200) for _ in range(2)]
    run(test, *full, config=config)


def test_a_batch_that_is_larger_than_all_limits_comes_all_the_same() -> None:
    """A limit never stops a partition."""

    async def test(bench: Bench) -> None:
        assert await bench.offsets(3) == [0, 1, 2]

    run(test, a_partition(1, 1, 1, padding=BATCH_BYTES), config=ConsumerConfig(fetch_bytes=1, prefetch_bytes=1))


def test_after_a_seek_nothing_comes_of_what_was_taken_before() -> None:
    """A position is where the user wants it, at once."""

    async def test(bench: Bench) -> None:
        (lane,) = bench.lanes
        chunk = await bench.next()
        records = chunk.records()
        assert next(records).offset == 0
        bench.fetcher.seek(lane, 5)
        assert not chunk.is_valid
        assert chunk.rest() is None
        assert await bench.offsets(1) == [5]

    run(test, a_partition(3, 3))


def test_a_chunk_that_is_closed_for_a_moment_loses_nothing() -> None:
    """Whoever hands records out can be interrupted between any two."""

    async def test(bench: Bench) -> None:
        chunk = await bench.next()
        records = chunk.records()
        assert next(records).offset == 0
        chunk.is_open = False
        assert list(records) == []
        chunk.is_open = True
        assert next(chunk.records()).offset == 1
        rest = chunk.rest()
        assert rest is not None
        assert (rest.offset, rest.values, len(rest)) == (2, [b"2 ", b"3 "], 2)
        assert chunk.rest() is None

    run(test, a_partition(4))


def test_a_pause_holds_records_back_and_releases_memory() -> None:
    """What is paused goes on where it was."""

    async def test(bench: Bench) -> None:
        (lane,) = bench.lanes
        assert next((await bench.next()).records()).offset == 0
        bench.fetcher.pause(lane)
        await bench.rest()
        assert bench.fetcher.pop() is None
        assert lane.held_bytes == 0
        bench.fetcher.resume(lane)
        assert await bench.offsets(3) == [1, 2, 3]

    run(test, a_partition(2, 2))


def test_records_that_were_removed_are_passed_over_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    """on_gone="earliest" is what a consumer does unless told otherwise."""

    async def test(bench: Bench) -> None:
        partition, (lane,) = bench.router.partitions[0], bench.lanes
        partition.first = 3
        bench.fetcher.seek(lane, 1)
        assert await bench.offsets(3) == [3, 4, 5]
        assert "no offset 1 (any more); going on at 3" in caplog.text

    run(test, a_partition(3, 3))


def test_a_consumer_can_go_on_with_the_latest_instead() -> None:
    """on_gone="latest"."""

    async def test(bench: Bench) -> None:
        partition, (lane,) = bench.router.partitions[0], bench.lanes
        partition.first = 2
        bench.fetcher.seek(lane, 1)
        await bench.rest()
        assert lane.position == 3
        partition.append(1)
        assert await bench.offsets(1) == [3]

    run(test, a_partition(3), config=ConsumerConfig(on_gone="latest"))


def test_a_consumer_can_be_told_instead_and_seek() -> None:
    """on_gone="raise"."""

    async def test(bench: Bench) -> None:
        (lane,) = bench.lanes
        bench.fetcher.seek(lane, 9)
        with pytest.raises(OffsetOutOfRange) as caught:
            await bench.next()
        assert (caught.value.first_offset, caught.value.next_offset) == (0, 3)
        bench.fetcher.seek(lane, 2)
        assert await bench.offsets(1) == [2]

    run(test, a_partition(3), config=ConsumerConfig(on_gone="raise"))


def test_servers_that_are_away_are_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    """A consumer outlives its servers."""

    async def test(bench: Bench) -> None:
        bench.router.trouble = ServerUnreachable("nobody answers")
        await bench.rest()
        assert bench.fetcher.pop() is None
        assert "partition 0: nobody answers; still trying" in caplog.text
        bench.router.trouble = None
        assert await bench.offsets(1) == [0]

    run(test, a_partition(1))


def test_a_topic_that_is_gone_is_told_after_what_came_of_it() -> None:
    """What was fetched is handed out first."""

    async def test(bench: Bench) -> None:
        await bench.rest()
        bench.router.trouble = TopicMissing("it is gone", "not_found", {})
        bench.router.partitions[0].grown.set()
        await bench.rest()
        assert await bench.offsets(2) == [0, 1]
        with pytest.raises(TopicMissing):
            await bench.next()

    run(test, a_partition(2), config=ConsumerConfig(wait_s=0.01))


def test_damaged_bytes_are_never_handed_out_and_fetched_anew() -> None:
    """A consumer checks what it hands out."""

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
        self.expected = [lane.position for lane in bench.lanes]
        self.chunk: Chunk | None = None

    async def step(self, what: str, at: int, number: int) -> None:
        lane, partition = self.bench.lanes[at], self.bench.router.partitions[at]
        match what:
            case "append":
                partition.append(number)
            case "seek":
                self.expected[at] = min(number, partition.next)
                self.bench.fetcher.seek(lane, self.expected[at])
            case "remove":
                partition.first = max(partition.first, min(number, partition.next))
            case "pause" | "resume":
                getattr(self.bench.fetcher, what)(lane)
            case "rest":
                await self.bench.rest()
            case _:
                self.take(what, number)

    def take(self, what: str, number: int) -> None:
        chunk = self.chunk
        if chunk is None or not chunk.is_valid or chunk.lane.position >= chunk.batch.next_offset:
            chunk = self.chunk = self.bench.fetcher.pop()
        if chunk is not None and what == "batch" and (batch := chunk.rest()) is not None:
            self.check(batch.partition, [record.offset for record in batch])
        elif chunk is not None and what == "records":
            for _, record in zip(range(number), chunk.records(), strict=False):
                self.check(record.partition, [record.offset])

    def check(self, partition: int, offsets: list[int]) -> None:
        assert offsets == list(range(offsets[0], offsets[0] + len(offsets)))
        expected, first = self.expected[partition], self.bench.router.partitions[partition].first
        assert expected <= offsets[0] <= max(expected, first)
        self.expected[partition] = offsets[-1] + 1


@given(steps=STEPS, fetch_bytes=st.sampled_from([1, 300, 1 << 20]))
def test_whatever_happens_each_record_comes_when_its_turn_is(
    steps: list[tuple[str, int, int]], fetch_bytes: int
) -> None:
    """What comes of a partition is always the record at its position, or the first that is left behind it."""

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
        ([1], 0, "begins at offset 1, where 0 should come"),
        ([0], 3, "begins at offset 0, where 3 should come"),
        ([0, 4], 0, "begins at offset 4, where 3 should come"),
        ([0, 0], 0, "begins at offset 0, where 3 should come"),
        ([3, 0], 3, "begins at offset 0, where 6 should come"),
    ],
)
def test_a_server_that_leaves_records_out_or_sends_them_twice_is_not_believed(
    bases: list[int], asked: int, wrong: str | None
) -> None:
    views = [memoryview(batch_at(base, [b"a", b"b", b"c"])) for base in bases]
    if wrong is None:
        assert follow(views, asked) == bases[-1] + 3
    else:
        with pytest.raises(BatchInvalid, match=wrong):
            follow(views, asked)
