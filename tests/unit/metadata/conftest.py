"""Fixtures of a store. Each test runs on SQLite and on a real PostgreSQL, with a new database."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from flotilla_manager.metadata import Store, open_store
from support.postgres import Postgres, running_postgres


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with running_postgres() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """URL of an empty database."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'metadata.db'}"
        return
    server: Postgres = request.getfixturevalue("postgres")
    url = server.new_database()
    yield url
    server.drop_database(url)


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    """Store of a migrated database without rows."""
    store = open_store(url)
    store.migrate()
    yield store
    store.close()
