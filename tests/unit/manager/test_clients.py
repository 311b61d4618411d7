"""Registrations that are remembered: a message costs no query, and what cannot be an id never becomes one."""

import asyncio
from collections.abc import Callable, Sequence
from typing import cast

import pytest

from flotilla_manager import clients as module
from flotilla_manager.clients import Producers, SignsOfLife, may_be_id
from flotilla_manager.metadata import AsyncMetadata
from flotilla_manager.metadata.errors import DatabaseAway
from flotilla_manager.model import Producer
from unit.manager.dataplane import on_virtual_time


class Database:
    """Registrations, and who was touched."""

    def __init__(self, *producers: Producer) -> None:
        self.rows = list(producers)
        self.store = self
        self.calls: list[str] = []
        self.touched: list[Sequence[str]] = []
        self.is_away = False
        self.followed_to = 0

    async def call(self, function: Callable[..., object], *args: object) -> object:
        self.calls.append(function.__name__)
        if self.is_away:
            raise DatabaseAway("gone")
        return function(*args)

    def find_producer(self, producer_id: str) -> Producer | None:
        return next((row for row in self.rows if row.id == producer_id), None)

    def newest_producers(self, after: int, limit: int) -> list[tuple[int, Producer]]:
        self.followed_to = after
        return list(enumerate(self.rows, 1))[after : after + limit]

    def touch_producers(self, ids: Sequence[str]) -> None:
        self.touched.append(ids)

    touch_consumers = touch_producers


def make_producers(database: Database) -> Producers:
    return Producers(cast("AsyncMetadata", database))


def test_a_miss_asks_the_database_and_is_remembered() -> None:
    """What one manager registered another one knows."""

    async def run() -> None:
        database = Database(Producer(id="p1", topic_id="t1"))
        producers = make_producers(database)
        for _ in range(3):
            assert await producers.is_registered("p1", "t1")
            assert not await producers.is_registered("p1", "t2")  # another topic, perhaps of the same name
        assert database.calls == ["find_producer"]

    on_virtual_time(run())


def test_a_stranger_is_looked_for_every_time() -> None:
    """It may register at any moment, elsewhere."""

    async def run() -> None:
        database = Database()
        producers = make_producers(database)
        assert not await producers.is_known("p1")
        database.rows.append(Producer(id="p1", topic_id="t1"))
        assert await producers.is_known("p1")

    on_virtual_time(run())


@pytest.mark.parametrize("text", ["", "\0", "a\0", "é", "x" * 65, "a b", "-5", "null\n", "\ud800"])
def test_what_cannot_be_an_id_never_reaches_the_database(text: str) -> None:
    """PostgreSQL takes no NUL, and nobody takes half a character."""

    async def run() -> None:
        database = Database()
        assert not await make_producers(database).is_known(text)
        assert database.calls == []

    assert not may_be_id(text)
    on_virtual_time(run())


def test_registrations_are_followed_so_that_they_are_known_when_the_database_is_away() -> None:
    """While the database is away, produce goes on."""

    async def run() -> None:
        database = Database(Producer(id="p1", topic_id="t1"))
        producers = make_producers(database)
        following = asyncio.create_task(producers.follow())
        await asyncio.sleep(0.5)
        database.rows.append(Producer(id="p2", topic_id="t1"))
        await asyncio.sleep(1)
        database.is_away = True
        assert await producers.is_registered("p1", "t1")
        assert await producers.is_registered("p2", "t1")
        with pytest.raises(DatabaseAway):
            await producers.is_registered("p3", "t1")
        await asyncio.sleep(5)
        database.is_away = False
        database.rows.append(Producer(id="p4", topic_id="t1"))
        await asyncio.sleep(2)
        database.is_away = True
        assert await producers.is_registered("p4", "t1")
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        assert len(database.calls) < 15
        assert database.followed_to == 3  # what is known is not read again and again

    on_virtual_time(run())


def test_turns_go_round_from_0_for_each_producer_and_survive_growth() -> None:
    producers = make_producers(Database())
    assert [producers.next_turn("p1", 3) for _ in range(4)] == [0, 1, 2, 0]
    assert [producers.next_turn("p2", 2) for _ in range(2)] == [0, 1]
    assert [producers.next_turn("p2", 4) for _ in range(3)] == [2, 3, 0]


def test_what_is_remembered_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_KNOWN_MAX", 5)
    producers, signs = make_producers(Database()), SignsOfLife(cast("AsyncMetadata", Database()))
    for at in range(20):
        producers.learn(Producer(id=f"p{at}", topic_id="t"))
        producers.next_turn(f"p{at}", 2)
        signs.producer(f"p{at}")
        signs.consumer(f"c{at}")
    sizes = [len(one) for one in (producers._known, producers._turns, signs._producers, signs._consumers)]
    assert sizes == [5, 5, 5, 5]


def test_signs_of_life_are_written_together_and_once() -> None:
    async def run() -> None:
        database = Database()
        signs = SignsOfLife(cast("AsyncMetadata", database))
        following = asyncio.create_task(signs.follow())
        for _ in range(3):
            signs.producer("p2")
            signs.producer("p1")
            signs.consumer("c1")
        await asyncio.sleep(5)
        assert database.touched == [["p1", "p2"], ["c1"]]
        database.is_away = True
        signs.producer("p3")
        await asyncio.sleep(5)
        database.is_away = False
        signs.producer("p4")
        await asyncio.sleep(5)
        assert database.touched[2:] == [["p4"]]
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)

    on_virtual_time(run())
