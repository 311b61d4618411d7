"""URLs of databases: accepted forms, and that no text contains the password."""

import logging
import traceback
from pathlib import Path

import pytest

from flotilla_manager.metadata import DatabaseUnavailable, InvalidDatabaseUrl, Limits, open_store
from flotilla_manager.metadata.engine import parse_url
from support.cluster import free_port
from support.postgres import Postgres

SECRET = "zebra-crossing"  # noqa: S105 - the test checks that it is not shown


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ("", "invalid database URL"),
        ("metadata.db", "invalid database URL"),
        (f"postgresql://u:{SECRET}@host:port/db", "invalid database URL"),
        ("mysql://host/db", "unsupported database"),
        ("postgresql+asyncpg://host/db", "unsupported database"),
        ("sqlite+aiosqlite:///x", "unsupported database"),
        ("sqlite://", "needs a file"),
        ("sqlite:///:memory:", "needs a file"),
        (f"postgresql://u:p@{SECRET}@host/db", "or password as %40"),
    ],
)
def test_invalid_url_is_rejected_without_showing_it(given: str, rule: str) -> None:
    with pytest.raises(InvalidDatabaseUrl, match=rule) as caught:
        open_store(given)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_plain_url_schemes_select_the_installed_drivers() -> None:
    assert parse_url("sqlite:///x").drivername == "sqlite+pysqlite"
    assert parse_url("postgresql://h/d").drivername == "postgresql+psycopg2"
    assert parse_url("postgresql+psycopg2://h/d").drivername == "postgresql+psycopg2"


@pytest.mark.parametrize("form", ["u:{}@{}/db", "u@{1}/db?password={0}", "/db?user=u&host={1}&password={0}"])
def test_errors_and_logs_do_not_contain_the_password(form: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    store = open_store("postgresql://" + form.format(SECRET, f"127.0.0.1:{free_port()}"), limits=Limits(connect_s=2))
    with pytest.raises(DatabaseUnavailable, match=r"database unavailable: .*refused") as caught:
        store.migrate()
    shown = ["".join(traceback.format_exception(caught.value)), repr(store), str(store), repr(store._engine)]
    assert SECRET not in "".join([*shown, caplog.text])
    store.close()


def test_rejected_password_is_not_shown(postgres: Postgres) -> None:
    postgres.execute(f"CREATE ROLE walker LOGIN SUPERUSER PASSWORD '{SECRET}'")
    rules = postgres.data / "pg_hba.conf"
    before = rules.read_text()
    rules.write_text("host all walker 127.0.0.1/32 scram-sha-256\n" + before)
    postgres.execute("SELECT pg_reload_conf()")
    url = postgres.new_database()
    wrong = open_store(url.replace("postgres@", f"walker:not-{SECRET}@"))
    with pytest.raises(DatabaseUnavailable, match="password authentication failed") as caught:
        wrong.migrate()
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    right = open_store(url.replace("postgres@", f"walker:{SECRET}@"))
    right.migrate()
    right.close()
    rules.write_text(before)
    postgres.drop_database(url)


def test_url_accepts_a_socket_and_several_hosts(postgres: Postgres) -> None:
    """Libpq tries the hosts in order, until one accepts writes."""
    url = postgres.new_database()
    name = url.rpartition("/")[2]
    closed = f"127.0.0.1:{free_port()}"
    for form in (
        f"postgresql+psycopg2://postgres@/{name}?host={closed}&host=127.0.0.1:{postgres.port}&target_session_attrs=read-write",
        f"postgresql://postgres@/{name}?host={postgres.folder}&port={postgres.port}",
    ):
        store = open_store(form)
        store.migrate()
        assert store.is_migrated()
        store.close()
    postgres.drop_database(url)


def test_missing_folder_of_the_sqlite_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(DatabaseUnavailable, match="unable to open database file"):
        open_store(f"sqlite:///{tmp_path}/nowhere/metadata.db").migrate()


def test_file_that_is_not_a_database_is_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "letter.txt"
    path.write_text("Dear Sir or Madam, " * 100)
    with pytest.raises(Exception, match="file is not a database"):
        open_store(f"sqlite:///{path}").migrate()
    assert path.read_text().startswith("Dear Sir")
