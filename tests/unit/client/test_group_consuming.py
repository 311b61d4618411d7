"""A consumer of a group against the real rules in memory: what it does when it is told, refused, or not answered."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from flotilla.client.async_consumer import AsyncConsumer
from flotilla.client.config import ConsumerConfig
from flotilla.client.engine import Engine
from flotilla.client.errors import MemberGone, Refused
from flotilla.client.lanes import Chunk
from flotilla.client.positions import ConsumerRecord, Place
from flotilla.groups.state import Place as OfGroup
from support.fakegroup import FakeEngine
from support.fakepartition import FakePartition, FakeRouter

WAIT_S = 5.0
IDS = "1" * 32


class Bench:
    """Two partitions, a group, and as many consumers as are wanted."""

    def __init__(self) -> None:
        self.partitions = [FakePartition(), FakePartition()]
        for partition in self.partitions:
            partition.append(4)
        self.engine = FakeEngine(FakeRouter(*self.partitions))
        self.managers = self.engine.managers
        self.said: list[tuple[str, str, list[Place]]] = []
        self.consumers: list[AsyncConsumer] = []

    async def member(self, id_: str, *, auto_commit_s: float | None = None, **options: Any) -> AsyncConsumer:  # noqa: ANN401
        """Have a consumer; what it tells its user is noted."""
        config = ConsumerConfig(wait_s=0.5, auto_commit_s=auto_commit_s, session_s=1.0, **options)
        callbacks: dict[str, Any] = {
            f"on_{what}": lambda places, what=what: self.said.append((id_, what, places))
            for what in ("assigned", "revoked", "lost")
        }
        consumer = AsyncConsumer(cast("Engine", self.engine), config, "t", group="g", member_id=id_, **callbacks)
        self.consumers.append(consumer)
        await consumer.start_now()
        return consumer

    async def until(self, holds: Callable[[], object]) -> None:
        """Wait for a condition, without asking for records."""
        async with asyncio.timeout(WAIT_S):
            while not holds():  # noqa: ASYNC110 - of anything at all
                await asyncio.sleep(0.005)


def run(test: Callable[[Bench], Awaitable[None]]) -> None:
    async def main() -> None:
        bench = Bench()
        try:
            await test(bench)
        finally:
            for consumer in bench.consumers:
                await consumer.close()

    asyncio.run(main())


async def read(consumer: AsyncConsumer, count: int) -> list[ConsumerRecord]:
    return [record async for record in consumer.records(max_records=count, timeout_s=WAIT_S)]


def test_a_revoked_partition_is_let_go_of_when_the_user_has_finished_and_not_before() -> None:
    """So nobody begins with a record that another one still works on."""

    async def test(bench: Bench) -> None:
        one = await bench.member("one", auto_commit_s=60)
        got = await read(one, 5)  # all of one partition, and the first record of the other
        two = await bench.member("two", auto_commit_s=60)
        await bench.until(lambda: bench.managers.said.count("sync") >= 2)
        assert not any(what == "revoked" for _, what, _ in bench.said)
        assert two.assignment == []
        got += await read(one, 1)
        await bench.until(lambda: two.assignment)
        ((_, _, places),) = [one for one in bench.said if one[1] == "revoked"]
        partition = places[0].partition
        handed_out = max((record.offset + 1 for record in got if record.partition == partition), default=0)
        assert bench.managers.commits[OfGroup(IDS, partition)] == handed_out
        assert [record.offset for record in await read(two, 4 - handed_out)] == list(range(handed_out, 4))

    run(test)


def test_a_member_that_is_taken_out_stops_at_once_and_joins_again() -> None:
    """What it had is somebody else's; it says so before anything else, and goes on where the group is."""

    async def test(bench: Bench) -> None:
        one = await bench.member("one")
        assert len(await read(one, 2)) == 2
        bench.managers.remove("one")
        await bench.until(lambda: bench.managers.said.count("join") == 2 and one.assignment)
        (record,) = await read(one, 1)
        assert record.offset == 0, "nothing was committed"
        assert [what for _, what, _ in bench.said] == ["assigned", "lost", "assigned"]

    run(test)


def test_a_member_that_is_replaced_does_not_send_another_join(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would throw out the one that replaced it, even if nobody waits for the answer."""

    async def test(bench: Bench) -> None:
        sent: list[str] = []
        ask = bench.managers.ask

        async def note(method: str, target: str, body: Any = None, *, seconds: float) -> Any:  # noqa: ANN401 - any JSON
            sent.append(target.rpartition("/")[2])
            return await ask(method, target, body, seconds=seconds)

        monkeypatch.setattr(bench.managers, "ask", note)
        one = await bench.member("me")
        two = await bench.member("me")
        with pytest.raises(MemberGone, match="another consumer has joined group 'g' as 'me'"):
            await read(one, 100)
        beats = sent.count("heartbeat")
        await bench.until(lambda: sent.count("heartbeat") > beats + 2)
        assert sent.count("join") == 2
        assert len(await read(two, 1)) == 1

    run(test)


def test_reading_and_committing_go_on_while_the_writer_is_away() -> None:
    """Only joins, syncs and heartbeats need the writer."""

    async def test(bench: Bench) -> None:
        one = await bench.member("one")
        assert len(await read(one, 3)) == 3
        bench.managers.away = {"join", "sync", "heartbeat", "leave"}
        assert len(await read(one, 5)) == 5
        await one.commit()
        assert bench.managers.commits == {OfGroup(IDS, 0): 4, OfGroup(IDS, 1): 4}
        bench.managers.away = set()
        beats = bench.managers.said.count("heartbeat")
        await bench.until(lambda: bench.managers.said.count("heartbeat") > beats)
        assert [what for _, what, _ in bench.said] == ["assigned"]

    run(test)


def test_partitions_begin_when_it_is_known_where_the_group_is_and_not_before() -> None:
    """While commits cannot be read, nothing is handed out from a wrong place."""

    async def test(bench: Bench) -> None:
        bench.managers.commits = {OfGroup(IDS, 0): 3, OfGroup(IDS, 1): 4}
        bench.managers.away = {"offsets"}
        one = await bench.member("one")
        assert await one.poll(0.1) is None
        bench.managers.away = set()
        assert [(record.partition, record.offset) for record in await read(one, 1)] == [(0, 3)]

    run(test)


def test_a_commit_to_what_is_not_ones_own_is_refused_and_the_partition_dropped() -> None:
    """The user is told; the other partitions go on."""

    async def test(bench: Bench) -> None:
        bench.managers.heartbeat_ms = 60_000  # so that the commit hears of it first
        one = await bench.member("one")
        assert len(await read(one, 8)) == 8
        managers = bench.managers
        place = OfGroup(IDS, 0)
        holdings = dict(managers.group.holdings)
        del holdings[place]
        managers.group = type(managers.group)(
            name="g", generation=managers.group.generation, members=managers.group.members, holdings=holdings
        )
        with pytest.raises(Refused, match="not the owner"):
            await one.commit()
        assert one.assignment == [Place("t", 1)]
        await one.commit()
        assert managers.commits == {OfGroup(IDS, 1): 4}
        assert await one.poll(0.05) is None
        assert bench.said[-1] == ("one", "lost", [Place("t", 0)])

    run(test)


def test_a_commit_of_one_that_is_no_member_is_refused_to_the_user() -> None:
    """Whoever commits by hand hears that it was in vain."""

    async def test(bench: Bench) -> None:
        bench.managers.heartbeat_ms = 60_000
        one = await bench.member("one")
        assert len(await read(one, 1)) == 1
        bench.managers.remove("one")
        with pytest.raises(MemberGone):
            await one.commit()
        assert len(await read(one, 8)) == 8
        await one.commit()
        assert bench.managers.commits == {OfGroup(IDS, 0): 4, OfGroup(IDS, 1): 4}

    run(test)


def test_a_close_commits_and_leaves_even_if_nobody_answers() -> None:
    """Others need not wait for the timeout; and an end is an end."""

    async def test(bench: Bench) -> None:
        one = await bench.member("one", auto_commit_s=60)
        assert len(await read(one, 8)) == 8
        await one.close()
        assert not bench.managers.group.members
        assert bench.managers.commits == {OfGroup(IDS, 0): 4, OfGroup(IDS, 1): 4}
        two = await bench.member("two", auto_commit_s=60)
        bench.managers.away = {"commit", "leave"}
        await two.close(timeout_s=0.5)

    run(test)


def test_a_batch_whose_partition_goes_while_it_is_decoded_is_not_handed_out() -> None:
    """What is taken in one thread and what is decided in another meet between any two steps."""

    async def test(bench: Bench) -> None:
        one = await bench.member("one")
        core, fetcher = one.core, one.core.fetcher
        assert len(await read(one, 4)) == 4
        pop = fetcher.pop

        def pop_and_lose() -> Chunk | None:
            chunk = pop()
            if chunk is not None:
                fetcher.stop(chunk.lane)
            return chunk

        fetcher.pop = pop_and_lose  # type: ignore[method-assign]
        await bench.until(fetcher.has_any)
        found = core.ask()
        assert isinstance(found, Chunk)
        assert list(found.records()) == []
        assert found.rest() is None

    run(test)
