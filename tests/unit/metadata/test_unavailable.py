"""An unavailable database: calls end in time, committed data is kept, and the store recovers without a restart."""

import asyncio
import sqlite3
import threading
import time
from collections.abc import Iterator

import psycopg2
import pytest
from sqlalchemy import event, text

from flotilla_manager.metadata import (
    AsyncMetadata,
    DatabaseUnavailable,
    Limits,
    OutcomeUnknown,
    Store,
    TopicMissing,
    open_store,
)
from support.cluster import wait_until
from support.metadata import a_topic, an_id, ready_topic, sql
from support.postgres import Postgres, running_postgres

QUICK = Limits(connect_s=2, statement_ms=1_000, lock_ms=500, checkout_s=1.0, connections_max=4)


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    """A separate server, which these tests kill and freeze."""
    with running_postgres() as server:
        yield server


@pytest.fixture
def store_on_server(server: Postgres) -> Iterator[Store]:
    """A store on that server, with short timeouts."""
    url = server.new_database()
    store = open_store(url, limits=QUICK)
    store.migrate()
    yield store
    store.close()
    server.drop_database(url)


def works(store: Store) -> bool:
    try:
        return store.version() > 0
    except DatabaseUnavailable:
        return False


def test_store_recovers_after_the_database_was_killed(server: Postgres, store_on_server: Store) -> None:
    """The same store works again, with all committed data."""
    epoch = store_on_server.take_over("http://writer")
    made = ready_topic(store_on_server, epoch)
    server.kill()
    for attempt in (
        store_on_server.version,
        store_on_server.snapshot,
        lambda: store_on_server.create_topic(epoch, a_topic(2, "other")),
    ):
        started = time.monotonic()
        with pytest.raises(DatabaseUnavailable, match="database unavailable: "):
            attempt()
        assert time.monotonic() - started < 5
    server.start()
    assert store_on_server.snapshot().topics == (made,)
    store_on_server.create_topic(epoch, a_topic(2, "other"))


def test_restart_of_the_database_between_two_calls_raises_no_error(server: Postgres, store_on_server: Store) -> None:
    store_on_server.take_over("http://writer")
    server.restart()
    assert store_on_server.take_over("http://writer") == 2


@pytest.mark.parametrize("error", [psycopg2.OperationalError("gone"), sqlite3.OperationalError("gone")])
def test_error_at_checkin_of_a_connection_is_translated(store_on_server: Store, error: Exception) -> None:
    """SQLAlchemy does not wrap it, and it may occur after a commit, as when a primary fails between two statements."""

    def fail(*_: object) -> None:
        raise error

    event.listen(store_on_server._engine, "checkin", fail)
    with pytest.raises(DatabaseUnavailable, match="database unavailable: gone"):
        store_on_server.version()
    with pytest.raises(OutcomeUnknown, match="database unavailable: gone"):
        store_on_server.take_over("http://writer")
    event.remove(store_on_server._engine, "checkin", fail)
    assert works(store_on_server)


def test_connection_lost_during_commit_raises_outcome_unknown(server: Postgres, store_on_server: Store) -> None:
    sql(
        store_on_server,
        "CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END'",
    )
    sql(
        store_on_server,
        "CREATE CONSTRAINT TRIGGER dies AFTER UPDATE ON state DEFERRABLE INITIALLY DEFERRED"
        " FOR EACH ROW EXECUTE FUNCTION die()",
    )
    with pytest.raises(OutcomeUnknown, match="the change may be committed or not"):
        store_on_server.take_over("http://writer")
    assert store_on_server.writer().epoch == 0
    assert server.execute("SELECT 1") == [(1,)]


def test_read_only_server_is_unavailable_until_it_accepts_writes(server: Postgres, store_on_server: Store) -> None:
    """A connection to a former primary is closed, and the next one looks for the new primary."""
    before = backend(store_on_server)
    set_read_only(server, "on")
    try:
        with pytest.raises(DatabaseUnavailable, match="read-only transaction"):
            store_on_server.take_over("http://writer")
        assert backend(store_on_server) != before
    finally:
        set_read_only(server, "off")
    assert store_on_server.take_over("http://writer") == 1


def backend(store: Store) -> int:
    """Return the process id of the server process of a store's connection."""
    with store.read_statement() as connection:
        return int(connection.execute(text("SELECT pg_backend_pid()")).scalar_one())


def set_read_only(server: Postgres, value: str) -> None:
    server.execute(f"ALTER SYSTEM SET default_transaction_read_only = {value}")
    server.execute("SELECT pg_reload_conf()")
    wait_until("the server to reload its settings", lambda: server.execute("SHOW transaction_read_only") == [(value,)])


def test_wait_for_a_held_lock_times_out(url: str) -> None:
    store = open_store(url, limits=QUICK)
    store.migrate()
    other = open_store(url)
    with other.write_transaction() as connection:
        connection.execute(text("UPDATE state SET version = version"))
        started = time.monotonic()
        with pytest.raises(DatabaseUnavailable, match="lock"):
            store.take_over("http://writer")
        assert time.monotonic() - started < 3
        assert store.writer().epoch == 0  # reads do not wait for locks
    assert store.take_over("http://writer") == 1
    store.close()
    other.close()


def test_wait_for_a_free_connection_times_out(url: str) -> None:
    store = open_store(url, limits=Limits(connections_max=1, checkout_s=0.2))
    store.migrate()
    with store.read_statement(), pytest.raises(DatabaseUnavailable, match="all connections are in use"):
        store.version()
    assert store.version() > 0
    store.close()


def test_async_call_returns_the_result_and_raises_the_error_of_the_method(store: Store) -> None:
    async def calls() -> None:
        metadata = AsyncMetadata(store)
        epoch = await metadata.call(store.take_over, "http://writer", at_least=4)
        assert epoch == 4
        with pytest.raises(TopicMissing):
            await metadata.call(store.register_producer, epoch, an_id(1), an_id(2))
        found = await asyncio.gather(*(metadata.call(store.version) for _ in range(20)))
        assert len(set(found)) == 1
        metadata.close()

    asyncio.run(calls())


def test_async_calls_to_an_unresponsive_server_end_at_the_deadline(server: Postgres, store_on_server: Store) -> None:
    """Its connections stay open and its statement timeout has no effect; the threads are freed."""

    async def calls() -> None:
        metadata = AsyncMetadata(store_on_server, threads=2, deadline_s=1.0)
        await asyncio.gather(*(metadata.call(store_on_server.version) for _ in range(4)))
        server.freeze()
        started = time.monotonic()
        try:
            found = await asyncio.gather(
                *(metadata.call(store_on_server.version) for _ in range(6)), return_exceptions=True
            )
        finally:
            server.thaw()
        assert all(isinstance(error, DatabaseUnavailable) for error in found), found
        assert time.monotonic() - started < 4
        assert await asyncio.to_thread(wait_until, "the store to work again", lambda: works(store_on_server))
        assert await metadata.call(store_on_server.version) > 0
        metadata.close()

    asyncio.run(calls())
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("metadata")]


def test_close_does_not_wait_for_an_unresponsive_server(server: Postgres, store_on_server: Store) -> None:
    async def calls() -> None:
        metadata = AsyncMetadata(store_on_server, threads=1, deadline_s=30.0)
        await metadata.call(store_on_server.version)
        server.freeze()
        try:
            calls = [asyncio.create_task(metadata.call(store_on_server.version)) for _ in range(2)]
            await asyncio.sleep(0)
            running = lambda: any(future.running() for future in list(metadata._running))  # noqa: E731 - a condition
            await asyncio.to_thread(wait_until, "the call to be running", running)
            started = time.monotonic()
            metadata.close()
            assert time.monotonic() - started < 6
            for call in (*calls, metadata.call(store_on_server.version)):
                with pytest.raises(DatabaseUnavailable):
                    await call
        finally:
            server.thaw()

    asyncio.run(calls())
