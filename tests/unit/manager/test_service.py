"""The writer's service: heartbeats and what is decided about brokers, one change at a time."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from flotilla.serving.errors import Refusal
from flotilla_manager.manager import Manager
from flotilla_manager.metadata import open_store
from flotilla_manager.metadata.errors import DatabaseAway
from flotilla_manager.settings import Settings
from flotilla_manager.writer import brokers
from support.metadata import an_id
from support.writing import Bench, MadeUpBroker, Writing, on_bench


def first_of(bench: Bench) -> MadeUpBroker:
    return next(iter(bench.brokers.values()))


async def lose_disk(writer: Writing, broker: MadeUpBroker) -> MadeUpBroker:
    """Have a broker come back with nothing, at the same address."""
    del writer.brokers[broker.id]
    new = MadeUpBroker(0x40)
    new.port = broker.port
    writer.brokers[new.id] = new
    await writer.pass_time(6)
    return new


def test_who_is_not_the_writer_refuses_everything_that_only_the_writer_does(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        standby = bench.manager()
        beat = MadeUpBroker(1).beat()
        for call in (
            standby.service.heartbeat(beat),
            standby.service.create_topic("t"),
            standby.service.delete_topic("t"),
            standby.service.register_producer("t"),
            standby.service.register_consumer("t", None, latest=False),
            standby.service.delete_broker(beat.id),
            standby.service.put_broker(beat.id, rack=None, wanted=True, cordoned=False),
        ):
            with pytest.raises(Refusal, match="no writer at the moment"):
                await call

    on_bench(tmp_path, work)


def test_a_heartbeat_without_news_asks_no_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers stay known to be alive while the database is away."""

    async def work(bench: Bench) -> None:
        writer = await bench.writer()

        async def fail(*_: object) -> None:
            raise DatabaseAway("away")

        monkeypatch.setattr(writer.database, "call", fail)
        await writer.hear()
        new = MadeUpBroker(9)
        with pytest.raises(DatabaseAway):
            await writer.service.heartbeat(new.beat())

    on_bench(tmp_path, work)


def test_a_heartbeat_that_crosses_a_decision_does_not_take_it_back(tmp_path: Path) -> None:
    """A broker that comes back in the moment in which it is cordoned or removed stays so."""

    async def work(bench: Bench) -> None:
        writer = await bench.writer()
        one, two, _ = bench.brokers.values()
        for broker in (one, two):
            broker.rack = "elsewhere"  # news, so that the heartbeat changes something
        await asyncio.gather(
            writer.service.cordon_broker(one.id, cordoned=True),
            writer.service.heartbeat(one.beat()),
            writer.service.remove_broker(two.id),
            writer.service.heartbeat(two.beat()),
        )
        found = bench.store.snapshot().brokers_by_id
        assert (found[one.id].cordoned, found[one.id].rack) == (True, "elsewhere")
        assert found[two.id].removed
        told = await writer.service.heartbeat(two.beat())
        assert told["known"] is False

    on_bench(tmp_path, work)


def test_no_topic_is_placed_on_a_broker_that_is_removed_at_the_same_time(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        for round_ in range(6):
            writer = bench.manager("http://one:1")
            await writer.leadership.look()
            made = writer.add(1)[0]
            await writer.tend()
            names = [f"t{round_}-{at}" for at in range(3)]
            calls = [writer.create(name, partitions=1, replication=1) for name in names]
            await asyncio.gather(*calls, writer.service.remove_broker(made.id), return_exceptions=True)
            snapshot = bench.store.snapshot()
            removed = {broker.id for broker in snapshot.brokers if broker.removed}
            placed = {member for topic in snapshot.topics for one in topic.partitions for member in one.members}
            assert not removed & placed

    on_bench(tmp_path, work)


def test_a_broker_of_another_cluster_is_refused_with_the_way_out_and_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A database that was lost and begun anew has another cluster id: somebody has to be told what to do."""

    async def work(bench: Bench) -> None:
        writer = await bench.writer(brokers=0)
        foreign = MadeUpBroker(1)
        foreign.cluster_id = an_id(0xC)
        for _ in range(5):
            with pytest.raises(Refusal, match="flotilla admin rebuild-metadata") as caught:
                await writer.service.heartbeat(foreign.beat())
            assert caught.value.code == "conflict"
        assert bench.store.snapshot().brokers == ()
        assert len([one for one in caplog.records if one.levelno >= logging.ERROR]) == 1

    on_bench(tmp_path, work)


def test_a_broker_that_lost_its_disk_takes_the_place_of_who_it_was(tmp_path: Path) -> None:
    """A single broker that comes back under a new id makes topics again, and is the one meant by its address."""

    async def work(bench: Bench) -> None:
        writer = await bench.writer(brokers=1)
        await writer.create("before")
        old = first_of(bench)
        new = await lose_disk(writer, old)
        await writer.create("after")
        assert bench.store.snapshot().ready["after"].partitions[0].members == (new.id,)
        address = f"127.0.0.1:{new.port}"
        assert await writer.service.cordon_broker(address, cordoned=True) == new.id
        assert await writer.service.cordon_broker(old.id, cordoned=True) == old.id
        assert not writer.behind

    on_bench(tmp_path, work)


def test_there_are_never_more_brokers_than_brokers_accept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Heartbeats with ever new ids must not make every broker refuse the list of addresses."""
    monkeypatch.setattr(brokers, "BROKERS_MAX", 3)

    async def work(bench: Bench) -> None:
        writer = await bench.writer(brokers=3)
        with pytest.raises(Refusal, match="3 is the limit"):
            await writer.service.heartbeat(MadeUpBroker(9).beat())
        await writer.service.remove_broker(first_of(bench).id)
        await writer.service.heartbeat(MadeUpBroker(9).beat())

    on_bench(tmp_path, work)


def test_a_broker_that_moves_is_known_at_its_new_address_by_all_others(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        writer = await bench.writer()
        first_of(bench).port = 7777
        await writer.tend()
        assert bench.store.snapshot().brokers[0].port == 7777
        for broker in bench.brokers.values():
            book = broker.orders[-1].book  # type: ignore[union-attr]
            assert 7777 in {address.port for address in book}

    on_bench(tmp_path, work)


def test_an_operators_word_is_taken_once_and_survives_heartbeats(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        writer = await bench.writer()
        id_ = first_of(bench).id
        made = await writer.service.put_broker(id_, rack="r1", wanted=True, cordoned=True)
        assert (made.rack, made.cordoned) == ("r1", True)
        version = bench.store.version()
        await writer.service.put_broker(id_, rack="r1", wanted=True, cordoned=True)
        await writer.hear()
        assert bench.store.version() == version
        with pytest.raises(Refusal) as caught:
            await writer.service.put_broker(an_id(1), rack=None, wanted=True, cordoned=False)
        assert caught.value.code == "not_found"

    on_bench(tmp_path, work)


def test_a_broker_is_removed_when_it_holds_nothing_and_to_say_it_again_changes_nothing(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        writer = await bench.writer()
        await writer.create()
        id_ = first_of(bench).id
        with pytest.raises(Refusal, match="holds 2 replicas"):
            await writer.service.delete_broker(id_)
        await writer.topics.delete(writer.epoch, "t")
        await writer.tend()
        await writer.service.delete_broker(id_)
        version = bench.store.version()
        await writer.service.delete_broker(id_)
        assert bench.store.version() == version
        assert await writer.service.add_broker(f"127.0.0.1:{first_of(bench).port}") == id_
        assert not bench.store.snapshot().brokers_by_id[id_].removed

    on_bench(tmp_path, work)


def test_what_answers_in_a_brokers_place_is_not_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(bench: Bench) -> None:
        writer = await bench.writer(brokers=1)
        good = msgspec.to_builtins(first_of(bench).beat())
        bad: dict[str, object] = {"host": "a..b", "port": 0, "cluster_id": [], "rack": "\0", "peer_host": 5}
        for key, value in bad.items():
            told = {**good, key: value}

            async def describe(_: str, told: dict[str, object] = told, **__: object) -> dict[str, object]:
                return told

            monkeypatch.setattr(writer.service._orders, "describe", describe)
            with pytest.raises(Refusal):
                await writer.service.add_broker("127.0.0.1:1")

    on_bench(tmp_path, work)


def test_producers_that_register_at_once_make_one_topic(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        writer = await bench.writer()
        made = await asyncio.gather(*(writer.service.register_producer("t") for _ in range(10)))
        assert len({one.id for one in made}) == 10
        assert len({one.topic_id for one in made}) == 1

    on_bench(tmp_path, work)


def test_the_state_is_told_at_one_version(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        writer = await bench.writer()
        await writer.create()
        await writer.tend()
        told = writer.service.describe()
        assert told["version"] == bench.store.version()
        assert [topic["name"] for topic in told["topics"]] == ["t"]
        assert set(told["reports"]) == set(bench.brokers)
        leaders = [one for report in told["reports"].values() for one in report["replicas"] if one["leads"]]
        assert len(leaders) == 2

    on_bench(tmp_path, work)


# -- the manager around it ------------------------------------------------------------------------------------


def run_manager(folder: Path, work: Callable[[Manager, asyncio.Queue[int]], Awaitable[None]]) -> None:
    """Run a test with a manager that serves nobody."""

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


@pytest.mark.parametrize("job", ["view.follow", "signs.follow", "leadership.run", "steward.run", "_prepare"])
def test_a_manager_does_not_live_on_with_a_part_of_it_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: str
) -> None:
    async def work(manager: Manager, stops: asyncio.Queue[int]) -> None:
        async def fail() -> None:
            raise RuntimeError("a mistake")

        *path, name = job.split(".")
        monkeypatch.setattr(getattr(manager, path[0]) if path else manager, name, fail)
        manager.start()
        assert await stops.get() == 1

    run_manager(tmp_path, work)


def test_a_manager_ends_though_a_part_of_it_overhears_that_it_is_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cancellation can be lost, as `asyncio.wait_for` loses it: it must not keep the process from ending."""

    async def work(manager: Manager, _: asyncio.Queue[int]) -> None:
        started = asyncio.Event()

        async def be_deaf() -> None:
            started.set()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(60)
            await asyncio.sleep(60)

        monkeypatch.setattr(manager.signs, "follow", be_deaf)
        manager.start()
        await started.wait()

    began = time.monotonic()
    run_manager(tmp_path, work)
    assert time.monotonic() - began < 10


def test_a_manager_that_finds_its_database_behind_decides_nothing_until_it_has_ended(tmp_path: Path) -> None:
    async def work(manager: Manager, stops: asyncio.Queue[int]) -> None:
        await manager._prepare()
        await manager.leadership.look()
        assert manager.writer.is_writer
        manager._on_behind(("broker x knows more",))
        assert await stops.get() == 5
        with pytest.raises(Refusal, match="no writer"):
            await manager.writer.create_topic("t")

    run_manager(tmp_path, work)
