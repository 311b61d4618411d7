"""A database that is away: nothing hangs, nothing is lost, and everything goes on by itself when it is back."""

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
    DatabaseAway,
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
    """A server of its own, which these tests treat badly."""
    with running_postgres() as server:
        yield server


@pytest.fixture
def patient(server: Postgres) -> Iterator[Store]:
    """A store on that server, with quick limits."""
    url = server.new_database()
    store = open_store(url, limits=QUICK)
    store.migrate()
    yield store
    store.close()
    server.drop_database(url)


def works(store: Store) -> bool:
    try:
        return store.version() > 0
    except DatabaseAway:
        return False


def test_a_store_works_again_after_its_database_was_killed(server: Postgres, patient: Store) -> None:
    """No restart of the process, no new store; what was committed is there."""
    epoch = patient.take_over("http://writer")
    made = ready_topic(patient, epoch)
    server.kill()
    for attempt in (patient.version, patient.snapshot, lambda: patient.create_topic(epoch, a_topic(2, "other"))):
        started = time.monotonic()
        with pytest.raises(DatabaseAway, match="the database is away: "):
            attempt()
        assert time.monotonic() - started < 5
    server.start()
    assert patient.snapshot().topics == (made,)
    patient.create_topic(epoch, a_topic(2, "other"))


def test_a_store_does_not_notice_a_restart_between_two_calls(server: Postgres, patient: Store) -> None:
    patient.take_over("http://writer")
    server.restart()
    assert patient.take_over("http://writer") == 2


@pytest.mark.parametrize("error", [psycopg2.OperationalError("gone"), sqlite3.OperationalError("gone")])
def test_what_goes_wrong_when_a_connection_is_given_back_is_told_like_anything_else(
    patient: Store, error: Exception
) -> None:
    """SQLAlchemy does not wrap it, and it may come after a commit. Seen where a primary died between two statements."""

    def fail(*_: object) -> None:
        raise error

    event.listen(patient._engine, "checkin", fail)
    with pytest.raises(DatabaseAway, match="the database is away: gone"):
        patient.version()
    with pytest.raises(OutcomeUnknown, match="the database is away: gone"):
        patient.take_over("http://writer")
    event.remove(patient._engine, "checkin", fail)
    assert works(patient)


def test_a_commit_that_is_cut_off_has_an_unknown_outcome(server: Postgres, patient: Store) -> None:
    """Nobody can tell then whether the change was made, and the error does not pretend to."""
    sql(
        patient,
        "CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END'",
    )
    sql(
        patient,
        "CREATE CONSTRAINT TRIGGER dies AFTER UPDATE ON state DEFERRABLE INITIALLY DEFERRED"
        " FOR EACH ROW EXECUTE FUNCTION die()",
    )
    with pytest.raises(OutcomeUnknown, match="whether the change was made is unknown"):
        patient.take_over("http://writer")
    assert patient.writer().epoch == 0
    assert server.execute("SELECT 1") == [(1,)]


def test_a_server_that_only_reads_is_away_until_it_writes_again(server: Postgres, patient: Store) -> None:
    """A standby, to which a connection was left over: the connection is given up, another one is looked for."""
    before = backend(patient)
    set_read_only(server, "on")
    try:
        with pytest.raises(DatabaseAway, match="read-only transaction"):
            patient.take_over("http://writer")
        assert backend(patient) != before
    finally:
        set_read_only(server, "off")
    assert patient.take_over("http://writer") == 1


def backend(store: Store) -> int:
    """Tell which process of the server a store's connection has come to."""
    with store.asking() as connection:
        return int(connection.execute(text("SELECT pg_backend_pid()")).scalar_one())


def set_read_only(server: Postgres, value: str) -> None:
    server.execute(f"ALTER SYSTEM SET default_transaction_read_only = {value}")
    server.execute("SELECT pg_reload_conf()")
    wait_until("the server to take it in", lambda: server.execute("SHOW transaction_read_only") == [(value,)])


def test_a_lock_that_somebody_holds_is_not_waited_for_without_end(url: str) -> None:
    store = open_store(url, limits=QUICK)
    store.migrate()
    other = open_store(url)
    with other.writing() as connection:
        connection.execute(text("UPDATE state SET version = version"))
        started = time.monotonic()
        with pytest.raises(DatabaseAway, match="lock"):
            store.take_over("http://writer")
        assert time.monotonic() - started < 3
        assert store.writer().epoch == 0  # reading goes on
    assert store.take_over("http://writer") == 1
    store.close()
    other.close()


def test_a_free_connection_is_not_waited_for_without_end(url: str) -> None:
    store = open_store(url, limits=Limits(connections_max=1, checkout_s=0.2))
    store.migrate()
    with store.asking(), pytest.raises(DatabaseAway, match="all connections to the database are in use"):
        store.version()
    assert store.version() > 0
    store.close()


def test_a_call_of_asyncio_returns_what_the_method_returns_and_raises_what_it_raises(store: Store) -> None:
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


def test_a_server_that_says_nothing_is_given_up_after_the_deadline(server: Postgres, patient: Store) -> None:
    """Its connections stay open and no limit of its own helps; the threads are freed all the same."""

    async def calls() -> None:
        metadata = AsyncMetadata(patient, threads=2, deadline_s=1.0)
        await asyncio.gather(*(metadata.call(patient.version) for _ in range(4)))
        server.freeze()
        started = time.monotonic()
        try:
            found = await asyncio.gather(*(metadata.call(patient.version) for _ in range(6)), return_exceptions=True)
        finally:
            server.thaw()
        assert all(isinstance(error, DatabaseAway) for error in found), found
        assert time.monotonic() - started < 4
        assert await asyncio.to_thread(wait_until, "the store to work again", lambda: works(patient))
        assert await metadata.call(patient.version) > 0
        metadata.close()

    asyncio.run(calls())
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("metadata")]


def test_closing_does_not_wait_for_a_server_that_says_nothing(server: Postgres, patient: Store) -> None:
    async def calls() -> None:
        metadata = AsyncMetadata(patient, threads=1, deadline_s=30.0)
        await metadata.call(patient.version)
        server.freeze()
        try:
            calls = [asyncio.create_task(metadata.call(patient.version)) for _ in range(2)]
            await asyncio.sleep(0)
            running = lambda: any(future.running() for future in list(metadata._under_way))  # noqa: E731 - a question
            await asyncio.to_thread(wait_until, "the call to be under way", running)
            started = time.monotonic()
            metadata.close()
            assert time.monotonic() - started < 6
            for call in (*calls, metadata.call(patient.version)):
                with pytest.raises(DatabaseAway):
                    await call
        finally:
            server.thaw()

    asyncio.run(calls())
