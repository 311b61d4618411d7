"""Group coordinator of the writer, with a real database and a manual clock."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flotilla.groups.membership import StaleGeneration, UnknownMember
from flotilla.groups.offsets import Commit
from flotilla.groups.responses import AssignmentResponse
from flotilla.groups.state import PartitionId, Strategy
from flotilla.protocol.errors import Refusal
from flotilla_manager.metadata import groups as metadata_groups
from flotilla_manager.metadata.errors import (
    DatabaseUnavailable,
    Fenced,
    GroupHasMembers,
    GroupMissing,
    OutcomeUnknown,
    TooManyGroups,
)
from flotilla_manager.model import TopicState
from flotilla_manager.writer import groups as coordinator
from flotilla_manager.writer.groups import GroupCoordinator
from flotilla_manager.writer.topics import TopicSpec
from support.writer_harness import Bench, WriterHarness, on_bench

TIMEOUT_S = 10


def groups_of(writer: WriterHarness) -> GroupCoordinator:
    """Make the group coordinator of a manager."""
    return GroupCoordinator(
        writer.election, writer.database, writer.metadata, clock=writer.clock, random_bytes=writer.store._random_bytes
    )


async def begin(bench: Bench, partitions: int = 4) -> tuple[WriterHarness, GroupCoordinator]:
    """Start a writer and create a topic."""
    writer = await bench.writer()
    await writer.create("t", partitions=partitions)
    await writer.metadata.refresh()
    return writer, groups_of(writer)


async def join(groups: GroupCoordinator, member: str | None = "a", group: str = "g") -> AssignmentResponse:
    return await groups.join(group, member, ["t"], TIMEOUT_S * 1000, Strategy.STICKY)


async def settle(groups: GroupCoordinator, *members: str, group: str = "g") -> dict[str, tuple[PartitionId, ...]]:
    """Sync members until the rebalance is complete; return their assignments."""
    have: dict[str, tuple[PartitionId, ...]] = {}
    generation = dict.fromkeys(members, 0)
    for member in members:
        found = groups.known(group)
        assert found is not None
        generation[member] = found.generation
        have[member] = tuple(place for place, one in found.holdings.items() if one.owner == member)
    for _ in range(10):
        busy = False
        for member in members:
            beaten = await groups.heartbeat(group, member, generation[member])
            if beaten.should_sync:
                answer = await groups.sync(group, member, generation[member], have[member])
                have[member], generation[member] = answer.assignment.assigned, answer.assignment.generation
                busy = True
        if not busy:
            return have
    raise AssertionError(f"they do not come to rest: {have}")


def test_assignment_of_members_is_stored_in_the_database(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        _, groups = await begin(bench)
        first = await join(groups, "a")
        assert (len(first.assignment.assigned), first.state, first.heartbeat_ms) == (4, "stable", TIMEOUT_S * 1000 // 3)
        second = await join(groups, "b")
        assert (second.assignment.assigned, second.assignment.pending, second.state) == ((), 2, "rebalancing")
        assert second.heartbeat_ms == 500
        have = await settle(groups, "a", "b")
        assert sorted(len(places) for places in have.values()) == [2, 2]
        assert bench.store.load_group("g") == groups.known("g")
        drawn = await join(groups, None, "other")
        assert len(drawn.member.id) == 32

    on_bench(tmp_path, work)


def test_member_without_heartbeats_is_removed_after_its_timeout(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        _, groups = await begin(bench)
        generation = 0
        for member in ("a", "b"):
            generation = (await join(groups, member)).assignment.generation
        await settle(groups, "a", "b")
        for _ in range(TIMEOUT_S - 1):
            bench.clock.move(1)
            await groups.heartbeat("g", "a", generation)
            await groups.sweep(bench.clock())
        assert set(groups.known("g").members) == {"a", "b"}  # type: ignore[union-attr]
        bench.clock.move(1)
        await groups.sweep(bench.clock())
        assert set(groups.known("g").members) == {"a"}  # type: ignore[union-attr]
        with pytest.raises(UnknownMember):
            await groups.heartbeat("g", "b", generation)
        have = await settle(groups, "a")
        assert len(have["a"]) == 4
        bench.clock.move(TIMEOUT_S)
        await groups.sweep(bench.clock())
        assert groups.known("g") is None
        found = bench.store.load_group("g")
        assert found is not None
        assert (found.members, found.holdings) == ({}, {})
        assert found.generation > generation

    on_bench(tmp_path, work)


def test_new_writer_gives_members_a_full_timeout(tmp_path: Path) -> None:
    """Members are not removed for heartbeats that were lost while there was no writer."""

    async def work(bench: Bench) -> None:
        _, groups = await begin(bench)
        generation = (await join(groups, "a")).assignment.generation
        before = bench.store.load_group("g")
        bench.clock.move(1000)
        two = bench.manager("http://one:1")
        await two.election.step()
        await two.metadata.refresh()
        successor = groups_of(two)
        await successor.sweep(bench.clock())
        bench.clock.move(TIMEOUT_S - 1)
        await successor.sweep(bench.clock())
        assert successor.known("g") == bench.store.load_group("g") == before
        await successor.heartbeat("g", "a", generation)
        bench.clock.move(TIMEOUT_S)
        await successor.sweep(bench.clock())
        assert successor.known("g") is None

    on_bench(tmp_path, work)


def test_pause_of_the_writer_does_not_count_as_silence_of_members(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        _, groups = await begin(bench)
        await join(groups, "a")
        running = asyncio.create_task(groups.run())
        await asyncio.sleep(0.05)  # the loop waits; then the process is paused
        bench.clock.move(100)
        await asyncio.sleep(2.5 * coordinator.SWEEP_S)  # two sweeps
        assert groups.known("g") is not None
        bench.clock.move(TIMEOUT_S - 1)
        await groups.sweep(bench.clock())
        assert groups.known("g") is not None, "the member has the full timeout from then on"
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    on_bench(tmp_path, work)


def test_time_in_which_the_writer_was_busy_does_not_count_as_silence(tmp_path: Path) -> None:
    """Heartbeats that wait in the socket are not missed ones; real silence still counts."""

    async def work(bench: Bench) -> None:
        _, groups = await begin(bench)
        await groups.join("g", "a", ["t"], 1000, Strategy.STICKY)
        running = asyncio.create_task(groups.run())
        await asyncio.sleep(0.05)
        bench.clock.move(coordinator.SWEEP_S + 1.5)  # longer than the timeout of the member, but not a pause
        await asyncio.sleep(1.5 * coordinator.SWEEP_S)  # one sweep
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert groups.known("g") is not None
        bench.clock.move(1 - coordinator.SWEEP_S)
        await groups.sweep(bench.clock())
        assert groups.known("g") is None

    on_bench(tmp_path, work)


def test_replaced_writer_changes_no_group(tmp_path: Path) -> None:
    """Guarantee 6: the database checks the writer epoch of every change of a group."""

    async def work(bench: Bench) -> None:
        writer, groups = await begin(bench)
        generation = (await join(groups, "a")).assignment.generation
        before = bench.store.load_group("g")
        bench.store.take_over("http://two:1")
        with pytest.raises(Fenced):
            await join(groups, "b")
        with pytest.raises(Fenced):
            await groups.leave("g", "a", generation)
        bench.clock.move(1000)
        with pytest.raises(Fenced):
            await groups.sweep(bench.clock())
        assert bench.store.load_group("g") == before
        writer.election.lose(writer.epoch, "replaced")
        with pytest.raises(Refusal, match="No writer is active"):
            await groups.heartbeat("g", "a", generation)

    on_bench(tmp_path, work)


def test_writer_that_takes_over_again_reloads_all_groups(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        writer, groups = await begin(bench)
        await join(groups, "a")
        other = bench.manager("http://two:1")
        epoch = bench.store.take_over("http://two:1")
        other.election.epoch = epoch
        await other.metadata.refresh()
        await join(groups_of(other), "b")
        writer.election.epoch = bench.store.take_over("http://one:1")
        assert groups.known("g") is None, "the cached state is stale"
        await groups.sweep(bench.clock())
        assert set(groups.known("g").members) == {"a", "b"}  # type: ignore[union-attr]

    on_bench(tmp_path, work)


Call = Callable[..., Any]


def disturb(
    monkeypatch: pytest.MonkeyPatch,
    writer: WriterHarness,
    error: Exception,
    *,
    is_done: bool,
    method: str = "save_group",
) -> list[str]:
    """Make the next write fail, committed or not."""
    real: Call = writer.database.call
    failed: list[str] = []

    async def call(function: Call, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - whatever it is
        if function.__name__ != method or failed:
            return await real(function, *args, **kwargs)
        failed.append(method)
        if is_done:
            await real(function, *args, **kwargs)
        raise error

    monkeypatch.setattr(writer.database, "call", call)
    return failed


@pytest.mark.parametrize("is_done", [True, False])
def test_group_is_reloaded_after_a_write_of_unknown_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_done: bool
) -> None:
    async def work(bench: Bench) -> None:
        writer, groups = await begin(bench)
        generation = (await join(groups, "a")).assignment.generation
        failed = disturb(monkeypatch, writer, OutcomeUnknown("away"), is_done=is_done)
        with pytest.raises(OutcomeUnknown):
            await join(groups, "b")
        assert failed
        await groups.heartbeat("g", "a", generation)
        assert set(groups.known("g").members) == ({"a", "b"} if is_done else {"a"})  # type: ignore[union-attr]
        assert groups.known("g") == bench.store.load_group("g")
        await join(groups, "b")
        have = await settle(groups, "a", "b")
        assert sorted(len(places) for places in have.values()) == [2, 2]

    on_bench(tmp_path, work)


def test_heartbeats_are_accepted_while_the_database_is_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(bench: Bench) -> None:
        writer, groups = await begin(bench)
        generation = (await join(groups, "a")).assignment.generation

        async def fail(*_: object, **__: object) -> None:
            raise DatabaseUnavailable("away")

        with monkeypatch.context() as patch:
            patch.setattr(writer.database, "call", fail)
            for _ in range(3):
                bench.clock.move(TIMEOUT_S - 1)
                assert (await groups.heartbeat("g", "a", generation)).generation == generation
                await groups.sweep(bench.clock())
            with pytest.raises(DatabaseUnavailable):
                await join(groups, "b")
            bench.clock.move(100)
            with pytest.raises(DatabaseUnavailable):
                await groups.sweep(bench.clock())
        assert groups.known("g") is None
        await groups.sweep(bench.clock())
        assert groups.known("g") is not None, "the doubtful group is loaded again, with a full timeout"
        assert (await groups.heartbeat("g", "a", generation)).generation == generation

    on_bench(tmp_path, work)


def test_wait_for_other_requests_of_a_group_times_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the database is unresponsive, each call takes its deadline; waiting requests time out instead of piling up."""
    monkeypatch.setattr(coordinator, "_LOCK_S", 0.2)

    async def work(bench: Bench) -> None:
        writer, groups = await begin(bench)
        await join(groups, "a", "hangs")
        await join(groups, "b", "other")
        real, back = writer.database.call, asyncio.Event()

        async def hang(function: Call, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - whatever it is
            if "hangs" in repr(args):
                await back.wait()
            return await real(function, *args, **kwargs)

        monkeypatch.setattr(writer.database, "call", hang)
        first = asyncio.create_task(join(groups, "c", "hangs"))
        await asyncio.sleep(0)
        with pytest.raises(Refusal, match="try again") as caught:
            await join(groups, "d", "hangs")
        assert caught.value.is_retryable
        bench.clock.move(TIMEOUT_S)
        with pytest.raises(Refusal, match="try again"):
            await groups.sweep(bench.clock())
        assert groups.known("other") is None, "an error in one group does not affect others"
        back.set()
        await first
        await join(groups, "d", "hangs")

    on_bench(tmp_path, work)


def test_refused_group_is_logged_once_with_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(coordinator, "_LOCK_S", 0.01)

    async def work(bench: Bench) -> None:
        _, groups = await begin(bench)
        for name in ("one", "three", "two"):
            await join(groups, "a", name)
        bench.clock.move(TIMEOUT_S)
        async with groups._locked("one"), groups._locked("two"):
            for _ in range(2):
                await groups._sweep_and_log(bench.clock())
        lines = [one.getMessage() for one in caplog.records if one.getMessage().startswith("group sweep failed")]
        assert [line.partition(" error=")[0] for line in lines] == [
            "group sweep failed group=one",
            "group sweep failed group=two",
        ]

    on_bench(tmp_path, work)


def test_definite_failure_does_not_reload_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise repeated requests over the limit of groups would reload all groups and reset all timeouts."""
    monkeypatch.setattr(metadata_groups, "GROUPS_MAX", 1)
    monkeypatch.setattr(coordinator, "GROUPS_MAX", 1)

    async def work(bench: Bench) -> None:
        _, groups = await begin(bench)
        await join(groups, "a")
        bench.clock.move(TIMEOUT_S)
        for name in ("one", "two", "three"):
            with pytest.raises(TooManyGroups):
                await join(groups, "a", name)
            with pytest.raises(GroupMissing):
                await groups.delete(name, force=True)
        await groups.sweep(bench.clock())
        assert groups.known("g") is None

    on_bench(tmp_path, work)


def test_member_of_a_deleted_group_is_unknown_in_a_new_group_of_the_name(tmp_path: Path) -> None:
    """Requests with the old generation are rejected, even if the new group has a member with that id."""

    async def work(bench: Bench) -> None:
        _, groups = await begin(bench)
        for _ in range(3):
            old = await join(groups, "a")
        await groups.delete("g", force=True)
        new = await join(groups, "a")
        assert new.assignment.generation > old.assignment.generation
        with pytest.raises(StaleGeneration):
            await groups.heartbeat("g", "a", old.assignment.generation)
        with pytest.raises(StaleGeneration):
            bench.store.commit_offsets(
                "g", [Commit(tp=new.assignment.assigned[0], offset=9)], ("a", old.assignment.generation)
            )

    on_bench(tmp_path, work)


def test_assignment_follows_created_grown_and_deleted_topics(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        writer, groups = await begin(bench, partitions=2)
        await join(groups, "a")
        await writer.topics.put(writer.epoch, TopicSpec(name="t", partitions=4))
        await writer.metadata.refresh()
        await groups.sweep(bench.clock())
        assert len((await settle(groups, "a"))["a"]) == 4
        topic = writer.metadata.topic("t")
        assert topic is not None
        bench.store.set_topic_state(writer.epoch, topic.id, TopicState.DELETING)
        await writer.metadata.refresh()
        await groups.sweep(bench.clock())
        assert await settle(groups, "a") == {"a": ()}
        again = await writer.create("t", partitions=1)
        await writer.metadata.refresh()
        await groups.sweep(bench.clock())
        assert await settle(groups, "a") == {"a": (PartitionId(again.id, 0),)}
        assert bench.store.load_group("g") == groups.known("g")

    on_bench(tmp_path, work)


def test_slow_sweep_uses_current_topics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition that was assigned after the sweep started must not be revoked."""

    async def work(bench: Bench) -> None:
        writer, groups = await begin(bench)
        await join(groups, "a", "first")
        await join(groups, "a", "second")
        real: Call = writer.database.call

        async def grow_meanwhile(function: Call, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - whatever it is
            monkeypatch.setattr(writer.database, "call", real)
            await writer.topics.put(writer.epoch, TopicSpec(name="t", partitions=6))
            await writer.metadata.refresh()
            assert len((await join(groups, "a", "second")).assignment.assigned) == 6
            return await real(function, *args, **kwargs)

        bench.clock.move(TIMEOUT_S / 2)
        await groups.heartbeat("second", "a", 1)
        bench.clock.move(TIMEOUT_S / 2)  # the member of the first group times out, so that a change is written
        monkeypatch.setattr(writer.database, "call", grow_meanwhile)
        await groups.sweep(bench.clock())
        found = groups.known("second")
        assert found is not None
        assert [one.owner for one in found.holdings.values()] == ["a"] * 6

    on_bench(tmp_path, work)


def test_topic_deleted_during_a_change_causes_a_retry(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        writer, groups = await begin(bench)
        topic = writer.metadata.topic("t")
        assert topic is not None
        await groups.sweep(bench.clock())
        bench.store.set_topic_state(writer.epoch, topic.id, TopicState.DELETING)
        with pytest.raises(Refusal, match="deleted during the request") as caught:
            await join(groups, "a")
        assert caught.value.is_retryable
        assert bench.store.load_group("g") is None

    on_bench(tmp_path, work)


def test_concurrent_joins_are_serialized(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        _, groups = await begin(bench, partitions=8)
        names = [f"m{at}" for at in range(8)]
        answers = await asyncio.gather(*(join(groups, name) for name in names))
        assert sorted(answer.assignment.generation for answer in answers) == list(range(1, 9))
        have = await settle(groups, *names)
        assert sorted(place.partition for places in have.values() for place in places) == list(range(8))

    on_bench(tmp_path, work)


def test_rejoined_member_fences_its_earlier_generation(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        _, groups = await begin(bench)
        old = await join(groups, "a")
        new = await join(groups, "a")
        assert new.assignment.assigned == old.assignment.assigned
        for call in (
            groups.heartbeat("g", "a", old.assignment.generation),
            groups.sync("g", "a", old.assignment.generation, ()),
            groups.leave("g", "a", old.assignment.generation),
        ):
            with pytest.raises(StaleGeneration):
                await call
        await groups.leave("g", "a", new.assignment.generation)
        assert groups.known("g") is None

    on_bench(tmp_path, work)


def test_reset_and_delete_require_an_empty_group_or_force(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        _, groups = await begin(bench)
        answer = await join(groups, "a")
        to = [Commit(tp=answer.assignment.assigned[0], offset=7)]
        with pytest.raises(GroupHasMembers):
            await groups.reset("g", to, force=False)
        with pytest.raises(GroupHasMembers):
            await groups.delete("g", force=False)
        assert bench.store.committed_offsets("g") == []
        await groups.reset("g", to, force=True)
        with pytest.raises(UnknownMember):
            await groups.heartbeat("g", "a", answer.assignment.generation)
        assert [replace(one, committed_ms=0) for one in bench.store.committed_offsets("g") or ()] == to
        await join(groups, "a")
        await groups.delete("g", force=True)
        assert (groups.known("g"), bench.store.load_group("g")) == (None, None)
        with pytest.raises(GroupMissing):
            await groups.delete("g", force=True)

    on_bench(tmp_path, work)


def test_members_and_partitions_of_a_group_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(bench: Bench) -> None:
        _, groups = await begin(bench)
        monkeypatch.setattr(coordinator, "GROUP_MEMBERS_MAX", 2)
        await join(groups, "a")
        await join(groups, "b")
        with pytest.raises(Refusal, match=r"'g' has 2 members; the limit is 2\. Stop a consumer of the group"):
            await join(groups, "c")
        await join(groups, "b")
        monkeypatch.setattr(coordinator, "GROUP_PARTITIONS_MAX", 3)
        with pytest.raises(Refusal, match=r"4 partitions; the limit is 3\. Subscribe to fewer topics"):
            await join(groups, "b")

    on_bench(tmp_path, work)


def test_new_writer_loads_groups_in_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(bench: Bench) -> None:
        writer, groups = await begin(bench)
        names = [f"g{at}" for at in range(5)]
        for name in names:
            await join(groups, "a", name)
        monkeypatch.setattr(coordinator, "_PAGE", 2)
        again = groups_of(writer)
        await again.sweep(bench.clock())
        assert all(again.known(name) == groups.known(name) for name in names)

    on_bench(tmp_path, work)
