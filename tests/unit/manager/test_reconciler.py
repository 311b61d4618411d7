"""Broker reconciler: commands, liveness of brokers, and stopping if the database is behind."""

import asyncio
import logging
from pathlib import Path

import msgspec
import pytest

from flotilla_manager.metadata.errors import Fenced
from flotilla_manager.planning import DeleteReplica, Plan, PutReplica, TransferLeadership, UpdatePeers
from flotilla_manager.writer.reconciler import SentCommand
from support.metadata import an_id
from support.writer_harness import Bench, FakeBroker, on_bench


def fetch_all(bench: Bench) -> list[FakeBroker]:
    return list(bench.brokers.values())


def test_new_writer_sends_its_epoch_to_all_brokers_at_once(tmp_path: Path) -> None:
    """Guarantee 6: brokers reject commands of a replaced writer."""

    async def work(bench: Bench) -> None:
        one = await bench.writer()
        await one.create()
        snapshot = one.metadata.snapshot
        assert snapshot is not None
        old = one.epoch
        two = bench.manager("http://one:1")
        await two.election.step()
        await two.receive_heartbeats()
        await two.reconciler.reconcile(two.epoch)
        assert {broker.writer_epoch for broker in fetch_all(bench)} == {two.epoch}
        topic = snapshot.ready["t"]
        delete = DeleteReplica(broker=fetch_all(bench)[0].id, topic_id=topic.id, partition=0, epoch=1)
        assert await one.reconciler.send((delete,), old, snapshot)
        assert len(fetch_all(bench)[0].held) == 2
        assert one.election.epoch is None, "the old writer knows that it has been replaced"

    on_bench(tmp_path, work)


def test_replaced_writer_makes_no_plan(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        one = await bench.writer()
        bench.store.take_over("http://two:1")
        before = [len(broker.commands) for broker in fetch_all(bench)]
        await one.receive_heartbeats()
        assert await one.reconciler.reconcile(one.epoch) == Plan()
        assert [len(broker.commands) for broker in fetch_all(bench)] == before
        with pytest.raises(Fenced):
            await one.create()

    on_bench(tmp_path, work)


def test_broker_is_inactive_after_three_missed_heartbeats_and_active_with_the_next(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        writer = await bench.writer()
        await writer.pass_time(5)
        quiet = fetch_all(bench)[1]
        quiet.is_silent = True
        await writer.pass_time(2)
        assert all(broker.active for broker in bench.store.snapshot().brokers)
        await writer.pass_time(2)
        assert [broker.active for broker in bench.store.snapshot().brokers] == [True, False, True]
        quiet.is_silent = False
        await writer.receive_heartbeats()
        assert all(broker.active for broker in bench.store.snapshot().brokers)

    on_bench(tmp_path, work)


def test_new_writer_waits_before_it_marks_brokers_inactive(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        await bench.writer()
        bench.clock.move(100)
        two = bench.manager("http://one:1")
        await two.election.step()
        await two.reconciler.reconcile(two.epoch)
        bench.clock.move(3)
        await two.reconciler.reconcile(two.epoch)
        assert all(broker.active for broker in bench.store.snapshot().brokers)
        bench.clock.move(2)
        await two.reconciler.reconcile(two.epoch)
        assert not any(broker.active for broker in bench.store.snapshot().brokers)

    on_bench(tmp_path, work)


def actives(bench: Bench) -> list[bool]:
    return [broker.active for broker in bench.store.snapshot().brokers]


@pytest.mark.parametrize(("interval_s", "limit_s"), [(0.01, 3), (1.0, 3), (2.0, 6), (10.0, 30)])
def test_broker_is_inactive_after_three_of_its_intervals_and_not_before_three_seconds(
    tmp_path: Path, interval_s: float, limit_s: int
) -> None:
    async def work(bench: Bench) -> None:
        writer = await bench.writer()
        one = fetch_all(bench)[1]
        one.manager_heartbeat_s = interval_s
        await writer.pass_time(10)
        one.is_silent = True
        await writer.pass_time(limit_s)
        assert actives(bench) == [True, True, True]
        await writer.pass_time(1)
        assert actives(bench) == [True, False, True]

    on_bench(tmp_path, work)


def test_new_writer_waits_for_brokers_with_a_long_interval_and_not_for_those_that_do_not_answer(tmp_path: Path) -> None:
    """A new writer does not know the intervals, so it requests them from brokers without a heartbeat."""

    async def work(bench: Bench) -> None:
        await bench.writer()
        slow, gone, default = fetch_all(bench)
        slow.manager_heartbeat_s, gone.is_silent = 10.0, True
        two = bench.manager("http://one:1")
        await two.election.step()
        bench.clock.move(4)
        await two.reconciler.reconcile(two.epoch)
        assert actives(bench) == [True, False, False]
        await two.receive_heartbeats(default)
        bench.clock.move(35)
        await two.receive_heartbeats(default)
        await two.reconciler.reconcile(two.epoch)
        assert actives(bench) == [True, False, True]
        bench.clock.move(1)
        await two.reconciler.reconcile(two.epoch)
        assert actives(bench) == [False, False, True], "the broker responds, but sends no heartbeats"

    on_bench(tmp_path, work)


@pytest.mark.parametrize(
    "described", [{"manager_heartbeat_s": 3600.0}, {"id": an_id(1), "manager_heartbeat_s": 10.0}, {}]
)
def test_writer_gives_no_further_time_for_an_interval_that_is_wrong_or_of_another_broker(
    tmp_path: Path, described: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(bench: Bench) -> None:
        await bench.writer(1)
        two = bench.manager("http://one:1")

        async def describe(*_: object, **__: object) -> dict[str, object]:
            return {"id": fetch_all(bench)[0].id, **described}

        monkeypatch.setattr(two.reconciler._commands, "describe", describe)
        await two.election.step()
        bench.clock.move(4)
        await two.reconciler.reconcile(two.epoch)
        assert actives(bench) == [False]

    on_bench(tmp_path, work)


def test_pause_of_the_writer_does_not_count_as_silence_of_brokers(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        writer = await bench.writer()
        await writer.pass_time(5)
        running = asyncio.create_task(writer.reconciler.run())
        await asyncio.sleep(0.05)  # the loop waits; then the process is paused
        bench.clock.move(20)
        await asyncio.sleep(1.0)  # at least one reconcile
        assert all(broker.active for broker in bench.store.snapshot().brokers)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        bench.clock.move(5)
        await writer.reconciler.reconcile(writer.epoch)
        assert not any(broker.active for broker in bench.store.snapshot().brokers), (
            "no heartbeat arrived for three intervals"
        )

    on_bench(tmp_path, work)


def test_liveness_update_keeps_concurrent_changes_of_a_broker(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        writer = await bench.writer()
        await writer.pass_time(5)
        quiet = fetch_all(bench)[0]
        quiet.is_silent = True
        bench.clock.move(4)
        await writer.metadata.refresh()
        old = writer.metadata.snapshot
        assert old is not None
        await writer.service.brokers.cordon(quiet.id, cordoned=True)
        await writer.reconciler._mark_inactive(writer.epoch, old)
        found = bench.store.snapshot().brokers_by_id[quiet.id]
        assert (found.active, found.cordoned) == (False, True)

    on_bench(tmp_path, work)


@pytest.mark.parametrize("knowledge", ["a topic", "an epoch", "both, of a broker that fell silent"])
def test_writer_stops_and_closes_nothing_if_the_database_is_behind(tmp_path: Path, knowledge: str) -> None:
    """If the database is behind the brokers, no commands are sent."""

    async def work(bench: Bench) -> None:
        writer = await bench.writer()
        await writer.create()
        first = fetch_all(bench)[0]
        one = next(iter(first.held.values()))
        if knowledge != "an epoch":
            first.held[an_id(9), 0, 1] = PutReplica(
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
        await writer.receive_heartbeats()
        if "silent" in knowledge:
            first.is_silent = True
            bench.clock.move(10)
        before = [len(broker.commands) for broker in fetch_all(bench)]
        await writer.reconciler.reconcile(writer.epoch)
        assert writer.outdated
        text = " ".join(writer.outdated[0])
        assert f"broker {first.host}:{first.port} " in text
        assert ("newer" in text, str(1 << 62) in text) == (knowledge != "an epoch", knowledge != "a topic")
        assert [len(broker.commands) for broker in fetch_all(bench)] == before

    on_bench(tmp_path, work)


def test_database_is_not_behind_during_changes_of_topics_and_brokers(tmp_path: Path) -> None:
    """The writer must not stop without a reason."""

    async def work(bench: Bench) -> None:
        writer = await bench.writer(brokers=4)
        for round_ in range(5):
            await asyncio.gather(*(writer.create(f"t{at}", partitions=1) for at in range(4)))
            lost = fetch_all(bench)[round_ % 4]
            lost.is_silent = True
            await asyncio.gather(*(writer.topics.delete(writer.epoch, f"t{at}") for at in range(4)))
            await writer.pass_time(5)
            lost.is_silent = False
            lost.starts += 1
            await writer.reconcile()
            writer = bench.manager("http://one:1")
            await writer.election.step()
            await writer.reconcile()
            assert not writer.outdated
        assert not any(broker.held for broker in fetch_all(bench))

    on_bench(tmp_path, work)


def test_repeated_failure_of_a_command_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def work(bench: Bench) -> None:
        writer = await bench.writer()
        await writer.create(partitions=1)
        first = fetch_all(bench)[0]
        first.held.clear()
        first.refuses = PutReplica
        with caplog.at_level(logging.INFO):
            await writer.pass_time(10)
        (line,) = [one.message for one in caplog.records if "refused PutReplica" in one.message]
        topic = bench.store.snapshot().ready["t"]
        found = (
            f"command failed command=PutReplica broker=127.0.0.1:{first.port} topic=t topic_id={topic.id} partition=0"
        )
        assert line.startswith(found)

    on_bench(tmp_path, work)


def test_failed_peer_update_is_logged_with_its_command_and_broker(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(bench: Bench) -> None:
        writer = await bench.writer(brokers=1)
        first = fetch_all(bench)[0]
        first.refuses, first.port = UpdatePeers, 7777
        with caplog.at_level(logging.INFO):
            await writer.reconcile()
        assert "command failed command=UpdatePeers broker=127.0.0.1:7777 error=" in caplog.text

    on_bench(tmp_path, work)


def test_state_change_by_the_reconciler_is_logged_with_the_name_of_the_topic(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(bench: Bench) -> None:
        writer = await bench.writer()
        topic = await writer.create()
        await writer.topics.delete(writer.epoch, "t")
        with caplog.at_level(logging.INFO):
            await writer.reconcile()
        assert f"topic state changed topic=t topic_id={topic.id} state=deleted" in caplog.messages

    on_bench(tmp_path, work)


def test_repeated_leadership_transfers_back_off() -> None:
    """A broker that repeatedly fails as leader must not interrupt a partition every few seconds."""
    given, moments = SentCommand(0.0), []
    for second in range(600):
        if not given.is_recent(float(second)):
            given = given.again(float(second))
            moments.append(second)
    assert moments[:5] == [5, 15, 35, 75, 135]
    assert len(moments) < 15


def test_leadership_transfer_is_not_repeated_at_once(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        writer = await bench.writer()
        topic = await writer.create(partitions=1)
        preferred, other, _ = topic.partitions[0].members
        key = (topic.id, 0, 1)
        bench.brokers[preferred].leads.discard(key)
        bench.brokers[other].leads.add(key)

        async def heartbeat() -> None:
            for broker in fetch_all(bench):
                replicas = tuple(msgspec.structs.replace(one, leader=other) for one in broker.heartbeat().replicas)
                await writer.service.brokers.heartbeat(broker.heartbeat(replicas=replicas))
            await writer.reconciler.reconcile(writer.epoch)

        for _ in range(4):
            await heartbeat()
        assert len(bench.brokers[other].given(TransferLeadership)) == 1
        bench.clock.move(2)
        await heartbeat()
        assert len(bench.brokers[other].given(TransferLeadership)) == 1
        bench.clock.move(4)
        await heartbeat()
        assert len(bench.brokers[other].given(TransferLeadership)) == 2

    on_bench(tmp_path, work)


def test_restarted_broker_gets_the_peers_again(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        writer = await bench.writer()
        first = fetch_all(bench)[0]
        await writer.reconcile()
        count = len(first.given(UpdatePeers))
        await writer.reconcile()
        assert len(first.given(UpdatePeers)) == count
        first.starts += 1
        await writer.reconcile()
        assert len(first.given(UpdatePeers)) == count + 1

    on_bench(tmp_path, work)


def test_unexpected_exception_does_not_end_the_loop_and_is_logged_once(
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
            writer.reconciler.wake()
            await asyncio.sleep(0)
            raise RuntimeError("a mistake")

        monkeypatch.setattr(writer.reconciler, "reconcile", fail)
        writer.reconciler.wake()
        running = asyncio.create_task(writer.reconciler.run())
        await enough.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert len([one for one in caplog.records if one.levelno == logging.ERROR]) == 1

    on_bench(tmp_path, work)
