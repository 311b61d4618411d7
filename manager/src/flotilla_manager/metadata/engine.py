"""SQLAlchemy engine: one SQLite file shared by several processes, or PostgreSQL on one or several hosts.

Invariants:
- Every wait has a timeout: connect, statement, lock, and checkout from the pool. An unresponsive server can exceed
  them; `Connections.abort` ends such waits.
- SQLite: a write transaction takes the lock at its start (BEGIN IMMEDIATE), so it cannot fail later because another
  one has written. A commit is on disk when it returns (WAL, synchronous=FULL).
- No text from this module contains the password.
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

from flotilla_manager.metadata.errors import InvalidDatabaseUrl

_LOCK_RETRY_S = 0.001
WRITING = "flotilla_writing"  # execution option of write transactions

_ALLOWED = "use sqlite:///PATH or postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
_DRIVERS = {"sqlite": "sqlite+pysqlite", "postgresql": "postgresql+psycopg2"}
_READ_ONLY = "25006"  # SQLSTATE: read-only transaction, as on a standby


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Timeouts, and the size of the connection pool of one process."""

    connect_s: int = 3  # per host
    statement_ms: int = 5_000
    lock_ms: int = 4_000
    connections_max: int = 8
    checkout_s: float = 5.0


def parse_url(text: str) -> URL:
    """Parse the URL of a database. Raises InvalidDatabaseUrl.

    A password in the query string moves to the authority, where it is hidden in texts.
    """
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise InvalidDatabaseUrl(f"invalid database URL: {_ALLOWED}") from None
    driver = _DRIVERS.get(url.get_backend_name())
    if driver is None or url.drivername not in {url.get_backend_name(), driver}:
        raise InvalidDatabaseUrl(f"unsupported database: {_ALLOWED}")
    if url.get_backend_name() == "sqlite" and url.database in {None, "", ":memory:"}:
        raise InvalidDatabaseUrl("SQLite needs a file: use sqlite:///PATH")
    if "@" in (url.host or ""):
        raise InvalidDatabaseUrl("invalid database URL: write '@' in the user or password as %40")
    password = url.query.get("password")
    if isinstance(password, str):
        url = url.difference_update_query(["password"]).set(password=password)
    return url.set(drivername=driver)


class Connections:
    """Engine and its open connections."""

    def __init__(self, url: str, limits: Limits | None = None) -> None:
        self._url = parse_url(url)
        self._open: WeakSet[Any] = WeakSet()
        self.limits = limits or Limits()
        self.is_sqlite = self._url.get_backend_name() == "sqlite"
        self.engine = self._sqlite() if self.is_sqlite else self._postgresql()

    def __repr__(self) -> str:
        return f"Connections({self._url.render_as_string(hide_password=True)})"

    def without_password(self, text: str) -> str:
        """Mask the password in a text."""
        password = self._url.password
        return text.replace(str(password), "***") if password else text

    def close(self) -> None:
        """Close the idle connections of the pool."""
        self.engine.dispose()

    def abort(self) -> None:
        """Shut down the sockets of all connections, so that threads blocked on an unresponsive server get an error."""
        for connection in list(self._open):
            # A connection that was closed concurrently has no socket.
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
                **_url_parameters(self._url, "connect_timeout", "tcp_user_timeout", "application_name"),
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


def _url_parameters(url: URL, *names: str) -> dict[str, Any]:
    """Return the parameters of the URL that override defaults."""
    return {name: url.query[name] for name in names if name in url.query}


def _prepare_sqlite(connection: Any, lock_ms: int) -> None:  # noqa: ANN401 - sqlite3's connection
    connection.isolation_level = None  # `_begin_sqlite` begins transactions
    _use_wal(connection, time.monotonic() + lock_ms / 1000)
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA foreign_keys=ON")


def _use_wal(connection: Any, deadline: float) -> None:  # noqa: ANN401 - sqlite3's connection
    """Set the journal mode to WAL. Only a new file changes. SQLite does not wait for locks here, so this retries."""
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
        if not _begin_immediate(driver, time.monotonic() + lock_ms / 1000):
            connection.exec_driver_sql("BEGIN IMMEDIATE")  # fails with an error that SQLAlchemy wraps
    finally:
        driver.execute(f"PRAGMA busy_timeout={lock_ms:d}")


def _begin_immediate(driver: Any, deadline: float) -> bool:  # noqa: ANN401 - sqlite3's connection
    """Begin a write transaction, with retries while the file is locked. SQLite's own retries are up to 0.1 s apart."""
    while time.monotonic() < deadline:
        try:
            driver.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                return False
            time.sleep(_LOCK_RETRY_S)
        else:
            return True
    return False


def _prepare_postgresql(connection: Any, limits: Limits) -> None:  # noqa: ANN401 - psycopg2's connection
    # With statements and not as connection options: connection poolers reject those.
    connection.autocommit = True
    with connection.cursor() as cursor:
        cursor.execute(
            f"SET statement_timeout = {limits.statement_ms:d}; SET lock_timeout = {limits.lock_ms:d};"
            f" SET idle_in_transaction_session_timeout = {2 * limits.statement_ms:d}"
        )
    connection.autocommit = False


def _leave_standby(context: ExceptionContext) -> None:
    """Treat a read-only server as disconnected, so that the next connection looks for the primary."""
    if getattr(context.original_exception, "pgcode", None) == _READ_ONLY:
        context.is_disconnect = True
