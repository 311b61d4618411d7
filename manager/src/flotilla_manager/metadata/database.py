"""Transactions: the one place in which errors of the database become ours, and in which writers are fenced.

A method of the store is one transaction: `asking` (one statement), `reading`, `writing`, `deciding` (a change of
topology, which the epoch allows and which raises the version) or `registering` (the epoch allows it, the version
stays).
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg2
from sqlalchemy import Connection, RootTransaction, Row, select, update
from sqlalchemy.exc import DBAPIError, IntegrityError, InterfaceError, OperationalError, ProgrammingError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from flotilla_manager.metadata import tables
from flotilla_manager.metadata.engine import WRITING, Connections
from flotilla_manager.metadata.errors import (
    DatabaseAway,
    DatabaseRefused,
    Fenced,
    MetadataError,
    OutcomeUnknown,
    SchemaMissing,
)

_STATE = select(tables.state)
_NOT_THERE = {"42P01", "42703"}  # SQLSTATEs of a table and of a column that is not there
# SQLSTATEs outside of the operational errors that pass by themselves: a standby, and sessions ended by a limit.
_PASSING = {"25006", "25P03", "25P04"}


class Database:
    """What the parts of the store have in common."""

    def __init__(self, connections: Connections, random_bytes: Callable[[int], bytes]) -> None:
        self._connections = connections
        self._random_bytes = random_bytes
        self._engine = connections.engine
        self._dialect = self._engine.dialect.name
        self._writing_engine = self._engine.execution_options(**{WRITING: True})
        # SQLite needs neither: there, what a transaction reads is of one moment, and to begin one costs nothing.
        self._asking_engine = self._reading_engine = self._engine
        if not connections.is_sqlite:
            self._asking_engine = self._engine.execution_options(isolation_level="AUTOCOMMIT")
            self._reading_engine = self._engine.execution_options(isolation_level="REPEATABLE READ")

    @contextmanager
    def asking(self) -> Iterator[Connection]:
        """Read by one statement, which is consistent in itself: no need to begin and to end a transaction."""
        with self._translated(), self._asking_engine.begin() as connection:
            yield connection

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Read several things as they were at one moment."""
        with self._translated(), self._reading_engine.begin() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Change something, wholly or not at all."""
        with self._translated(OutcomeUnknown), self._writing_engine.connect() as connection:
            transaction = connection.begin()
            try:
                yield connection
            except BaseException:
                transaction.rollback()
                raise
            with self._unknown():
                _commit(connection, transaction)

    @contextmanager
    def deciding(self, epoch: int) -> Iterator[Connection]:
        """Change topology, as the writer of `epoch`. Raises Fenced."""
        with self.writing() as connection:
            self._hold(connection, epoch, raises_version=True)
            yield connection

    @contextmanager
    def registering(self, epoch: int) -> Iterator[Connection]:
        """Change what only the writer changes, but what is not topology. Raises Fenced."""
        with self.writing() as connection:
            self._hold(connection, epoch, raises_version=False)
            yield connection

    def _hold(self, connection: Connection, epoch: int, *, raises_version: bool) -> None:
        """Lock the row that every writer has to lock, if the epoch is the current one."""
        state = tables.state
        version = state.c.version + 1 if raises_version else state.c.version
        held = connection.execute(update(state).where(state.c.writer_epoch == epoch).values(version=version))
        if held.rowcount == 0:
            raise self._fenced(connection, epoch)

    def _fenced(self, connection: Connection, epoch: int) -> MetadataError:
        found = state_row(connection)
        return Fenced(epoch, found.writer_epoch, found.writer_url)

    @contextmanager
    def _unknown(self) -> Iterator[None]:
        try:
            yield
        except (DBAPIError, PoolTimeout) as error:
            ours = self._translate(error)
            if isinstance(ours, DatabaseAway):
                raise OutcomeUnknown(f"{ours}; whether the change was made is unknown") from None
            raise ours from None

    @contextmanager
    def _translated(self, bare: type[DatabaseAway] = DatabaseAway) -> Iterator[None]:
        """Make errors ours. What SQLAlchemy does not wrap comes from giving a connection back, after all was done."""
        try:
            yield
        except (DBAPIError, PoolTimeout) as error:
            raise self._translate(error) from None
        except (psycopg2.Error, sqlite3.Error) as error:
            text = self._connections.without_password(" ".join(str(error).split()))
            raise bare(f"the database is away: {text}") from None

    def _translate(self, error: DBAPIError | PoolTimeout) -> MetadataError:
        if isinstance(error, PoolTimeout):
            return DatabaseAway("all connections to the database are in use")
        text = self._connections.without_password(" ".join(str(error.orig).split()))
        code = getattr(error.orig, "pgcode", None)
        if code in _NOT_THERE or text.startswith(("no such table", "no such column")):
            return SchemaMissing(f"the database lacks tables of this version: migrate it first ({text})")
        if _may_pass(error, code):
            return DatabaseAway(f"the database is away: {text}")
        return DatabaseRefused(f"the database refused a statement: {text}")


def _commit(connection: Connection, transaction: RootTransaction) -> None:
    """Commit. Raises OutcomeUnknown if PostgreSQL has something to say about it.

    Where somebody cancels the wait for a synchronous standby, PostgreSQL reports success, with a warning, of what is
    lost if the standby takes over. Other commits come without a word.
    """
    notices = getattr(connection.connection.dbapi_connection, "notices", [])
    notices.clear()
    transaction.commit()
    if notices:
        text = " ".join(" ".join(notices).split())
        raise OutcomeUnknown(f"the database is away in part: {text}; whether the change will last is unknown")


def state_row(connection: Connection) -> Row[Any]:
    """Read the one row of `state`. Raises SchemaMissing."""
    row = connection.execute(_STATE).one_or_none()
    if row is None:
        raise SchemaMissing("the database has tables but no cluster id: migrate it first")
    return row


def _may_pass(error: DBAPIError, code: str | None) -> bool:
    if isinstance(error, ProgrammingError | IntegrityError):
        return False
    passing = isinstance(error, OperationalError | InterfaceError) or error.connection_invalidated
    return passing or code in _PASSING
