"""Topics: made, changed and removed by the writer, with brokers and databases that fail half-way."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from flotilla.serving.errors import Refusal
from flotilla_manager.metadata.errors import DatabaseAway, Fenced, OutcomeUnknown
from flotilla_manager.model import TopicState
from flotilla_manager.planning import CloseReplica, OpenReplica, Order
from flotilla_manager.writer.topics import TopicSpec
from support.writing import Bench, Writing, on_bench

READY, CREATING = TopicState.READY, TopicState.CREATING


async def refusal_of(call: Any) -> Refusal:  # noqa: ANN401 - any coroutine
    with pytest.raises(Refusal) as caught:
        await call
    return caught.value


def held(writer: Writing) -> int:
    return sum(len(broker.held) for broker in writer.brokers.values())


def test_a_topic_is_open_on_all_its_brokers_when_it_is_ready(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        writer = await bench.writer()
        topic = await writer.create(partitions=4)
        assert topic.state == READY
        assert held(writer) == 12
        assert (await refusal_of(writer.create())).code == "exists"

    on_bench(tmp_path, work)


def test_a_topic_that_a_broker_does_not_open_is_undone_and_its_name_is_free(tmp_path: Path) -> None:
    """A topic that cannot be made leaves nothing behind."""

    async def work(bench: Bench) -> None:
        writer = await bench.writer()
        third = list(writer.brokers.values())[2]
        third.refuses = OpenReplica
        assert (await refusal_of(writer.create())).code == "unavailable"
        third.refuses = None
        await writer.create()
        await writer.tend()
        assert writer.states() == {"t": READY}
        assert held(writer) == 6
        assert not writer.behind

    on_bench(tmp_path, work)


def test_the_steward_leaves_a_topic_to_the_one_who_makes_it(tmp_path: Path) -> None:
    """What is ready may hold acknowledged messages: it must not be undone because one order went wrong late."""

    async def work(bench: Bench) -> None:
        writer = await bench.writer()
        third = list(writer.brokers.values())[2]
        entered, go_on = asyncio.Event(), asyncio.Event()

        async def open_and_say_nothing(order: Order) -> None:
            if isinstance(order, OpenReplica):
                third.held[order.topic_id, order.partition, order.epoch] = order
                entered.set()
                await go_on.wait()
                third.is_silent = True

        third.before = open_and_say_nothing
        making = asyncio.create_task(writer.create(partitions=1))
        await entered.wait()
        await writer.hear()
        await writer.steward.tend(writer.epoch)
        assert writer.states() == {"t": CREATING}, "all replicas are open, but nobody may use them yet"
        go_on.set()
        assert (await refusal_of(making)).code == "unavailable"
        third.is_silent, third.before = False, None
        await writer.tend()
        assert (writer.states(), held(writer)) == ({}, 0)

    on_bench(tmp_path, work)


@pytest.mark.parametrize("error", [DatabaseAway("away"), OutcomeUnknown("away"), Fenced(1, 2, "http://two:1")])
def test_a_topic_whose_maker_fails_before_it_is_ready_is_finished_by_the_next_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """A half-made topic is finished or undone, never stuck."""

    async def work(bench: Bench) -> None:
        one = await bench.writer()

        def fail(*_: object) -> None:
            raise error

        monkeypatch.setattr(one.store, "set_topic_state", fail)
        with pytest.raises(type(error)):
            await one.create()
        two = bench.manager("http://one:1")
        await two.leadership.look()
        assert (await refusal_of(two.create())).code == "unavailable", "not 'exists': nobody can see it yet"
        await two.tend()
        assert two.states() == {"t": READY}

    on_bench(tmp_path, work)


def test_a_topic_that_nobody_can_finish_is_undone_after_a_while_and_its_name_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(bench: Bench) -> None:
        one = await bench.writer()
        third = list(one.brokers.values())[2]
        third.is_silent = True

        def fail(*_: object) -> None:
            raise DatabaseAway("away")

        monkeypatch.setattr(one.store, "set_topic_state", fail)
        with pytest.raises(DatabaseAway):
            await one.create()
        two = bench.manager("http://one:1")
        await two.leadership.look()
        await two.pass_time(70)
        assert two.states() == {}
        await two.create(replication=2)
        third.is_silent = False
        await two.tend()
        assert (two.states(), third.held, two.behind) == ({"t": READY}, {}, [])

    on_bench(tmp_path, work)


def test_a_deleted_topic_is_closed_at_brokers_that_come_late(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        writer = await bench.writer()
        await writer.create()
        late = next(iter(writer.brokers.values()))
        late.is_silent = True
        await writer.topics.delete(writer.epoch, "t")
        await writer.pass_time(6)
        assert bench.store.snapshot().topics[0].state == TopicState.DELETED
        assert len(late.held) == 2
        late.is_silent = False
        await writer.tend()
        assert (late.held, writer.behind) == ({}, [])

    on_bench(tmp_path, work)


def test_topics_that_are_made_at_once_are_spread_as_if_they_were_made_in_turn(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        writer = await bench.writer(brokers=6)
        await asyncio.gather(*(writer.create(f"t{at}", partitions=1, replication=1) for at in range(12)))
        counts = Counter(member for topic in bench.store.snapshot().topics for member in topic.partitions[0].members)
        assert set(counts.values()) == {2}

    on_bench(tmp_path, work)


def test_to_put_a_topic_again_changes_nothing_and_to_put_more_partitions_adds_them(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        writer = await bench.writer()
        first = await writer.topics.put(writer.epoch, TopicSpec(name="t", partitions=2, owner="Topic/a"))
        version = bench.store.version()
        again = await writer.topics.put(writer.epoch, TopicSpec(name="t", partitions=2, owner="Topic/a"))
        assert (bench.store.version(), again.id, again.state) == (version, first.id, READY)
        grown = await writer.topics.put(writer.epoch, TopicSpec(name="t", partitions=5, owner="Topic/a"))
        assert [one.index for one in grown.partitions] == [0, 1, 2, 3, 4]
        assert grown.partitions[:2] == first.partitions
        fewer = writer.topics.put(writer.epoch, TopicSpec(name="t", partitions=4, owner="Topic/a"))
        assert "there can only be more" in str(await refusal_of(fewer))

    on_bench(tmp_path, work)


def test_changes_at_the_same_time_do_not_undo_each_other(tmp_path: Path) -> None:
    """Who changes one setting says nothing about the others."""

    async def work(bench: Bench) -> None:
        writer = await bench.writer()
        await writer.create(partitions=1)
        changes: list[dict[str, Any]] = [
            {"retention_bytes": 1000},
            {"compression": "zstd"},
            {"partitions": 2},
            {"retention_ms": None},
            {"batch_bytes_max": 2048},
        ]
        await asyncio.gather(*(writer.topics.change(writer.epoch, "t", **change) for change in changes))
        (topic,) = bench.store.snapshot().topics
        assert (topic.retention_ms, topic.retention_bytes, topic.batch_bytes_max) == (None, 1000, 2048)
        assert (topic.compression, len(topic.partitions)) == ("zstd", 2)

    on_bench(tmp_path, work)


def test_a_change_does_not_bring_a_deleted_topic_back(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        writer = await bench.writer()
        await writer.create()
        deleting = asyncio.create_task(writer.topics.delete(writer.epoch, "t"))
        await asyncio.sleep(0)
        late = await refusal_of(writer.topics.change(writer.epoch, "t", compression="zstd"))
        await deleting
        assert late.code == "not_found"
        assert writer.states() == {"t": TopicState.DELETING}

    on_bench(tmp_path, work)


def test_a_topic_grows_once_when_it_is_asked_for_twice_at_the_same_time(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        writer = await bench.writer()
        await writer.create(partitions=1)
        spec = TopicSpec(name="t", partitions=4)
        await asyncio.gather(*(writer.topics.put(writer.epoch, spec) for _ in range(3)))
        assert len(bench.store.snapshot().topics[0].partitions) == 4
        assert held(writer) == 12

    on_bench(tmp_path, work)


def test_of_two_owners_at_the_same_time_one_is_refused(tmp_path: Path) -> None:
    """A topic that a resource owns refuses others, and names the resource."""

    async def work(bench: Bench) -> None:
        writer = await bench.writer()
        await writer.create()
        puts = [writer.topics.put(writer.epoch, TopicSpec(name="t", owner=f"Topic/{at}")) for at in range(2)]
        ends = await asyncio.gather(*puts, return_exceptions=True)
        assert [type(end).__name__ for end in ends] == ["Topic", "Refusal"]
        assert "belongs to Topic/0" in str(ends[1])
        for owner in (None, "Topic/1"):
            refusal = await refusal_of(writer.topics.delete(writer.epoch, "t", owner))
            assert "belongs to Topic/0" in str(refusal)
        await writer.topics.delete(writer.epoch, "t", "Topic/0")
        assert writer.brokers[next(iter(writer.brokers))].given(CloseReplica)

    on_bench(tmp_path, work)


def test_new_partitions_that_a_broker_does_not_open_are_opened_by_the_steward(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        writer = await bench.writer()
        await writer.create(partitions=1)
        third = list(writer.brokers.values())[2]
        third.refuses = OpenReplica
        await writer.topics.put(writer.epoch, TopicSpec(name="t", partitions=3))
        assert len(third.held) == 1
        third.refuses = None
        await writer.tend()
        assert len(third.held) == 3

    on_bench(tmp_path, work)


@pytest.mark.parametrize("call", ["create", "delete"])
def test_what_was_done_is_told_as_done_though_the_database_goes_away_right_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    async def work(bench: Bench) -> None:
        writer = await bench.writer()
        if call == "delete":
            await writer.create()
        set_topic_state = writer.store.set_topic_state

        async def fail() -> None:
            raise DatabaseAway("away")

        def set_and_go_away(epoch: int, topic_id: str, state: TopicState) -> None:
            set_topic_state(epoch, topic_id, state)
            monkeypatch.setattr(writer.view, "refresh", fail)

        monkeypatch.setattr(writer.store, "set_topic_state", set_and_go_away)
        await (writer.create() if call == "create" else writer.topics.delete(writer.epoch, "t"))
        assert ("t" in bench.store.snapshot().ready) == (call == "create")

    on_bench(tmp_path, work)
