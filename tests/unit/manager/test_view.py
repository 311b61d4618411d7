"""The view: a refresh never ends with an answer that was asked for before it, and nothing gets stuck."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from flotilla_manager.metadata.errors import DatabaseAway
from flotilla_manager.model import Snapshot, TopicState
from flotilla_manager.view import POLL_S, View
from unit.manager.dataplane import make_snapshot, make_topic, on_virtual_time


class Database:
    """A database with versions, which takes a while to answer."""

    def __init__(self, takes_s: float = 0.1) -> None:
        self.takes_s = takes_s
        self.snapshot = make_snapshot(version=1)
        self.loads = 0
        self.trouble: Exception | None = None

    async def load(self, version: int) -> Snapshot | None:
        """Read what is there at the beginning of the call, as a transaction does."""
        self.loads += 1
        found = self.snapshot
        await asyncio.sleep(self.takes_s)
        if self.trouble is not None:
            raise self.trouble
        return None if found.version == version else found

    def change(self) -> int:
        self.snapshot = make_snapshot(version=self.snapshot.version + 1)
        return self.snapshot.version


def with_view(test: Callable[[Database, View], Awaitable[None]]) -> None:
    async def run() -> None:
        database = Database()
        await test(database, View(database.load, asyncio.get_running_loop().time))

    on_virtual_time(run())


def version_of(view: View) -> int:
    assert view.snapshot is not None
    return view.snapshot.version


def test_whoever_refreshes_sees_what_was_there_before() -> None:
    """What one manager registered another one knows: an answer that was under way already does not count."""

    async def test(database: Database, view: View) -> None:
        async def change_and_look() -> None:
            version = database.change()
            await view.refresh()
            assert version_of(view) >= version

        tasks = []
        for _ in range(50):
            tasks.append(asyncio.create_task(change_and_look()))
            await asyncio.sleep(0.013)
        await asyncio.gather(*tasks)
        assert database.loads < 20

    with_view(test)


def test_those_who_ask_at_once_share_two_answers() -> None:
    async def test(database: Database, view: View) -> None:
        await asyncio.gather(*(view.refresh() for _ in range(100)))
        assert database.loads == 2

    with_view(test)


def test_trouble_is_told_to_everybody_and_passes() -> None:
    async def test(database: Database, view: View) -> None:
        await view.refresh()
        database.trouble = DatabaseAway("gone")
        found = await asyncio.gather(*(view.refresh() for _ in range(5)), return_exceptions=True)
        assert [type(one) for one in found] == [DatabaseAway] * 5
        assert (version_of(view), view.trouble) == (1, "gone")  # what is known stays in use
        database.trouble = None
        version = database.change()
        await view.refresh()
        assert (version_of(view), view.trouble) == (version, None)

    with_view(test)


@pytest.mark.parametrize("leaver", [0, 1, 2])
def test_whoever_leaves_takes_nobody_with_it(leaver: int) -> None:
    async def test(database: Database, view: View) -> None:
        tasks = [asyncio.create_task(view.refresh()) for _ in range(3)]
        await asyncio.sleep(0.05)
        version = database.change()
        tasks[leaver].cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert sum(one is None for one in found) == 2
        await view.refresh()
        assert version_of(view) == version

    with_view(test)


def test_a_mistake_in_loading_does_not_keep_it_from_loading_again() -> None:
    async def test(database: Database, view: View) -> None:
        database.trouble = ValueError("a mistake")
        found = await asyncio.gather(view.refresh(), view.refresh(), return_exceptions=True)
        assert [type(one) for one in found] == [ValueError] * 2
        database.trouble = None
        await view.refresh()
        assert version_of(view) == 1

    with_view(test)


def test_following_looks_once_in_a_while_and_at_once_if_asked_to() -> None:
    async def test(database: Database, view: View) -> None:
        following = asyncio.create_task(view.follow())
        await asyncio.sleep(10)
        assert 5 <= database.loads <= 11 / POLL_S
        for _ in range(20):
            version = database.change()
            view.refresh_soon()
            await asyncio.sleep(0.4)
            assert version_of(view) == version
        database.takes_s, loads = 0.0, database.loads
        for _ in range(1000):  # however often somebody asks
            view.refresh_soon()
            await asyncio.sleep(0.001)
        assert database.loads - loads <= 21
        loads = database.loads
        await asyncio.sleep(10)  # and nobody any more
        assert database.loads - loads <= 11
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)

    with_view(test)


def test_following_goes_on_while_the_database_is_away() -> None:
    async def test(database: Database, view: View) -> None:
        following = asyncio.create_task(view.follow())
        database.trouble, database.takes_s = DatabaseAway("gone"), 0.0
        await asyncio.sleep(5)
        assert database.loads <= 6
        database.trouble = None
        await asyncio.sleep(2)
        assert version_of(view) == 1
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)

    with_view(test)


def test_topics_that_are_not_ready_are_not_found() -> None:
    async def test(database: Database, view: View) -> None:
        ready, going = make_topic("a"), make_topic("b", id_="ef" * 16, state=TopicState.DELETING)
        database.snapshot = make_snapshot(ready, going)
        assert (await view.find_topic("a"), await view.find_topic("b")) == (ready, None)
        assert (view.topic_by_id(ready.id), view.topic_by_id(going.id)) == (ready, None)

    with_view(test)
