"""PostgreSQL with a standby: the primary is killed under load, and the managers' store uses the standby."""

import asyncio
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Self

import pytest

from flotilla_manager.metadata import AsyncMetadata, DatabaseUnavailable, Limits, OutcomeUnknown, Store, open_store
from support.cluster import wait_until
from support.metadata import a_step, a_topic, an_id, ready_topic
from support.postgres import Postgres, postgres_folder, running_postgres

LIMITS = Limits(connect_s=2, statement_ms=2_000, lock_ms=1_000)


@pytest.fixture
def pair() -> Iterator[tuple[Postgres, Postgres]]:
    """A primary with a synchronous standby."""
    with running_postgres() as primary, postgres_folder() as folder:
        standby = Postgres(folder)
        standby.copy_from(primary)
        try:
            standby.start()
            primary.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            primary.execute("SELECT pg_reload_conf()")
            question = "SELECT sync_state FROM pg_stat_replication"
            wait_until("a synchronous standby", lambda: primary.execute(question) == [("sync",)])
            yield primary, standby
        finally:
            standby.stop()


@pytest.fixture
def store(pair: tuple[Postgres, Postgres]) -> Iterator[Store]:
    """A store with both servers in its URL, the standby first."""
    primary, standby = pair
    name = primary.new_database().rpartition("/")[2]
    # The standby has what is committed but may not show it yet, and libpq takes an unknown database for a final answer.
    known = f"SELECT 1 FROM pg_database WHERE datname = '{name}'"  # noqa: S608 - a name of ours
    wait_until("the standby to know the database", lambda: standby.execute(known))
    hosts = f"host=127.0.0.1:{standby.port}&host=127.0.0.1:{primary.port}"
    url = f"postgresql+psycopg2://postgres@/{name}?{hosts}&target_session_attrs=read-write"
    store = open_store(url, limits=LIMITS)
    store.migrate()
    yield store
    store.close()


class Load:
    """Advances a consumer, and records the last version that the database confirmed."""

    def __init__(self, store: Store) -> None:
        self.confirmed = 0
        self.failures: list[DatabaseUnavailable] = []
        self._store = store
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                self._step()
            except DatabaseUnavailable as error:
                self.failures.append(error)
                self._ended.wait(0.05)

    def _step(self) -> None:
        consumer = self._store.find_consumer(an_id(20))
        assert consumer is not None
        assert consumer.version >= self.confirmed, "a confirmed step is gone"
        if self._store.advance([a_step(consumer)]) == [True]:
            self.confirmed = consumer.version + 1


def test_standby_takes_over_without_losing_commits(pair: tuple[Postgres, Postgres], store: Store) -> None:
    """The same store, with one URL of two hosts, finds the new primary."""
    primary, standby = pair
    epoch = store.take_over("http://writer")
    made = ready_topic(store, epoch, a_topic(partitions=2))
    store.register_consumer(epoch, an_id(20), made.id, None, (0, 0))
    with Load(store) as load:
        wait_until("steps before the fall", lambda: load.confirmed >= 50)
        primary.kill()
        wait_until("the fall to be noticed", lambda: load.failures)
        confirmed = load.confirmed
        standby.promote()
        wait_until("steps after the promotion", lambda: load.confirmed >= confirmed + 50)
    found = store.find_consumer(an_id(20))
    assert found is not None
    assert found.positions == (found.version, 0)
    assert found.version >= load.confirmed
    assert store.snapshot().topics == (made,)
    store.heartbeat(epoch)
    assert store.take_over("http://next") == epoch + 1
    # The primary may end while a commit waits for the standby.
    texts = [str(failure) for failure in load.failures]
    assert [text for text in texts if not re.match(r"database (standby )?unavailable: ", text)] == []


def test_change_that_only_the_primary_has_is_not_reported_as_committed(
    pair: tuple[Postgres, Postgres], store: Store
) -> None:
    """PostgreSQL reports success if the wait for the standby is cancelled; the store does not."""
    primary, standby = pair
    cancel = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
    standby.freeze()
    try:
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(store.take_over, "http://writer")
            wait_until("a commit that waits for the standby", lambda: primary.execute(cancel))
            with pytest.raises(OutcomeUnknown, match="may be lost in a failover"):
                waiting.result()
    finally:
        standby.thaw()
    assert store.writer().epoch == 1
    store.heartbeat(1)


def test_wait_for_a_missing_standby_is_bounded(pair: tuple[Postgres, Postgres], store: Store) -> None:
    _, standby = pair

    async def call() -> None:
        metadata = AsyncMetadata(store, deadline_s=1.0)
        standby.freeze()
        try:
            with pytest.raises(OutcomeUnknown, match="no response within 1 s"):
                await metadata.call(store.take_over, "http://writer")
        finally:
            standby.thaw()
        metadata.close()

    asyncio.run(call())
    wait_until("the commit to be complete", lambda: store.writer().epoch == 1)


def test_standby_alone_is_unavailable_for_writes(pair: tuple[Postgres, Postgres], store: Store) -> None:
    primary, standby = pair
    store.take_over("http://writer")
    primary.stop()
    with pytest.raises(DatabaseUnavailable, match="session is read-only"):
        store.writer()
    standby.promote()
    assert store.writer().epoch == 1
