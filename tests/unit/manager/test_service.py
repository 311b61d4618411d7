"""Services of the writer: heartbeats, serialized changes of brokers, and the life of a manager."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from flotilla.protocol.errors import Refusal
from flotilla_manager.manager import Manager
from flotilla_manager.metadata import open_store
from flotilla_manager.metadata.errors import DatabaseUnavailable
from flotilla_manager.settings import Settings
from flotilla_manager.writer import brokers
from flotilla_server.broker_starts import StartReport
from support.metadata import an_id
from support.writer_harness import Bench, FakeBroker, WriterHarness, on_bench


def first_of(bench: Bench) -> FakeBroker:
    return next(iter(bench.brokers.values()))


async def lose_disk(writer: WriterHarness, broker: FakeBroker) -> FakeBroker:
    """Restart a broker with an empty disk at the same address."""
    del writer.brokers[broker.id]
    new = FakeBroker(0x40)
    new.port = broker.port
    writer.brokers[new.id] = new
    await writer.pass_time(6)
    return new


def test_standby_refuses_all_requests_of_the_writer(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        standby = bench.manager()
        heartbeat = FakeBroker(1).heartbeat()
        for call in (
            standby.service.brokers.heartbeat(heartbeat),
            standby.service.topics.create("t"),
            standby.service.topics.delete("t"),
            standby.service.registrations.register_producer("t"),
            standby.service.registrations.register_consumer("t", None, latest=False),
            standby.service.brokers.delete(heartbeat.id),
            standby.service.brokers.configure(heartbeat.id, rack=None, wanted=True, cordoned=False),
        ):
            with pytest.raises(Refusal, match="No writer is active"):
                await call

    on_bench(tmp_path, work)


def test_unchanged_heartbeat_needs_no_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers stay active while the database is unavailable."""

    async def work(bench: Bench) -> None:
        writer = await bench.writer()

        async def fail(*_: object) -> None:
            raise DatabaseUnavailable("away")

        monkeypatch.setattr(writer.database, "call", fail)
        await writer.receive_heartbeats()
        new = FakeBroker(9)
        with pytest.raises(DatabaseUnavailable):
            await writer.service.brokers.heartbeat(new.heartbeat())

    on_bench(tmp_path, work)


def report(number: int, lsn: int) -> StartReport:
    return StartReport(number=number, token=f"{number:02x}", lsn=lsn, recovered_lsn=lsn)


def test_start_of_a_clone_does_not_replace_the_address_of_its_broker(tmp_path: Path) -> None:
    """Nor its heartbeats: records and commands keep going to the genuine broker."""

    async def work(bench: Bench) -> None:
        writer = await bench.writer()
        broker = first_of(bench)
        send = writer.service.brokers.heartbeat
        assert "start" not in await send(broker.heartbeat(start=report(1, 50)))
        answers = []
        for _ in range(6):
            answers.append(await send(broker.heartbeat(start=report(2, 50), port=9)))
            bench.clock.move(1)
            await send(broker.heartbeat(start=report(1, 50)))
        assert [answer["start"] for answer in answers] == ["unconfirmed"] * 4 + ["duplicate"] * 2
        assert writer.metadata.require_snapshot().brokers_by_id[broker.id].port == broker.port

    on_bench(tmp_path, work)


def test_first_heartbeats_of_several_brokers_are_all_remembered(tmp_path: Path) -> None:
    """Each loads the stored starts; the last to load them must not forget what the others have reported."""

    async def work(bench: Bench) -> None:
        writer = await bench.writer()
        brokers = list(bench.brokers.values())
        await asyncio.gather(*(writer.service.brokers.heartbeat(one.heartbeat(start=report(1, 50))) for one in brokers))
        for broker in brokers:
            answer = await writer.service.brokers.heartbeat(broker.heartbeat(start=report(2, 49)))
            assert answer["start"] == "older_copy"

    on_bench(tmp_path, work)


def test_older_copy_is_rejected_by_the_next_writer_as_well(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Guarantee 1: the database remembers the LSN up to which the log of each broker was durable."""

    async def work(bench: Bench) -> None:
        writer = await bench.writer()
        broker = first_of(bench)
        await writer.service.brokers.heartbeat(broker.heartbeat(start=report(1, 50)))
        bench.clock.move(2)
        await writer.reconciler.reconcile(writer.epoch)
        other = bench.manager("http://two:1")
        bench.store.take_over("http://three:1")
        bench.clock.move(100)
        while other.election.epoch is None:
            await other.election.step()
            bench.clock.move(1)
        answer = await other.service.brokers.heartbeat(broker.heartbeat(start=report(2, 49)))
        assert answer["start"] == "older_copy"
        assert not other.reports.is_alive(broker.id)
        answer = await other.service.brokers.heartbeat(broker.heartbeat(start=report(2, 50)))
        assert "start" not in answer, "at the same address, a restart is confirmed at once"

    on_bench(tmp_path, work)
    assert "broker start rejected" in caplog.text


def test_heartbeat_keeps_concurrent_changes_of_a_broker(tmp_path: Path) -> None:
    """A broker that returns while it is cordoned or removed stays cordoned or removed."""

    async def work(bench: Bench) -> None:
        writer = await bench.writer()
        one, two, _ = bench.brokers.values()
        for broker in (one, two):
            broker.rack = "elsewhere"  # a change, so that the heartbeat is written
        await asyncio.gather(
            writer.service.brokers.cordon(one.id, cordoned=True),
            writer.service.brokers.heartbeat(one.heartbeat()),
            writer.service.brokers.remove(two.id),
            writer.service.brokers.heartbeat(two.heartbeat()),
        )
        found = bench.store.snapshot().brokers_by_id
        assert (found[one.id].cordoned, found[one.id].rack) == (True, "elsewhere")
        assert found[two.id].removed
        described = await writer.service.brokers.heartbeat(two.heartbeat())
        assert described["known"] is False

    on_bench(tmp_path, work)


def test_topic_is_not_placed_on_a_broker_that_is_being_removed(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        for round_ in range(6):
            writer = bench.manager("http://one:1")
            await writer.election.step()
            made = writer.add(1)[0]
            await writer.reconcile()
            names = [f"t{round_}-{at}" for at in range(3)]
            calls = [writer.create(name, partitions=1, replication=1) for name in names]
            await asyncio.gather(*calls, writer.service.brokers.remove(made.id), return_exceptions=True)
            snapshot = bench.store.snapshot()
            removed = {broker.id for broker in snapshot.brokers if broker.removed}
            placed = {member for topic in snapshot.topics for one in topic.partitions for member in one.members}
            assert not removed & placed

    on_bench(tmp_path, work)


def test_broker_of_another_cluster_is_refused_with_advice_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A new database after a loss has another cluster id. The refusal names the command to rebuild it."""

    async def work(bench: Bench) -> None:
        writer = await bench.writer(brokers=0)
        foreign = FakeBroker(1)
        foreign.cluster_id = an_id(0xC)
        for _ in range(5):
            with pytest.raises(Refusal, match="flotilla admin rebuild-metadata") as caught:
                await writer.service.brokers.heartbeat(foreign.heartbeat())
            assert caught.value.code == "conflict"
        assert bench.store.snapshot().brokers == ()
        (line,) = [one.message for one in caplog.records if one.levelno >= logging.ERROR]
        ours = bench.store.snapshot().cluster_id
        ids = f"id={foreign.id} cluster_id={an_id(0xC)} database_cluster_id={ours}"
        assert line.startswith(f"heartbeat rejected broker=127.0.0.1:{foreign.port} {ids} error=")

    on_bench(tmp_path, work)


def test_each_committed_change_of_a_broker_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def work(bench: Bench) -> None:
        writer = await bench.writer(brokers=1)
        one, service = first_of(bench), writer.service.brokers
        subject, address = f"broker=127.0.0.1:{one.port} id={one.id}", f"url=http://127.0.0.1:{one.port} rack=None"
        assert [line for line in caplog.messages if line.startswith("broker")] == [
            f"broker registered {subject} {address}"
        ]
        caplog.clear()
        for _ in range(2):  # the second change of each kind changes nothing
            await service.cordon(one.id, cordoned=True)
        for _ in range(2):
            await service.cordon(one.id, cordoned=False)
        for _ in range(2):
            await service.configure(one.id, rack="r1", wanted=False, cordoned=True)
        for _ in range(2):
            await service.delete(one.id)
        one.rack = "r1"
        await service.add(f"127.0.0.1:{one.port}")
        assert [line for line in caplog.messages if line.startswith("broker")] == [
            f"broker cordoned {subject}",
            f"broker uncordoned {subject}",
            f"broker updated {subject} rack='r1' cordoned=True wanted=False",
            f"broker removed {subject}",
            f"broker added {subject} {address.replace('None', 'r1')}",
        ]

    with caplog.at_level(logging.INFO):
        on_bench(tmp_path, work)


def test_broker_that_becomes_inactive_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def work(bench: Bench) -> None:
        writer = await bench.writer()
        await writer.pass_time(5)
        one = first_of(bench)
        caplog.clear()
        one.is_silent = True
        await writer.pass_time(6)
        one.is_silent = False
        await writer.receive_heartbeats()
        lines = [line for line in caplog.messages if line.startswith("broker")]
        assert [line.split(" broker=")[0] for line in lines] == ["broker marked inactive", "broker updated"]
        assert lines[1].endswith(f"id={one.id} active=True")

    with caplog.at_level(logging.INFO):
        on_bench(tmp_path, work)


def test_broker_that_lost_its_disk_replaces_its_old_id(tmp_path: Path) -> None:
    """A single broker that returns with a new id can hold topics again, and its address means the new id."""

    async def work(bench: Bench) -> None:
        writer = await bench.writer(brokers=1)
        await writer.create("before")
        old = first_of(bench)
        new = await lose_disk(writer, old)
        await writer.create("after")
        assert bench.store.snapshot().ready["after"].partitions[0].members == (new.id,)
        address = f"127.0.0.1:{new.port}"
        assert await writer.service.brokers.cordon(address, cordoned=True) == new.id
        assert await writer.service.brokers.cordon(old.id, cordoned=True) == old.id
        assert not writer.outdated

    on_bench(tmp_path, work)


def test_number_of_brokers_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Heartbeats with many new ids must not make brokers reject the list of peers."""
    monkeypatch.setattr(brokers, "BROKERS_MAX", 3)

    async def work(bench: Bench) -> None:
        writer = await bench.writer(brokers=3)
        with pytest.raises(Refusal, match=r"3 brokers are registered; the limit is 3\. Remove unused brokers"):
            await writer.service.brokers.heartbeat(FakeBroker(9).heartbeat())
        await writer.service.brokers.remove(first_of(bench).id)
        await writer.service.brokers.heartbeat(FakeBroker(9).heartbeat())

    on_bench(tmp_path, work)


def test_new_address_of_a_broker_is_sent_to_all_peers(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        writer = await bench.writer()
        first_of(bench).port = 7777
        await writer.reconcile()
        assert bench.store.snapshot().brokers[0].port == 7777
        for broker in bench.brokers.values():
            peers = broker.commands[-1].peers  # type: ignore[union-attr]
            assert 7777 in {address.port for address in peers}

    on_bench(tmp_path, work)


def test_setting_of_an_operator_is_stored_once_and_kept_by_heartbeats(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        writer = await bench.writer()
        id_ = first_of(bench).id
        made = await writer.service.brokers.configure(id_, rack="r1", wanted=True, cordoned=True)
        assert (made.rack, made.cordoned) == ("r1", True)
        version = bench.store.version()
        await writer.service.brokers.configure(id_, rack="r1", wanted=True, cordoned=True)
        await writer.receive_heartbeats()
        assert bench.store.version() == version
        with pytest.raises(Refusal) as caught:
            await writer.service.brokers.configure(an_id(1), rack=None, wanted=True, cordoned=False)
        assert caught.value.code == "not_found"

    on_bench(tmp_path, work)


def test_empty_broker_is_removed_and_removal_is_idempotent(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        writer = await bench.writer()
        await writer.create()
        id_ = first_of(bench).id
        with pytest.raises(Refusal, match="holds 2 replicas"):
            await writer.service.brokers.delete(id_)
        await writer.topics.delete(writer.epoch, "t")
        await writer.reconcile()
        await writer.service.brokers.delete(id_)
        version = bench.store.version()
        await writer.service.brokers.delete(id_)
        assert bench.store.version() == version
        assert await writer.service.brokers.add(f"127.0.0.1:{first_of(bench).port}") == id_
        assert not bench.store.snapshot().brokers_by_id[id_].removed

    on_bench(tmp_path, work)


def test_server_that_is_not_a_broker_is_not_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(bench: Bench) -> None:
        writer = await bench.writer(brokers=1)
        good = msgspec.to_builtins(first_of(bench).heartbeat())
        bad: dict[str, object] = {"host": "a..b", "port": 0, "cluster_id": [], "rack": "\0", "peer_host": 5}
        for key, value in bad.items():
            described = {**good, key: value}

            async def describe(_: str, described: dict[str, object] = described, **__: object) -> dict[str, object]:
                return described

            monkeypatch.setattr(writer.service.brokers._commands, "describe", describe)
            with pytest.raises(Refusal):
                await writer.service.brokers.add("127.0.0.1:1")

    on_bench(tmp_path, work)


def test_concurrent_registrations_create_one_topic(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        writer = await bench.writer()
        made = await asyncio.gather(*(writer.service.registrations.register_producer("t") for _ in range(10)))
        assert len({one.id for one in made}) == 10
        assert len({one.topic_id for one in made}) == 1

    on_bench(tmp_path, work)


def test_described_state_has_one_version(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        writer = await bench.writer()
        await writer.create()
        await writer.reconcile()
        described = writer.service.brokers.describe()
        assert described["version"] == bench.store.version()
        assert [topic["name"] for topic in described["topics"]] == ["t"]
        assert set(described["reports"]) == set(bench.brokers)
        leaders = [one for report in described["reports"].values() for one in report["replicas"] if one["leads"]]
        assert len(leaders) == 2

    on_bench(tmp_path, work)


# -- manager --------------------------------------------------------------------------------------------------


def run_manager(folder: Path, work: Callable[[Manager, asyncio.Queue[int]], Awaitable[None]]) -> None:
    """Run a test with a manager without a server."""

    async def run() -> None:
        stops: asyncio.Queue[int] = asyncio.Queue()
        url = f"sqlite:///{folder / 'metadata.db'}"
        settings = Settings(role="writer", database=url).at_port(1)
        manager = Manager(settings, open_store(url), stops.put_nowait)
        try:
            await asyncio.wait_for(work(manager, stops), 20)
        finally:
            await manager.close()

    asyncio.run(run())


@pytest.mark.parametrize("job", ["metadata.follow", "liveness.follow", "election.run", "reconciler.run", "_prepare"])
def test_manager_stops_if_a_background_task_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: str) -> None:
    async def work(manager: Manager, stops: asyncio.Queue[int]) -> None:
        async def fail() -> None:
            raise RuntimeError("a mistake")

        *path, name = job.split(".")
        monkeypatch.setattr(getattr(manager, path[0]) if path else manager, name, fail)
        manager.start()
        assert await stops.get() == 1

    run_manager(tmp_path, work)


def test_manager_closes_although_a_task_swallows_its_cancellation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lost cancellation, as by `asyncio.wait_for`, must not keep the process running."""

    async def work(manager: Manager, _: asyncio.Queue[int]) -> None:
        started = asyncio.Event()

        async def be_deaf() -> None:
            started.set()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(60)
            await asyncio.sleep(60)

        monkeypatch.setattr(manager.liveness, "follow", be_deaf)
        manager.start()
        await started.wait()

    began = time.monotonic()
    run_manager(tmp_path, work)
    assert time.monotonic() - began < 10


def test_manager_with_a_database_behind_makes_no_changes_until_it_stops(tmp_path: Path) -> None:
    async def work(manager: Manager, stops: asyncio.Queue[int]) -> None:
        await manager._prepare()
        await manager.election.step()
        assert manager.writer.is_writer
        manager._on_outdated(("broker x knows more",))
        assert await stops.get() == 5
        with pytest.raises(Refusal, match="No writer"):
            await manager.writer.topics.create("t")

    run_manager(tmp_path, work)
