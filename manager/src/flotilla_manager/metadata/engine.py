"""Open the database: one SQLite file that several processes share, or PostgreSQL on one or several hosts.

Invariants:
- Nothing waits for long. Connecting, statements, locks and the wait for a free connection have limits; what a limit
  cannot end, because the server is there and says nothing, `Connections.give_up` ends.
- SQLite: a transaction that writes takes the lock at its start (BEGIN IMMEDIATE), so it never fails half-way because
  another one wrote; a commit is on the disk when it returns (WAL, synchronous=FULL).
- A password is in no text that comes from here.
"""

import contextlib
import os
import socket
import sqlite3
import time
from dataclasses import dataclass
from typing import Any
from weakref import WeakSet

import psycopg2
from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.engine.interfaces import ExceptionContext
from sqlalchemy.exc import ArgumentError

from flotilla_manager.metadata.errors import BadDatabaseUrl

_LOOK_AGAIN_S = 0.001
WRITING = "flotilla_writing"  # an execution option: the transaction will write

_ALLOWED = "allowed are sqlite:///PATH and postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
_DRIVERS = {"sqlite": "sqlite+pysqlite", "postgresql": "postgresql+psycopg2"}
_READ_ONLY = "25006"  # SQLSTATE of a write on a standby


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How long things may take, and how many connections one process has."""

    connect_s: int = 3  # for each host
    statement_ms: int = 5_000
    lock_ms: int = 4_000
    connections_max: int = 8
    checkout_s: float = 5.0


def parse_url(text: str) -> URL:
    """Read a database's URL. A password that was given as a parameter moves to where it is never shown."""
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise BadDatabaseUrl(f"the database's URL cannot be read: {_ALLOWED}") from None
    driver = _DRIVERS.get(url.get_backend_name())
    if driver is None or url.drivername not in {url.get_backend_name(), driver}:
        raise BadDatabaseUrl(f"the database's URL names a kind of database that is not supported: {_ALLOWED}")
    if url.get_backend_name() == "sqlite" and url.database in {None, "", ":memory:"}:
        raise BadDatabaseUrl("SQLite needs a file that all managers share: sqlite:///PATH")
    if "@" in (url.host or ""):
        raise BadDatabaseUrl("the database's URL has '@' in its user or password: write it as %40")
    password = url.query.get("password")
    if isinstance(password, str):
        url = url.difference_update_query(["password"]).set(password=password)
    return url.set(drivername=driver)


class Connections:
    """An engine and its open connections."""

    def __init__(self, url: str, limits: Limits | None = None) -> None:
        self._url = parse_url(url)
        self._open: WeakSet[Any] = WeakSet()
        self.limits = limits or Limits()
        self.is_sqlite = self._url.get_backend_name() == "sqlite"
        self.engine = self._sqlite() if self.is_sqlite else self._postgresql()

    def __repr__(self) -> str:
        return f"Connections({self._url.render_as_string(hide_password=True)})"

    def without_password(self, text: str) -> str:
        """Make a text fit to be shown."""
        password = self._url.password
        return text.replace(str(password), "***") if password else text

    def close(self) -> None:
        """Close the connections that nobody uses."""
        self.engine.dispose()

    def give_up(self) -> None:
        """End every connection to a server that does not answer: who waits for it gets an error at once."""
        for connection in list(self._open):
            # A connection that was closed meanwhile has no socket any more, which is what was wanted.
            with contextlib.suppress(psycopg2.InterfaceError, OSError):
                descriptor = os.dup(connection.fileno())
                with socket.socket(fileno=descriptor) as sock:
                    sock.shutdown(socket.SHUT_RDWR)

    def _sqlite(self) -> Engine:
        engine = create_engine(
            self._url,
            connect_args={"timeout": self.limits.lock_ms / 1000},
            pool_size=self.limits.connections_max,
            max_overflow=0,
            pool_timeout=self.limits.checkout_s,
        )
        event.listen(engine, "connect", lambda connection, _: _prepare_sqlite(connection, self.limits.lock_ms))
        event.listen(engine, "begin", lambda connection: _begin_sqlite(connection, self.limits.lock_ms))
        return engine

    def _postgresql(self) -> Engine:
        engine = create_engine(
            self._url,
            connect_args={
                "connect_timeout": self.limits.connect_s,
                "tcp_user_timeout": self.limits.statement_ms,
                "keepalives_idle": 5,
                "keepalives_interval": 2,
                "keepalives_count": 2,
                "application_name": "flotilla",
                **_given(self._url, "connect_timeout", "tcp_user_timeout", "application_name"),
            },
            executemany_mode="values_plus_batch",
            pool_size=self.limits.connections_max,
            max_overflow=0,
            pool_timeout=self.limits.checkout_s,
            pool_pre_ping=True,
        )
        event.listen(engine, "connect", lambda connection, _: _prepare_postgresql(connection, self.limits))
        event.listen(engine, "connect", lambda connection, _: self._open.add(connection))
        event.listen(engine, "handle_error", _leave_standby)
        return engine


def _given(url: URL, *names: str) -> dict[str, Any]:
    """Take what the URL says itself about what we have a default for."""
    return {name: url.query[name] for name in names if name in url.query}


def _prepare_sqlite(connection: Any, lock_ms: int) -> None:  # noqa: ANN401 - sqlite3's connection
    connection.isolation_level = None  # we begin transactions ourselves
    _use_wal(connection, time.monotonic() + lock_ms / 1000)
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA foreign_keys=ON")


def _use_wal(connection: Any, deadline: float) -> None:  # noqa: ANN401 - sqlite3's connection
    """Turn the file to WAL. SQLite does not wait for others here, so we do; only a new file is changed at all."""
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except connection.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


def _begin_sqlite(connection: Connection, lock_ms: int) -> None:
    if not connection.get_execution_options().get(WRITING, False):
        connection.exec_driver_sql("BEGIN")
        return
    driver: Any = connection.connection.driver_connection
    driver.execute("PRAGMA busy_timeout=0")
    try:
        if not _begin_when_free(driver, time.monotonic() + lock_ms / 1000):
            connection.exec_driver_sql("BEGIN IMMEDIATE")  # fails, in the way in which SQLAlchemy wraps errors
    finally:
        driver.execute(f"PRAGMA busy_timeout={lock_ms:d}")


def _begin_when_free(driver: Any, deadline: float) -> bool:  # noqa: ANN401 - sqlite3's connection
    """Begin to write as soon as nobody else does. SQLite's own waiting looks ever more rarely, up to 0.1 s apart."""
    while time.monotonic() < deadline:
        try:
            driver.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                return False
            time.sleep(_LOOK_AGAIN_S)
        else:
            return True
    return False


def _prepare_postgresql(connection: Any, limits: Limits) -> None:  # noqa: ANN401 - psycopg2's connection
    # By statements and not as options of the connection: poolers between us and the server refuse those.
    connection.autocommit = True
    with connection.cursor() as cursor:
        cursor.execute(
            f"SET statement_timeout = {limits.statement_ms:d}; SET lock_timeout = {limits.lock_ms:d};"
            f" SET idle_in_transaction_session_timeout = {2 * limits.statement_ms:d}"
        )
    connection.autocommit = False


def _leave_standby(context: ExceptionContext) -> None:
    """Treat a server that only reads as one that is gone: the next connection looks for the one that writes."""
    if getattr(context.original_exception, "pgcode", None) == _READ_ONLY:
        context.is_disconnect = True
