"""The steward: what it orders, when it judges brokers, and when it stops because the database is behind."""

import asyncio
import logging
from pathlib import Path

import msgspec
import pytest

from flotilla_manager.metadata.errors import Fenced
from flotilla_manager.planning import CloseReplica, HandOver, OpenReplica, SendBook
from flotilla_manager.writer.steward import Given
from support.metadata import an_id
from support.writing import Bench, MadeUpBroker, on_bench


def all_of(bench: Bench) -> list[MadeUpBroker]:
    return list(bench.brokers.values())


def test_a_new_writer_tells_every_broker_at_once_so_that_an_old_one_is_refused(tmp_path: Path) -> None:
    """Guarantee 6: brokers refuse orders of a writer that was replaced."""

    async def work(bench: Bench) -> None:
        one = await bench.writer()
        await one.create()
        snapshot = one.view.snapshot
        assert snapshot is not None
        old = one.epoch
        two = bench.manager("http://one:1")
        await two.leadership.look()
        await two.hear()
        await two.steward.tend(two.epoch)
        assert {broker.writer_epoch for broker in all_of(bench)} == {two.epoch}
        topic = snapshot.ready["t"]
        close = CloseReplica(broker=all_of(bench)[0].id, topic_id=topic.id, partition=0, epoch=1)
        assert await one.steward.give((close,), old, snapshot)
        assert len(all_of(bench)[0].held) == 2
        assert one.leadership.epoch is None, "it has learnt that it is not the writer any more"

    on_bench(tmp_path, work)


def test_a_writer_that_was_replaced_plans_nothing(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        one = await bench.writer()
        bench.store.take_over("http://two:1")
        before = [len(broker.orders) for broker in all_of(bench)]
        await one.hear()
        assert (await one.steward.tend(one.epoch)).is_empty
        assert [len(broker.orders) for broker in all_of(bench)] == before
        with pytest.raises(Fenced):
            await one.create()

    on_bench(tmp_path, work)


def test_a_broker_is_inactive_after_three_missed_heartbeats_and_active_with_the_next(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        writer = await bench.writer()
        await writer.pass_time(5)
        quiet = all_of(bench)[1]
        quiet.is_silent = True
        await writer.pass_time(2)
        assert all(broker.active for broker in bench.store.snapshot().brokers)
        await writer.pass_time(2)
        assert [broker.active for broker in bench.store.snapshot().brokers] == [True, False, True]
        quiet.is_silent = False
        await writer.hear()
        assert all(broker.active for broker in bench.store.snapshot().brokers)

    on_bench(tmp_path, work)


def test_a_new_writer_gives_brokers_time_before_it_judges_them(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        await bench.writer()
        bench.clock.move(100)
        two = bench.manager("http://one:1")
        await two.leadership.look()
        await two.steward.tend(two.epoch)
        bench.clock.move(3)
        await two.steward.tend(two.epoch)
        assert all(broker.active for broker in bench.store.snapshot().brokers)
        bench.clock.move(2)
        await two.steward.tend(two.epoch)
        assert not any(broker.active for broker in bench.store.snapshot().brokers)

    on_bench(tmp_path, work)


def test_a_writer_that_slept_does_not_take_its_own_sleep_for_the_silence_of_brokers(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        writer = await bench.writer()
        await writer.pass_time(5)
        running = asyncio.create_task(writer.steward.run())
        await asyncio.sleep(0.05)  # it waits now, and the process stands still
        bench.clock.move(20)
        await asyncio.sleep(1.0)  # it has looked once, at least
        assert all(broker.active for broker in bench.store.snapshot().brokers)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        bench.clock.move(5)
        await writer.steward.tend(writer.epoch)
        assert not any(broker.active for broker in bench.store.snapshot().brokers), "now it has listened in vain"

    on_bench(tmp_path, work)


def test_to_judge_a_broker_does_not_take_back_what_was_decided_meanwhile(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        writer = await bench.writer()
        await writer.pass_time(5)
        quiet = all_of(bench)[0]
        quiet.is_silent = True
        bench.clock.move(4)
        await writer.view.refresh()
        old = writer.view.snapshot
        assert old is not None
        await writer.service.cordon_broker(quiet.id, cordoned=True)
        await writer.steward._judge_brokers(writer.epoch, old)
        found = bench.store.snapshot().brokers_by_id[quiet.id]
        assert (found.active, found.cordoned) == (False, True)

    on_bench(tmp_path, work)


@pytest.mark.parametrize("knowledge", ["a topic", "an epoch", "both, of a broker that fell silent"])
def test_what_brokers_know_and_the_database_does_not_stops_the_writer_and_closes_nothing(
    tmp_path: Path, knowledge: str
) -> None:
    """If the database is behind the brokers, nothing is ordered."""

    async def work(bench: Bench) -> None:
        writer = await bench.writer()
        await writer.create()
        first = all_of(bench)[0]
        one = next(iter(first.held.values()))
        if knowledge != "an epoch":
            first.held[an_id(9), 0, 1] = OpenReplica(
                broker=first.id,
                topic_id=an_id(9),
                partition=0,
                epoch=1,
                topic="newer",
                members=one.members,
                retention_ms=None,
                retention_bytes=None,
            )
        if knowledge != "a topic":
            first.writer_epoch = 1 << 62
        await writer.hear()
        if "silent" in knowledge:
            first.is_silent = True
            bench.clock.move(10)
        before = [len(broker.orders) for broker in all_of(bench)]
        await writer.steward.tend(writer.epoch)
        assert writer.behind
        text = " ".join(writer.behind[0])
        assert first.id in text
        assert ("newer" in text, str(1 << 62) in text) == (knowledge != "an epoch", knowledge != "a topic")
        assert [len(broker.orders) for broker in all_of(bench)] == before

    on_bench(tmp_path, work)


def test_nothing_is_behind_while_topics_come_and_go_and_brokers_too(tmp_path: Path) -> None:
    """A writer does not stop without need."""

    async def work(bench: Bench) -> None:
        writer = await bench.writer(brokers=4)
        for round_ in range(5):
            await asyncio.gather(*(writer.create(f"t{at}", partitions=1) for at in range(4)))
            lost = all_of(bench)[round_ % 4]
            lost.is_silent = True
            await asyncio.gather(*(writer.topics.delete(writer.epoch, f"t{at}") for at in range(4)))
            await writer.pass_time(5)
            lost.is_silent = False
            lost.starts += 1
            await writer.tend()
            writer = bench.manager("http://one:1")
            await writer.leadership.look()
            await writer.tend()
            assert not writer.behind
        assert not any(broker.held for broker in all_of(bench))

    on_bench(tmp_path, work)


def test_an_order_that_fails_again_and_again_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def work(bench: Bench) -> None:
        writer = await bench.writer()
        await writer.create(partitions=1)
        first = all_of(bench)[0]
        first.held.clear()
        first.refuses = OpenReplica
        with caplog.at_level(logging.INFO):
            await writer.pass_time(10)
        assert len([one for one in caplog.records if "refused OpenReplica" in one.message]) == 1

    on_bench(tmp_path, work)


def test_a_leader_that_does_not_stay_where_it_should_be_is_moved_more_and_more_seldom() -> None:
    """A broker that fails again and again after it was made leader must not stop a partition every few seconds."""
    given, moments = Given(0.0), []
    for second in range(600):
        if not given.is_recent(float(second)):
            given = given.again(float(second))
            moments.append(second)
    assert moments[:5] == [5, 15, 35, 75, 135]
    assert len(moments) < 15


def test_leaders_are_moved_back_once_and_not_again_at_once(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        writer = await bench.writer()
        topic = await writer.create(partitions=1)
        preferred, other, _ = topic.partitions[0].members
        key = (topic.id, 0, 1)
        bench.brokers[preferred].leads.discard(key)
        bench.brokers[other].leads.add(key)

        async def beat() -> None:
            for broker in all_of(bench):
                replicas = tuple(msgspec.structs.replace(one, leader=other) for one in broker.beat().replicas)
                await writer.service.heartbeat(broker.beat(replicas=replicas))
            await writer.steward.tend(writer.epoch)

        for _ in range(4):
            await beat()
        assert len(bench.brokers[other].given(HandOver)) == 1
        bench.clock.move(2)
        await beat()
        assert len(bench.brokers[other].given(HandOver)) == 1
        bench.clock.move(4)
        await beat()
        assert len(bench.brokers[other].given(HandOver)) == 2

    on_bench(tmp_path, work)


def test_a_broker_that_was_started_again_is_told_the_addresses_again(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        writer = await bench.writer()
        first = all_of(bench)[0]
        await writer.tend()
        count = len(first.given(SendBook))
        await writer.tend()
        assert len(first.given(SendBook)) == count
        first.starts += 1
        await writer.tend()
        assert len(first.given(SendBook)) == count + 1

    on_bench(tmp_path, work)


def test_a_failure_that_nobody_foresaw_does_not_end_the_loop_and_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(bench: Bench) -> None:
        writer = await bench.writer()
        looks = []
        enough = asyncio.Event()

        async def fail(_: int) -> None:
            looks.append(1)
            if len(looks) == 5:
                enough.set()
            writer.steward.wake()
            await asyncio.sleep(0)
            raise RuntimeError("a mistake")

        monkeypatch.setattr(writer.steward, "tend", fail)
        writer.steward.wake()
        running = asyncio.create_task(writer.steward.run())
        await enough.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert len([one for one in caplog.records if one.levelno == logging.ERROR]) == 1

    on_bench(tmp_path, work)
