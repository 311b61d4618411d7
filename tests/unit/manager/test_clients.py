"""Cached registrations: no query per message, and validation of ids."""

import asyncio
from collections.abc import Callable, Sequence
from typing import cast

import pytest

from flotilla_manager import clients as module
from flotilla_manager.clients import LivenessTracker, Producers, may_be_id
from flotilla_manager.metadata import AsyncMetadata
from flotilla_manager.metadata.errors import DatabaseUnavailable
from flotilla_manager.model import Producer
from unit.manager.dataplane import on_virtual_time


class Database:
    """Registrations, and touched ids."""

    def __init__(self, *producers: Producer) -> None:
        self.rows = list(producers)
        self.store = self
        self.calls: list[str] = []
        self.touched: list[Sequence[str]] = []
        self.is_unreachable = False
        self.followed_to = 0

    async def call(self, function: Callable[..., object], *args: object) -> object:
        self.calls.append(function.__name__)
        if self.is_unreachable:
            raise DatabaseUnavailable("gone")
        return function(*args)

    def find_producer(self, producer_id: str) -> Producer | None:
        return next((row for row in self.rows if row.id == producer_id), None)

    def list_new_producers(self, after: int, limit: int) -> list[tuple[int, Producer]]:
        self.followed_to = after
        return list(enumerate(self.rows, 1))[after : after + limit]

    def touch_producers(self, ids: Sequence[str]) -> None:
        self.touched.append(ids)

    touch_consumers = touch_producers


def make_producers(database: Database) -> Producers:
    return Producers(cast("AsyncMetadata", database))


def test_cache_miss_queries_the_database_and_is_cached() -> None:
    """A registration through one manager is valid at all managers."""

    async def run() -> None:
        database = Database(Producer(id="p1", topic_id="t1"))
        producers = make_producers(database)
        for _ in range(3):
            assert await producers.is_registered("p1", "t1")
            assert not await producers.is_registered("p1", "t2")  # another topic, which may have the same name
        assert database.calls == ["find_producer"]

    on_virtual_time(run())


def test_unknown_producer_is_queried_every_time() -> None:
    """It may register through another manager at any time."""

    async def run() -> None:
        database = Database()
        producers = make_producers(database)
        assert not await producers.is_known("p1")
        database.rows.append(Producer(id="p1", topic_id="t1"))
        assert await producers.is_known("p1")

    on_virtual_time(run())


@pytest.mark.parametrize("text", ["", "\0", "a\0", "é", "x" * 65, "a b", "-5", "null\n", "\ud800"])
def test_invalid_ids_are_not_sent_to_the_database(text: str) -> None:
    """PostgreSQL rejects NUL and invalid UTF-8."""

    async def run() -> None:
        database = Database()
        assert not await make_producers(database).is_known(text)
        assert database.calls == []

    assert not may_be_id(text)
    on_virtual_time(run())


def test_new_registrations_are_cached_before_the_database_fails() -> None:
    """So produce works while the database is unavailable."""

    async def run() -> None:
        database = Database(Producer(id="p1", topic_id="t1"))
        producers = make_producers(database)
        following = asyncio.create_task(producers.follow())
        await asyncio.sleep(0.5)
        database.rows.append(Producer(id="p2", topic_id="t1"))
        await asyncio.sleep(1)
        database.is_unreachable = True
        assert await producers.is_registered("p1", "t1")
        assert await producers.is_registered("p2", "t1")
        with pytest.raises(DatabaseUnavailable):
            await producers.is_registered("p3", "t1")
        await asyncio.sleep(5)
        database.is_unreachable = False
        database.rows.append(Producer(id="p4", topic_id="t1"))
        await asyncio.sleep(2)
        database.is_unreachable = True
        assert await producers.is_registered("p4", "t1")
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        assert len(database.calls) < 15
        assert database.followed_to == 3  # cached registrations are not loaded again

    on_virtual_time(run())


def test_partitions_are_chosen_round_robin_per_producer() -> None:
    producers = make_producers(Database())
    assert [producers.next_partition("p1", 3) for _ in range(4)] == [0, 1, 2, 0]
    assert [producers.next_partition("p2", 2) for _ in range(2)] == [0, 1]
    assert [producers.next_partition("p2", 4) for _ in range(3)] == [2, 3, 0]


def test_number_of_cached_registrations_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_KNOWN_MAX", 5)
    producers, liveness = make_producers(Database()), LivenessTracker(cast("AsyncMetadata", Database()))
    for at in range(20):
        producers.learn(Producer(id=f"p{at}", topic_id="t"))
        producers.next_partition(f"p{at}", 2)
        liveness.producer(f"p{at}")
        liveness.consumer(f"c{at}")
    sizes = [len(one) for one in (producers._known, producers._round_robin, liveness._producers, liveness._consumers)]
    assert sizes == [5, 5, 5, 5]


def test_last_seen_times_are_written_in_one_batch_and_once() -> None:
    async def run() -> None:
        database = Database()
        liveness = LivenessTracker(cast("AsyncMetadata", database))
        following = asyncio.create_task(liveness.follow())
        for _ in range(3):
            liveness.producer("p2")
            liveness.producer("p1")
            liveness.consumer("c1")
        await asyncio.sleep(5)
        assert database.touched == [["p1", "p2"], ["c1"]]
        database.is_unreachable = True
        liveness.producer("p3")
        await asyncio.sleep(5)
        database.is_unreachable = False
        liveness.producer("p4")
        await asyncio.sleep(5)
        assert database.touched[2:] == [["p4"]]
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)

    on_virtual_time(run())
