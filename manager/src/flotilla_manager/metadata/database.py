"""Transactions of the store. This module translates errors of the database driver, and fences replaced writers.

Each method of the store is one transaction:

- `read_statement`: one SELECT, without an explicit transaction.
- `read_transaction`: several SELECTs of one consistent state.
- `write_transaction`: a change by any manager.
- `topology_transaction`: a change of topology. It requires the current writer epoch, and increments the version.
- `writer_transaction`: another change by the writer. It requires the current writer epoch; the version stays.
"""

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg2
from sqlalchemy import Connection, RootTransaction, Row, select, update
from sqlalchemy.exc import DBAPIError, IntegrityError, InterfaceError, OperationalError, ProgrammingError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from flotilla_manager.metadata import schema, tables
from flotilla_manager.metadata.engine import WRITING, Connections
from flotilla_manager.metadata.errors import (
    DatabaseUnavailable,
    Fenced,
    MetadataError,
    OutcomeUnknown,
    SchemaMissing,
    StatementRejected,
)

_STATE = select(tables.state)
_UNDEFINED = {"42P01", "42703"}  # SQLSTATE: undefined table, undefined column
# SQLSTATE of transient errors that psycopg2 does not map to OperationalError: read-only standby, session timeouts.
_TRANSIENT = {"25006", "25P03", "25P04"}


class Database:
    """Base class of the parts of the store."""

    def __init__(self, connections: Connections, random_bytes: Callable[[int], bytes]) -> None:
        self._connections = connections
        self._random_bytes = random_bytes
        self._engine = connections.engine
        self._dialect = self._engine.dialect.name
        self._write_engine = self._engine.execution_options(**{WRITING: True})
        # SQLite needs neither: its transactions read from one snapshot, and BEGIN needs no round trip.
        self._statement_engine = self._read_engine = self._engine
        if not connections.is_sqlite:
            self._statement_engine = self._engine.execution_options(isolation_level="AUTOCOMMIT")
            self._read_engine = self._engine.execution_options(isolation_level="REPEATABLE READ")

    @contextmanager
    def read_statement(self) -> Iterator[Connection]:
        """Read with one statement. It is consistent by itself, so BEGIN and COMMIT are saved."""
        with self._translated(), self._statement_engine.begin() as connection:
            yield connection

    @contextmanager
    def read_transaction(self) -> Iterator[Connection]:
        """Read with several statements from one snapshot."""
        with self._translated(), self._read_engine.begin() as connection:
            yield connection

    @contextmanager
    def write_transaction(self) -> Iterator[Connection]:
        """Write atomically. Raises OutcomeUnknown if the commit may or may not have succeeded."""
        with self._translated(OutcomeUnknown), self._write_engine.connect() as connection:
            transaction = connection.begin()
            try:
                yield connection
            except BaseException:
                transaction.rollback()
                raise
            with self._translated_commit():
                _commit(connection, transaction)

    @contextmanager
    def topology_transaction(self, epoch: int) -> Iterator[Connection]:
        """Change topology as the writer of `epoch`, and increment the version. Raises Fenced."""
        with self.write_transaction() as connection:
            self._lock_state(connection, epoch, increments_version=True)
            yield connection

    @contextmanager
    def writer_transaction(self, epoch: int) -> Iterator[Connection]:
        """Change other data of the writer, as the writer of `epoch`. Raises Fenced."""
        with self.write_transaction() as connection:
            self._lock_state(connection, epoch, increments_version=False)
            yield connection

    def _lock_state(self, connection: Connection, epoch: int, *, increments_version: bool) -> None:
        """Lock the row of `state`, which serializes writers. Raises Fenced if `epoch` is not the current one."""
        state = tables.state
        version = state.c.version + 1 if increments_version else state.c.version
        locked = connection.execute(update(state).where(state.c.writer_epoch == epoch).values(version=version))
        if locked.rowcount == 0:
            raise self._fenced(connection, epoch)

    def _fenced(self, connection: Connection, epoch: int) -> MetadataError:
        found = state_row(connection)
        return Fenced(epoch, found.writer_epoch, found.writer_url)

    @contextmanager
    def _translated_commit(self) -> Iterator[None]:
        """Translate errors of a commit: if the connection fails, its outcome is unknown."""
        try:
            yield
        except (DBAPIError, PoolTimeout) as error:
            translated = self._translate(error)
            if isinstance(translated, DatabaseUnavailable):
                raise OutcomeUnknown(f"{translated}; the change may be committed or not") from None
            raise translated from None

    @contextmanager
    def _translated(self, unwrapped: type[DatabaseUnavailable] = DatabaseUnavailable) -> Iterator[None]:
        """Translate driver errors to MetadataError.

        Errors that SQLAlchemy does not wrap occur when a connection returns to the pool, after the transaction. They
        are raised as `unwrapped`.
        """
        try:
            yield
        except (DBAPIError, PoolTimeout) as error:
            raise self._translate(error, has_old_schema=self._has_old_schema(error)) from None
        except (psycopg2.Error, sqlite3.Error) as error:
            text = self._connections.without_password(" ".join(str(error).split()))
            raise unwrapped(f"database unavailable: {text}") from None

    def _has_old_schema(self, error: DBAPIError | PoolTimeout) -> bool:
        """Return whether SQLite rejected a statement because the schema is missing or old: it has no error code."""
        original = error.orig if isinstance(error, DBAPIError) else None
        if getattr(original, "sqlite_errorcode", None) != sqlite3.SQLITE_ERROR:
            return False
        with contextlib.suppress(DBAPIError, PoolTimeout), self._engine.connect() as connection:
            return not schema.is_current(connection)
        return False

    def _translate(self, error: DBAPIError | PoolTimeout, *, has_old_schema: bool = False) -> MetadataError:
        if isinstance(error, PoolTimeout):
            return DatabaseUnavailable("database unavailable: all connections are in use")
        text = self._connections.without_password(" ".join(str(error.orig).split()))
        code = getattr(error.orig, "pgcode", None)
        if code in _UNDEFINED or has_old_schema:
            return SchemaMissing(f"the database schema is missing or too old: start a writer to migrate it ({text})")
        if _is_transient(error, code):
            return DatabaseUnavailable(f"database unavailable: {text}")
        return StatementRejected(f"the database rejected a statement: {text}")


def _commit(connection: Connection, transaction: RootTransaction) -> None:
    """Commit. Raises OutcomeUnknown if PostgreSQL sends a notice.

    If the wait for a synchronous standby is cancelled, PostgreSQL reports success with a warning: a failover to the
    standby would lose the change. Other commits send no notice.
    """
    notices = getattr(connection.connection.dbapi_connection, "notices", [])
    notices.clear()
    transaction.commit()
    if notices:
        text = " ".join(" ".join(notices).split())
        raise OutcomeUnknown(f"database standby unavailable: {text}; the change may be lost in a failover")


def state_row(connection: Connection) -> Row[Any]:
    """Read the one row of `state`. Raises SchemaMissing."""
    row = connection.execute(_STATE).one_or_none()
    if row is None:
        raise SchemaMissing("the database has no cluster id: start a writer to migrate it")
    return row


def _is_transient(error: DBAPIError, code: str | None) -> bool:
    if isinstance(error, ProgrammingError | IntegrityError):
        return False
    is_connection_error = isinstance(error, OperationalError | InterfaceError) or error.connection_invalidated
    return is_connection_error or code in _TRANSIENT
