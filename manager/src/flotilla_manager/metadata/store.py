"""The metadata store: all data that managers keep in the database. It is thread-safe.

Each method is one transaction. Errors are in `errors`: after DatabaseUnavailable, the caller may retry; after
OutcomeUnknown, it must read the state first.
"""

import os
from collections.abc import Callable, Sequence

from sqlalchemy import delete, func, select, update

from flotilla_manager.metadata import schema, tables
from flotilla_manager.metadata.broker_starts import BrokerStarts
from flotilla_manager.metadata.consumers import Consumers
from flotilla_manager.metadata.engine import Connections, Limits
from flotilla_manager.metadata.errors import DatabaseNotEmpty
from flotilla_manager.metadata.groups import Groups
from flotilla_manager.metadata.managers import Managers
from flotilla_manager.metadata.producers import Producers
from flotilla_manager.metadata.tokens import Tokens
from flotilla_manager.metadata.topology import Topology, put_broker, put_topic
from flotilla_manager.model import Broker, Topic


class Store(Managers, Topology, BrokerStarts, Producers, Consumers, Groups, Tokens):
    """Writer epoch, topology, producers, consumers, groups, tokens, migrations, and the rebuild of the topology."""

    def __repr__(self) -> str:
        return f"Store({self._connections!r})"

    def migrate(self) -> None:
        """Migrate the schema, and generate the cluster id if there is none. Safe for concurrent processes.

        Raises SchemaTooNew.
        """
        with self.write_transaction() as connection:
            schema.upgrade(connection)
            if connection.execute(select(tables.state.c.id)).one_or_none() is None:
                schema.insert_state(connection, self._random_bytes(16).hex())

    def is_migrated(self) -> bool:
        """Return whether the schema is current. Raises SchemaTooNew."""
        with self.read_transaction() as connection:
            return schema.is_current(connection)

    def has_tables(self) -> bool:
        """Return whether the database has a schema of any version."""
        with self.read_transaction() as connection:
            return schema.has_tables(connection)

    def replace_all(
        self,
        topics: Sequence[Topic],
        brokers: Sequence[Broker],
        writer_epoch: int,
        cluster_id: str,
        *,
        force: bool = False,
    ) -> None:
        """Replace the topology by one that was rebuilt from brokers' reports. Serials follow the given order.

        Registrations with topics that remain are kept. Raises DatabaseNotEmpty if there are topics, unless `force`;
        Fenced if the current writer epoch is higher.
        """
        ids = [topic.id for topic in topics]
        state, existing = tables.state, tables.topics
        with self.write_transaction() as connection:
            change = update(state).where(state.c.writer_epoch <= writer_epoch)
            values = {"writer_epoch": writer_epoch, "cluster_id": cluster_id, "version": state.c.version + 1}
            if connection.execute(change.values(**values)).rowcount == 0:
                raise self._fenced(connection, writer_epoch)
            count = connection.execute(select(func.count()).select_from(existing)).scalar_one()
            if count and not force:
                raise DatabaseNotEmpty(f"the database contains {count} topics: nothing was replaced")
            connection.execute(delete(tables.partitions))
            connection.execute(delete(tables.brokers))
            connection.execute(delete(tables.broker_starts))  # the brokers may have been restored, too
            connection.execute(delete(existing).where(existing.c.id.not_in(ids)))
            for broker in brokers:
                put_broker(connection, broker)
            for topic in topics:
                put_topic(connection, topic)

    def abort_connections(self) -> None:
        """Abort all connections to an unresponsive server. Calls that wait for it raise DatabaseUnavailable."""
        self._connections.abort()

    def close(self) -> None:
        """Close the connections."""
        self._connections.close()


def open_store(url: str, *, limits: Limits | None = None, random_bytes: Callable[[int], bytes] = os.urandom) -> Store:
    """Create a store for a URL, without connecting yet. Raises InvalidDatabaseUrl."""
    return Store(Connections(url, limits), random_bytes)
