"""The writer's side of groups, on a real database and with a clock that stands still until a test moves it."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flotilla.groups.membership import StaleGeneration, UnknownMember
from flotilla.groups.offsets import Commit
from flotilla.groups.state import Place, Strategy
from flotilla.groups.telling import Answer
from flotilla.serving.errors import Refusal
from flotilla_manager.metadata import groups as metadata_groups
from flotilla_manager.metadata.errors import (
    DatabaseAway,
    Fenced,
    GroupHasMembers,
    GroupMissing,
    OutcomeUnknown,
    TooManyGroups,
)
from flotilla_manager.model import TopicState
from flotilla_manager.writer import groups as coordinator
from flotilla_manager.writer.groups import Groups
from flotilla_manager.writer.topics import TopicSpec
from support.writing import Bench, Writing, on_bench

TIMEOUT_S = 10


def groups_of(writer: Writing) -> Groups:
    """Make the part of a manager that looks after groups."""
    return Groups(
        writer.leadership, writer.database, writer.view, clock=writer.clock, random_bytes=writer.store._random_bytes
    )


async def begin(bench: Bench, partitions: int = 4) -> tuple[Writing, Groups]:
    """Have a writer and a topic."""
    writer = await bench.writer()
    await writer.create("t", partitions=partitions)
    await writer.view.refresh()
    return writer, groups_of(writer)


async def join(groups: Groups, member: str | None = "a", group: str = "g") -> Answer:
    return await groups.join(group, member, ["t"], TIMEOUT_S * 1000, Strategy.STICKY)


async def settle(groups: Groups, *members: str, group: str = "g") -> dict[str, tuple[Place, ...]]:
    """Have members do what they are told until nobody has to do anything; tell what they have then."""
    have: dict[str, tuple[Place, ...]] = {}
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
                have[member], generation[member] = answer.told.assigned, answer.told.generation
                busy = True
        if not busy:
            return have
    raise AssertionError(f"they do not come to rest: {have}")


def test_members_share_the_partitions_and_the_database_knows_it(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        _, groups = await begin(bench)
        first = await join(groups, "a")
        assert (len(first.told.assigned), first.state, first.heartbeat_ms) == (4, "stable", TIMEOUT_S * 1000 // 3)
        second = await join(groups, "b")
        assert (second.told.assigned, second.told.pending, second.state) == ((), 2, "rebalancing")
        assert second.heartbeat_ms == 500
        have = await settle(groups, "a", "b")
        assert sorted(len(places) for places in have.values()) == [2, 2]
        assert bench.store.load_group("g") == groups.known("g")
        drawn = await join(groups, None, "other")
        assert len(drawn.member.id) == 32

    on_bench(tmp_path, work)


def test_a_member_that_falls_silent_is_taken_out_and_one_that_lives_stays(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        _, groups = await begin(bench)
        generation = 0
        for member in ("a", "b"):
            generation = (await join(groups, member)).told.generation
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


def test_a_new_writer_gives_everybody_a_full_timeout(tmp_path: Path) -> None:
    """Nobody is thrown out because the writer was away: it has not listened."""

    async def work(bench: Bench) -> None:
        _, groups = await begin(bench)
        generation = (await join(groups, "a")).told.generation
        before = bench.store.load_group("g")
        bench.clock.move(1000)
        two = bench.manager("http://one:1")
        await two.leadership.look()
        await two.view.refresh()
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


def test_a_writer_that_slept_does_not_take_its_own_sleep_for_the_silence_of_members(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        _, groups = await begin(bench)
        await join(groups, "a")
        running = asyncio.create_task(groups.run())
        await asyncio.sleep(0.05)  # it waits now, and the process stands still
        bench.clock.move(100)
        await asyncio.sleep(2.5 * coordinator.SWEEP_S)  # it has looked twice
        assert groups.known("g") is not None
        bench.clock.move(TIMEOUT_S - 1)
        await groups.sweep(bench.clock())
        assert groups.known("g") is not None, "it has the full timeout from then on"
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    on_bench(tmp_path, work)


def test_a_writer_that_was_too_busy_to_listen_gives_that_time_back(tmp_path: Path) -> None:
    """Heartbeats that wait to be read while the process is busy are not silence, and silence is not forgotten."""

    async def work(bench: Bench) -> None:
        _, groups = await begin(bench)
        await groups.join("g", "a", ["t"], 1000, Strategy.STICKY)
        running = asyncio.create_task(groups.run())
        await asyncio.sleep(0.05)
        bench.clock.move(coordinator.SWEEP_S + 1.5)  # longer than its timeout, but not asleep
        await asyncio.sleep(1.5 * coordinator.SWEEP_S)  # it has looked
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert groups.known("g") is not None
        bench.clock.move(1 - coordinator.SWEEP_S)
        await groups.sweep(bench.clock())
        assert groups.known("g") is None

    on_bench(tmp_path, work)


def test_a_writer_that_was_replaced_changes_nothing(tmp_path: Path) -> None:
    """Guarantee 6: the database checks the epoch of whoever changes a group."""

    async def work(bench: Bench) -> None:
        writer, groups = await begin(bench)
        generation = (await join(groups, "a")).told.generation
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
        writer.leadership.lose(writer.epoch, "replaced")
        with pytest.raises(Refusal, match="no writer at the moment"):
            await groups.heartbeat("g", "a", generation)

    on_bench(tmp_path, work)


def test_a_writer_that_was_replaced_and_is_back_reads_everything_again(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        writer, groups = await begin(bench)
        await join(groups, "a")
        other = bench.manager("http://two:1")
        epoch = bench.store.take_over("http://two:1")
        other.leadership.epoch = epoch
        await other.view.refresh()
        await join(groups_of(other), "b")
        writer.leadership.epoch = bench.store.take_over("http://one:1")
        assert groups.known("g") is None, "what it remembers is not what is"
        await groups.sweep(bench.clock())
        assert set(groups.known("g").members) == {"a", "b"}  # type: ignore[union-attr]

    on_bench(tmp_path, work)


Call = Callable[..., Any]


def disturb(
    monkeypatch: pytest.MonkeyPatch, writer: Writing, error: Exception, *, is_done: bool, method: str = "save_group"
) -> list[str]:
    """Have the next write fail, with or without an effect."""
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
def test_after_a_write_whose_outcome_is_unknown_the_database_tells_what_is_true(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_done: bool
) -> None:
    async def work(bench: Bench) -> None:
        writer, groups = await begin(bench)
        generation = (await join(groups, "a")).told.generation
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


def test_while_the_database_is_away_heartbeats_are_heard_and_nobody_is_thrown_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(bench: Bench) -> None:
        writer, groups = await begin(bench)
        generation = (await join(groups, "a")).told.generation

        async def fail(*_: object, **__: object) -> None:
            raise DatabaseAway("away")

        with monkeypatch.context() as patch:
            patch.setattr(writer.database, "call", fail)
            for _ in range(3):
                bench.clock.move(TIMEOUT_S - 1)
                assert (await groups.heartbeat("g", "a", generation)).generation == generation
                await groups.sweep(bench.clock())
            with pytest.raises(DatabaseAway):
                await join(groups, "b")
            bench.clock.move(100)
            with pytest.raises(DatabaseAway):
                await groups.sweep(bench.clock())
        assert groups.known("g") is None
        await groups.sweep(bench.clock())
        assert groups.known("g") is not None, "it was in doubt, and is read again, with a full timeout"
        assert (await groups.heartbeat("g", "a", generation)).generation == generation

    on_bench(tmp_path, work)


def test_nobody_waits_for_ever_for_the_others_of_a_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the database hangs, each call takes as long as it may; those behind it are told so, and do not pile up."""
    monkeypatch.setattr(coordinator, "_TURN_S", 0.2)

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
        assert groups.known("other") is None, "the trouble of one group is not that of the others"
        back.set()
        await first
        await join(groups, "d", "hangs")

    on_bench(tmp_path, work)


def test_refusals_that_are_certain_leave_no_doubt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else whoever tries again and again to make one group too many has all groups read, and everybody forgiven."""
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


def test_a_group_that_is_made_again_is_not_taken_for_the_one_that_was_deleted(tmp_path: Path) -> None:
    """What a member of the deleted one says is refused, even if somebody has its id in the new one."""

    async def work(bench: Bench) -> None:
        _, groups = await begin(bench)
        for _ in range(3):
            old = await join(groups, "a")
        await groups.delete("g", force=True)
        new = await join(groups, "a")
        assert new.told.generation > old.told.generation
        with pytest.raises(StaleGeneration):
            await groups.heartbeat("g", "a", old.told.generation)
        with pytest.raises(StaleGeneration):
            bench.store.commit("g", [Commit(place=new.told.assigned[0], offset=9)], ("a", old.told.generation))

    on_bench(tmp_path, work)


def test_topics_that_grow_come_and_go_are_fitted_in(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        writer, groups = await begin(bench, partitions=2)
        await join(groups, "a")
        await writer.topics.configure(writer.epoch, TopicSpec(name="t", partitions=4))
        await writer.view.refresh()
        await groups.sweep(bench.clock())
        assert len((await settle(groups, "a"))["a"]) == 4
        topic = writer.view.topic("t")
        assert topic is not None
        bench.store.set_topic_state(writer.epoch, topic.id, TopicState.DELETING)
        await writer.view.refresh()
        await groups.sweep(bench.clock())
        assert await settle(groups, "a") == {"a": ()}
        again = await writer.create("t", partitions=1)
        await writer.view.refresh()
        await groups.sweep(bench.clock())
        assert await settle(groups, "a") == {"a": (Place(again.id, 0),)}
        assert bench.store.load_group("g") == groups.known("g")

    on_bench(tmp_path, work)


def test_a_sweep_that_takes_long_does_not_fit_a_group_to_topics_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partition that was dealt out since the sweep began must not be taken from its owner, as if it were gone."""

    async def work(bench: Bench) -> None:
        writer, groups = await begin(bench)
        await join(groups, "a", "first")
        await join(groups, "a", "second")
        real: Call = writer.database.call

        async def grow_meanwhile(function: Call, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - whatever it is
            monkeypatch.setattr(writer.database, "call", real)
            await writer.topics.configure(writer.epoch, TopicSpec(name="t", partitions=6))
            await writer.view.refresh()
            assert len((await join(groups, "a", "second")).told.assigned) == 6
            return await real(function, *args, **kwargs)

        bench.clock.move(TIMEOUT_S / 2)
        await groups.heartbeat("second", "a", 1)
        bench.clock.move(TIMEOUT_S / 2)  # the first group's member is silent, so that something is written
        monkeypatch.setattr(writer.database, "call", grow_meanwhile)
        await groups.sweep(bench.clock())
        found = groups.known("second")
        assert found is not None
        assert [one.owner for one in found.holdings.values()] == ["a"] * 6

    on_bench(tmp_path, work)


def test_a_topic_that_is_removed_in_this_moment_costs_a_try(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        writer, groups = await begin(bench)
        topic = writer.view.topic("t")
        assert topic is not None
        await groups.sweep(bench.clock())
        bench.store.set_topic_state(writer.epoch, topic.id, TopicState.DELETING)
        with pytest.raises(Refusal, match="removed just now") as caught:
            await join(groups, "a")
        assert caught.value.is_retryable
        assert bench.store.load_group("g") is None

    on_bench(tmp_path, work)


def test_many_members_join_at_once_one_after_the_other(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        _, groups = await begin(bench, partitions=8)
        names = [f"m{at}" for at in range(8)]
        answers = await asyncio.gather(*(join(groups, name) for name in names))
        assert sorted(answer.told.generation for answer in answers) == list(range(1, 9))
        have = await settle(groups, *names)
        assert sorted(place.partition for places in have.values() for place in places) == list(range(8))

    on_bench(tmp_path, work)


def test_a_new_life_of_a_member_fences_the_old_one(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        _, groups = await begin(bench)
        old = await join(groups, "a")
        new = await join(groups, "a")
        assert new.told.assigned == old.told.assigned
        for call in (
            groups.heartbeat("g", "a", old.told.generation),
            groups.sync("g", "a", old.told.generation, ()),
            groups.leave("g", "a", old.told.generation),
        ):
            with pytest.raises(StaleGeneration):
                await call
        await groups.leave("g", "a", new.told.generation)
        assert groups.known("g") is None

    on_bench(tmp_path, work)


def test_a_reset_and_a_deletion_need_an_empty_group_or_force(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        _, groups = await begin(bench)
        answer = await join(groups, "a")
        to = [Commit(place=answer.told.assigned[0], offset=7)]
        with pytest.raises(GroupHasMembers):
            await groups.reset("g", to, force=False)
        with pytest.raises(GroupHasMembers):
            await groups.delete("g", force=False)
        assert bench.store.commits_of("g") == []
        await groups.reset("g", to, force=True)
        with pytest.raises(UnknownMember):
            await groups.heartbeat("g", "a", answer.told.generation)
        assert [replace(one, committed_ms=0) for one in bench.store.commits_of("g") or ()] == to
        await join(groups, "a")
        await groups.delete("g", force=True)
        assert (groups.known("g"), bench.store.load_group("g")) == (None, None)
        with pytest.raises(GroupMissing):
            await groups.delete("g", force=True)

    on_bench(tmp_path, work)


def test_a_group_has_only_so_many_members_and_partitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(bench: Bench) -> None:
        _, groups = await begin(bench)
        monkeypatch.setattr(coordinator, "GROUP_MEMBERS_MAX", 2)
        await join(groups, "a")
        await join(groups, "b")
        with pytest.raises(Refusal, match="2 is the limit"):
            await join(groups, "c")
        await join(groups, "b")
        monkeypatch.setattr(coordinator, "GROUP_PARTITIONS_MAX", 3)
        with pytest.raises(Refusal, match="4 partitions; 3 is the limit"):
            await join(groups, "b")

    on_bench(tmp_path, work)


def test_all_groups_are_read_page_by_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
