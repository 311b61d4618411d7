"""The store of metadata: everything that managers keep in the database, for calls from any thread.

Each method is one transaction. What can go wrong is in `errors`; a DatabaseAway may be tried again, and an
OutcomeUnknown only after a look at what is there.
"""

import os
from collections.abc import Callable, Sequence

from sqlalchemy import delete, func, select, update

from flotilla_manager.metadata import schema, tables
from flotilla_manager.metadata.consumers import Consumers
from flotilla_manager.metadata.engine import Connections, Limits
from flotilla_manager.metadata.errors import MetadataPresent
from flotilla_manager.metadata.groups import Groups
from flotilla_manager.metadata.leadership import Leadership
from flotilla_manager.metadata.producers import Producers
from flotilla_manager.metadata.tokens import Tokens
from flotilla_manager.metadata.topology import Topology, put_broker, put_topic
from flotilla_manager.model import Broker, Topic


class Store(Leadership, Topology, Producers, Consumers, Groups, Tokens):
    """All of it: leadership, topology, producers, consumers, groups, tokens, the schema, and rebuilding."""

    def __repr__(self) -> str:
        return f"Store({self._connections!r})"

    def migrate(self) -> None:
        """Bring the tables up to date, and draw the cluster's id if there is none. Any number may do so at once.

        Raises SchemaTooNew.
        """
        with self.writing() as connection:
            schema.upgrade(connection)
            if connection.execute(select(tables.state.c.id)).one_or_none() is None:
                schema.insert_state(connection, self._random_bytes(16).hex())

    def is_migrated(self) -> bool:
        """Tell whether the tables are up to date. Raises SchemaTooNew."""
        with self.reading() as connection:
            return schema.is_current(connection)

    def replace_all(
        self,
        topics: Sequence[Topic],
        brokers: Sequence[Broker],
        writer_epoch: int,
        cluster_id: str,
        *,
        force: bool = False,
    ) -> None:
        """Rebuild topology from what brokers have reported, in the order given.

        Registrations with topics that stay are kept. Raises MetadataPresent if there are topics, unless `force`;
        Fenced if there was a writer of a higher epoch.
        """
        ids = [topic.id for topic in topics]
        state, held = tables.state, tables.topics
        with self.writing() as connection:
            change = update(state).where(state.c.writer_epoch <= writer_epoch)
            values = {"writer_epoch": writer_epoch, "cluster_id": cluster_id, "version": state.c.version + 1}
            if connection.execute(change.values(**values)).rowcount == 0:
                raise self._fenced(connection, writer_epoch)
            count = connection.execute(select(func.count()).select_from(held)).scalar_one()
            if count and not force:
                raise MetadataPresent(f"the database holds {count} topics: nothing was replaced")
            connection.execute(delete(tables.partitions))
            connection.execute(delete(tables.brokers))
            connection.execute(delete(held).where(held.c.id.not_in(ids)))
            for broker in brokers:
                put_broker(connection, broker)
            for topic in topics:
                put_topic(connection, topic)

    def give_up_connections(self) -> None:
        """End every connection to a server that does not answer; whoever waits for it gets DatabaseAway."""
        self._connections.give_up()

    def close(self) -> None:
        """Close the connections."""
        self._connections.close()


def open_store(url: str, *, limits: Limits | None = None, random_bytes: Callable[[int], bytes] = os.urandom) -> Store:
    """Open the metadata at a URL; nothing is connected yet. Raises BadDatabaseUrl."""
    return Store(Connections(url, limits), random_bytes)
