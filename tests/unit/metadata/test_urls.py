"""The database's URL: what is accepted, and that a password is never shown."""

import logging
import traceback
from pathlib import Path

import pytest

from flotilla_manager.metadata import BadDatabaseUrl, DatabaseAway, Limits, open_store
from flotilla_manager.metadata.engine import parse_url
from support.cluster import free_port
from support.postgres import Postgres

SECRET = "zebra-crossing"  # noqa: S105 - that it is not shown is what is tested


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ("", "cannot be read"),
        ("metadata.db", "cannot be read"),
        (f"postgresql://u:{SECRET}@host:port/db", "cannot be read"),
        ("mysql://host/db", "not supported"),
        ("postgresql+asyncpg://host/db", "not supported"),
        ("sqlite+aiosqlite:///x", "not supported"),
        ("sqlite://", "needs a file"),
        ("sqlite:///:memory:", "needs a file"),
        (f"postgresql://u:p@{SECRET}@host/db", "write it as %40"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused_with_the_rule_and_without_the_url(given: str, rule: str) -> None:
    with pytest.raises(BadDatabaseUrl, match=rule) as caught:
        open_store(given)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_plain_names_of_databases_mean_the_drivers_that_we_have() -> None:
    assert parse_url("sqlite:///x").drivername == "sqlite+pysqlite"
    assert parse_url("postgresql://h/d").drivername == "postgresql+psycopg2"
    assert parse_url("postgresql+psycopg2://h/d").drivername == "postgresql+psycopg2"


@pytest.mark.parametrize("form", ["u:{}@{}/db", "u@{1}/db?password={0}", "/db?user=u&host={1}&password={0}"])
def test_a_password_is_in_no_error_and_no_log(form: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    store = open_store("postgresql://" + form.format(SECRET, f"127.0.0.1:{free_port()}"), limits=Limits(connect_s=2))
    with pytest.raises(DatabaseAway, match=r"the database is away: .*refused") as caught:
        store.migrate()
    shown = ["".join(traceback.format_exception(caught.value)), repr(store), str(store), repr(store._engine)]
    assert SECRET not in "".join([*shown, caplog.text])
    store.close()


def test_a_password_that_is_refused_is_not_shown_and_the_right_one_works(postgres: Postgres) -> None:
    postgres.execute(f"CREATE ROLE walker LOGIN SUPERUSER PASSWORD '{SECRET}'")
    rules = postgres.data / "pg_hba.conf"
    before = rules.read_text()
    rules.write_text("host all walker 127.0.0.1/32 scram-sha-256\n" + before)
    postgres.execute("SELECT pg_reload_conf()")
    url = postgres.new_database()
    wrong = open_store(url.replace("postgres@", f"walker:not-{SECRET}@"))
    with pytest.raises(DatabaseAway, match="password authentication failed") as caught:
        wrong.migrate()
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    right = open_store(url.replace("postgres@", f"walker:{SECRET}@"))
    right.migrate()
    right.close()
    rules.write_text(before)
    postgres.drop_database(url)


def test_a_socket_and_several_hosts_can_be_named(postgres: Postgres) -> None:
    """Libpq tries one host after the other until one of them takes writes."""
    url = postgres.new_database()
    name = url.rpartition("/")[2]
    nobody = f"127.0.0.1:{free_port()}"
    for form in (
        f"postgresql+psycopg2://postgres@/{name}?host={nobody}&host=127.0.0.1:{postgres.port}&target_session_attrs=read-write",
        f"postgresql://postgres@/{name}?host={postgres.folder}&port={postgres.port}",
    ):
        store = open_store(form)
        store.migrate()
        assert store.is_migrated()
        store.close()
    postgres.drop_database(url)


def test_a_folder_that_is_not_there_is_an_error_that_says_so(tmp_path: Path) -> None:
    with pytest.raises(DatabaseAway, match="unable to open database file"):
        open_store(f"sqlite:///{tmp_path}/nowhere/metadata.db").migrate()


def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "letter.txt"
    path.write_text("Dear Sir or Madam, " * 100)
    with pytest.raises(Exception, match="file is not a database"):
        open_store(f"sqlite:///{path}").migrate()
    assert path.read_text().startswith("Dear Sir")
