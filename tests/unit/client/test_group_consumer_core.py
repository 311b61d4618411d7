"""A group consumer against the real group rules in memory: assignment changes, rejections and lost responses."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from flotilla.client.async_consumer import AsyncConsumer
from flotilla.client.config import ConsumerConfig
from flotilla.client.engine import Engine
from flotilla.client.errors import MemberGone, Refused
from flotilla.client.partition_fetch import BatchCursor
from flotilla.client.positions import ConsumerRecord, TopicPartition
from flotilla.groups.state import PartitionId as OfGroup
from support.fakegroup import FakeEngine
from support.fakepartition import FakePartition, FakeRouter

WAIT_S = 5.0
IDS = "1" * 32


class Bench:
    """Two partitions, a group, and its consumers."""

    def __init__(self) -> None:
        self.partitions = [FakePartition(), FakePartition()]
        for partition in self.partitions:
            partition.append(4)
        self.engine = FakeEngine(FakeRouter(*self.partitions))
        self.managers = self.engine.managers
        self.changes: list[tuple[str, str, list[TopicPartition]]] = []
        self.consumers: list[AsyncConsumer] = []

    async def member(self, id_: str, *, auto_commit_s: float | None = None, **options: Any) -> AsyncConsumer:  # noqa: ANN401
        """Start a consumer, and record its callbacks."""
        config = ConsumerConfig(wait_s=0.5, auto_commit_s=auto_commit_s, session_s=1.0, **options)
        callbacks: dict[str, Any] = {
            f"on_{what}": lambda partitions, what=what: self.changes.append((id_, what, partitions))
            for what in ("assigned", "revoked", "lost")
        }
        consumer = AsyncConsumer(cast("Engine", self.engine), config, "t", group="g", member_id=id_, **callbacks)
        self.consumers.append(consumer)
        await consumer.start_now()
        return consumer

    async def until(self, holds: Callable[[], object]) -> None:
        """Wait for a condition, without polling."""
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


def test_revoked_partition_is_released_only_after_its_record_is_processed() -> None:
    """No member starts with a record that another one still processes."""

    async def test(bench: Bench) -> None:
        one = await bench.member("one", auto_commit_s=60)
        got = await read(one, 5)  # all of one partition, and the first record of the other
        two = await bench.member("two", auto_commit_s=60)
        await bench.until(lambda: bench.managers.received.count("sync") >= 2)
        assert not any(what == "revoked" for _, what, _ in bench.changes)
        assert two.assignment == []
        got += await read(one, 1)
        await bench.until(lambda: two.assignment)
        ((_, _, places),) = [one for one in bench.changes if one[1] == "revoked"]
        partition = places[0].partition
        handed_out = max((record.offset + 1 for record in got if record.partition == partition), default=0)
        assert bench.managers.commits[OfGroup(IDS, partition)] == handed_out
        assert [record.offset for record in await read(two, 4 - handed_out)] == list(range(handed_out, 4))

    run(test)


def test_removed_member_stops_at_once_and_rejoins() -> None:
    """Others may own its partitions; `on_lost` is called first, and it continues at the committed offsets."""

    async def test(bench: Bench) -> None:
        one = await bench.member("one")
        assert len(await read(one, 2)) == 2
        bench.managers.remove("one")
        await bench.until(lambda: bench.managers.received.count("join") == 2 and one.assignment)
        (record,) = await read(one, 1)
        assert record.offset == 0, "nothing was committed"
        assert [what for _, what, _ in bench.changes] == ["assigned", "lost", "assigned"]

    run(test)


def test_replaced_member_does_not_send_another_join(monkeypatch: pytest.MonkeyPatch) -> None:
    """A join would remove its replacement, even if its response is not read."""

    async def test(bench: Bench) -> None:
        sent: list[str] = []
        call = bench.managers.call

        async def note(method: str, target: str, body: Any = None, *, timeout_s: float) -> Any:  # noqa: ANN401 - any JSON
            sent.append(target.rpartition("/")[2])
            return await call(method, target, body, timeout_s=timeout_s)

        monkeypatch.setattr(bench.managers, "call", note)
        one = await bench.member("me")
        two = await bench.member("me")
        with pytest.raises(MemberGone, match="another consumer joined group 'g' with member_id 'me'"):
            await read(one, 100)
        heartbeats = sent.count("heartbeat")
        await bench.until(lambda: sent.count("heartbeat") > heartbeats + 2)
        assert sent.count("join") == 2
        assert len(await read(two, 1)) == 1

    run(test)


def test_consume_and_commit_continue_while_the_writer_is_unavailable() -> None:
    """Only joins, syncs and heartbeats need the writer."""

    async def test(bench: Bench) -> None:
        one = await bench.member("one")
        assert len(await read(one, 3)) == 3
        bench.managers.unreachable = {"join", "sync", "heartbeat", "leave"}
        assert len(await read(one, 5)) == 5
        await one.commit()
        assert bench.managers.commits == {OfGroup(IDS, 0): 4, OfGroup(IDS, 1): 4}
        bench.managers.unreachable = set()
        heartbeats = bench.managers.received.count("heartbeat")
        await bench.until(lambda: bench.managers.received.count("heartbeat") > heartbeats)
        assert [what for _, what, _ in bench.changes] == ["assigned"]

    run(test)


def test_partitions_start_only_after_committed_offsets_are_loaded() -> None:
    """While committed offsets cannot be read, no record is returned from a wrong position."""

    async def test(bench: Bench) -> None:
        bench.managers.commits = {OfGroup(IDS, 0): 3, OfGroup(IDS, 1): 4}
        bench.managers.unreachable = {"offsets"}
        one = await bench.member("one")
        assert await one.poll(0.1) is None
        bench.managers.unreachable = set()
        assert [(record.partition, record.offset) for record in await read(one, 1)] == [(0, 3)]

    run(test)


def test_commit_of_a_foreign_partition_raises_and_drops_it() -> None:
    """The other partitions continue."""

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
        assert one.assignment == [TopicPartition("t", 1)]
        await one.commit()
        assert managers.commits == {OfGroup(IDS, 1): 4}
        assert await one.poll(0.05) is None
        assert bench.changes[-1] == ("one", "lost", [TopicPartition("t", 0)])

    run(test)


def test_commit_of_a_removed_member_raises() -> None:
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


def test_close_commits_and_leaves_and_ends_without_responses() -> None:
    """Other members need not wait for the session timeout; and `close` always returns."""

    async def test(bench: Bench) -> None:
        one = await bench.member("one", auto_commit_s=60)
        assert len(await read(one, 8)) == 8
        await one.close()
        assert not bench.managers.group.members
        assert bench.managers.commits == {OfGroup(IDS, 0): 4, OfGroup(IDS, 1): 4}
        two = await bench.member("two", auto_commit_s=60)
        bench.managers.unreachable = {"commit", "leave"}
        await two.close(timeout_s=0.5)

    run(test)


def test_batch_of_a_partition_lost_during_decoding_is_not_returned() -> None:
    """The polling thread and the event loop may interleave at any step."""

    async def test(bench: Bench) -> None:
        one = await bench.member("one")
        core, fetcher = one._core, one._core.fetcher
        assert len(await read(one, 4)) == 4
        pop = fetcher.pop

        def pop_and_lose() -> BatchCursor | None:
            cursor = pop()
            if cursor is not None:
                fetcher.stop(cursor.fetch)
            return cursor

        fetcher.pop = pop_and_lose  # type: ignore[method-assign]
        await bench.until(fetcher.has_any)
        found = core.poll()
        assert isinstance(found, BatchCursor)
        assert list(found.records()) == []
        assert found.rest() is None

    run(test)


def test_commit_in_progress_does_not_undo_the_last_commit_at_close(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guarantee 8: a server applies a commit although its client does not wait for the response any more."""

    async def test(bench: Bench) -> None:
        call, applying = bench.managers.call, list[asyncio.Future[Any]]()
        is_followed = asyncio.Event()

        async def apply_late(body: object, timeout_s: float) -> Any:  # noqa: ANN401 - any JSON
            """Apply a commit after a later one, if there is a later one."""
            await asyncio.wait([asyncio.ensure_future(is_followed.wait())], timeout=0.2)
            return await call("POST", "/v1/groups/g/commit", body, timeout_s=timeout_s)

        async def send(method: str, target: str, body: Any = None, *, timeout_s: float) -> Any:  # noqa: ANN401
            what = target.rpartition("/")[2]
            if what == "commit" and not applying:
                applying.append(asyncio.ensure_future(apply_late(body, timeout_s)))
                return await asyncio.shield(applying[0])
            if what == "leave":
                await asyncio.wait(applying)  # it arrives before the member leaves
            response = await call(method, target, body, timeout_s=timeout_s)
            if what == "commit":
                is_followed.set()
            return response

        monkeypatch.setattr(bench.managers, "call", send)
        one = await bench.member("one", auto_commit_s=0.02)
        assert len(await read(one, 2)) == 2
        await bench.until(lambda: applying)
        assert len(await read(one, 6)) == 6
        await one.close()
        assert bench.managers.commits == {OfGroup(IDS, 0): 4, OfGroup(IDS, 1): 4}

    run(test)
