"""Metadata cache: a refresh never uses a query that was started before it, and errors do not block it."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from flotilla_manager.metadata.errors import DatabaseUnavailable
from flotilla_manager.metadata_cache import POLL_S, MetadataCache
from flotilla_manager.model import Snapshot, TopicState
from unit.manager.dataplane import make_snapshot, make_topic, on_virtual_time


class Database:
    """Versioned database with slow queries."""

    def __init__(self, takes_s: float = 0.1) -> None:
        self.takes_s = takes_s
        self.snapshot = make_snapshot(version=1)
        self.loads = 0
        self.last_error: Exception | None = None

    async def load(self, version: int) -> Snapshot | None:
        """Read the state at the start of the call, like a transaction."""
        self.loads += 1
        found = self.snapshot
        await asyncio.sleep(self.takes_s)
        if self.last_error is not None:
            raise self.last_error
        return None if found.version == version else found

    def change(self) -> int:
        self.snapshot = make_snapshot(version=self.snapshot.version + 1)
        return self.snapshot.version


def with_view(test: Callable[[Database, MetadataCache], Awaitable[None]]) -> None:
    async def run() -> None:
        database = Database()
        await test(database, MetadataCache(database.load, asyncio.get_running_loop().time))

    on_virtual_time(run())


def version_of(metadata: MetadataCache) -> int:
    assert metadata.snapshot is not None
    return metadata.snapshot.version


def test_refresh_sees_changes_made_before_the_call() -> None:
    """A query that was already running may have an older result."""

    async def test(database: Database, metadata: MetadataCache) -> None:
        async def change_and_read() -> None:
            version = database.change()
            await metadata.refresh()
            assert version_of(metadata) >= version

        tasks = []
        for _ in range(50):
            tasks.append(asyncio.create_task(change_and_read()))
            await asyncio.sleep(0.013)
        await asyncio.gather(*tasks)
        assert database.loads < 20

    with_view(test)


def test_concurrent_refreshes_share_two_queries() -> None:
    async def test(database: Database, metadata: MetadataCache) -> None:
        await asyncio.gather(*(metadata.refresh() for _ in range(100)))
        assert database.loads == 2

    with_view(test)


def test_database_error_is_raised_to_all_waiting_refreshes() -> None:
    async def test(database: Database, metadata: MetadataCache) -> None:
        await metadata.refresh()
        database.last_error = DatabaseUnavailable("gone")
        found = await asyncio.gather(*(metadata.refresh() for _ in range(5)), return_exceptions=True)
        assert [type(one) for one in found] == [DatabaseUnavailable] * 5
        assert (version_of(metadata), metadata.last_error) == (1, "gone")  # the cached snapshot stays in use
        database.last_error = None
        version = database.change()
        await metadata.refresh()
        assert (version_of(metadata), metadata.last_error) == (version, None)

    with_view(test)


@pytest.mark.parametrize("leaver", [0, 1, 2])
def test_cancelled_refresh_does_not_cancel_others(leaver: int) -> None:
    async def test(database: Database, metadata: MetadataCache) -> None:
        tasks = [asyncio.create_task(metadata.refresh()) for _ in range(3)]
        await asyncio.sleep(0.05)
        version = database.change()
        tasks[leaver].cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert sum(one is None for one in found) == 2
        await metadata.refresh()
        assert version_of(metadata) == version

    with_view(test)


def test_unexpected_exception_does_not_block_later_refreshes() -> None:
    async def test(database: Database, metadata: MetadataCache) -> None:
        database.last_error = ValueError("a mistake")
        found = await asyncio.gather(metadata.refresh(), metadata.refresh(), return_exceptions=True)
        assert [type(one) for one in found] == [ValueError] * 2
        database.last_error = None
        await metadata.refresh()
        assert version_of(metadata) == 1

    with_view(test)


def test_follow_polls_periodically_and_on_request() -> None:
    async def test(database: Database, metadata: MetadataCache) -> None:
        following = asyncio.create_task(metadata.follow())
        await asyncio.sleep(10)
        assert 5 <= database.loads <= 11 / POLL_S
        for _ in range(20):
            version = database.change()
            metadata.refresh_soon()
            await asyncio.sleep(0.4)
            assert version_of(metadata) == version
        database.takes_s, loads = 0.0, database.loads
        for _ in range(1000):  # many requests
            metadata.refresh_soon()
            await asyncio.sleep(0.001)
        assert database.loads - loads <= 21
        loads = database.loads
        await asyncio.sleep(10)  # no requests
        assert database.loads - loads <= 11
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)

    with_view(test)


def test_follow_continues_while_the_database_is_unavailable() -> None:
    async def test(database: Database, metadata: MetadataCache) -> None:
        following = asyncio.create_task(metadata.follow())
        database.last_error, database.takes_s = DatabaseUnavailable("gone"), 0.0
        await asyncio.sleep(5)
        assert database.loads <= 6
        database.last_error = None
        await asyncio.sleep(2)
        assert version_of(metadata) == 1
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)

    with_view(test)


def test_only_ready_topics_are_found() -> None:
    async def test(database: Database, metadata: MetadataCache) -> None:
        ready, going = make_topic("a"), make_topic("b", id_="ef" * 16, state=TopicState.DELETING)
        database.snapshot = make_snapshot(ready, going)
        assert (await metadata.find_topic("a"), await metadata.find_topic("b")) == (ready, None)
        assert (metadata.topic_by_id(ready.id), metadata.topic_by_id(going.id)) == (ready, None)

    with_view(test)
