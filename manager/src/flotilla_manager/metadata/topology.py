"""Topology: topics, their partitions with epochs and replicas, and brokers. Only the writer changes it.

Every change increments the version in its transaction, so snapshots of one version are equal.
The state of a topic never goes back. From `deleting` on, its name is free and its clients are deleted. In `deleted`,
its partitions are deleted too, and the row is a tombstone: brokers that return later must close their replicas.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select, update

from flotilla_manager.metadata import tables
from flotilla_manager.metadata.clock import now_ms
from flotilla_manager.metadata.database import Database, state_row
from flotilla_manager.metadata.errors import InvalidStateTransition, TopicExists, TopicMissing
from flotilla_manager.metadata.locks import lock_topics
from flotilla_manager.metadata.managers import writer_of
from flotilla_manager.metadata.tokens import read_tokens
from flotilla_manager.model import LIVE_STATES, Broker, Partition, Snapshot, Topic, TopicState

_ORDER = tuple(TopicState)

_topics = tables.topics
_brokers = tables.brokers
_partitions = tables.partitions
_replicas = tables.replicas


class Unchanged:
    """Default of parameters where None is a value: keep the current value."""


UNCHANGED = Unchanged()


class Topology(Database):
    """Topics, partitions and brokers: changes by the writer, and snapshots for all managers."""

    def version(self) -> int:
        """Return the version of the topology, a cheap check for changes."""
        with self.read_statement() as connection:
            return int(state_row(connection).version)

    def snapshot(self) -> Snapshot:
        """Load the whole topology in one transaction."""
        with self.read_transaction() as connection:
            row = state_row(connection)
            brokers = connection.execute(select(_brokers).order_by(_brokers.c.serial))
            return Snapshot(
                version=row.version,
                cluster_id=row.cluster_id,
                writer=writer_of(row),
                topics=_read_topics(connection),
                brokers=tuple(_broker(found) for found in brokers),
                tokens=read_tokens(connection),
            )

    def create_topic(self, epoch: int, topic: Topic) -> Topic:
        """Insert a topic in state `creating`; its own state and serial are ignored. Raises TopicExists."""
        with self.topology_transaction(epoch) as connection:
            taken = (_topics.c.name == topic.name) & _topics.c.state.in_(LIVE_STATES)
            found = connection.execute(select(_topics.c.id).where(taken)).scalar_one_or_none()
            if found is not None:
                raise TopicExists(topic.name, found)
            return insert_topic(connection, replace(topic, state=TopicState.CREATING))

    def set_topic_state(self, epoch: int, topic_id: str, state: TopicState) -> None:
        """Set the state of a topic. Idempotent. Raises TopicMissing, InvalidStateTransition."""
        with self.topology_transaction(epoch) as connection:
            current = _state_of(connection, topic_id)
            if _ORDER.index(state) < _ORDER.index(current):
                raise InvalidStateTransition(f"topic {topic_id} is {current}; it cannot become {state}")
            if state not in LIVE_STATES:
                lock_topics(connection, [topic_id], shared=False)  # excludes commits
            connection.execute(update(_topics).where(_topics.c.id == topic_id).values(state=state.value))
            if state not in LIVE_STATES:
                self._remove_clients(connection, topic_id)
            if state == TopicState.DELETED:
                connection.execute(delete(_partitions).where(_partitions.c.topic_id == topic_id))

    def configure_topic(
        self,
        epoch: int,
        topic_id: str,
        *,
        retention_ms: int | Unchanged | None = UNCHANGED,
        retention_bytes: int | Unchanged | None = UNCHANGED,
        owner: str | Unchanged | None = UNCHANGED,
        batch_bytes_max: int | Unchanged | None = UNCHANGED,
        compression: str | Unchanged | None = UNCHANGED,
    ) -> None:
        """Change the given settings; None removes a limit, a hint or the owner. Raises TopicMissing."""
        given = {
            "retention_ms": retention_ms,
            "retention_bytes": retention_bytes,
            "owner": owner,
            "batch_bytes_max": batch_bytes_max,
            "compression": compression,
        }
        values = {name: value for name, value in given.items() if not isinstance(value, Unchanged)}
        with self.topology_transaction(epoch) as connection:
            _state_of(connection, topic_id, LIVE_STATES)
            if values:
                connection.execute(update(_topics).where(_topics.c.id == topic_id).values(**values))

    def add_partitions(self, epoch: int, topic_id: str, partitions: Sequence[Partition]) -> None:
        """Add partitions to a topic. Registered consumers start at offset 0 of them. Raises TopicMissing."""
        with self.topology_transaction(epoch) as connection:
            _state_of(connection, topic_id, LIVE_STATES)
            insert_partitions(connection, topic_id, partitions)

    def put_broker(self, epoch: int, broker: Broker) -> None:
        """Insert or update a broker, as the writer."""
        with self.topology_transaction(epoch) as connection:
            put_broker(connection, broker)

    def _remove_clients(self, connection: Connection, topic_id: str) -> None:
        # Consumers are always locked in the order of their ids, to avoid deadlocks.
        of_topic = tables.consumers.c.topic_id == topic_id
        lock = select(tables.consumers.c.id).where(of_topic).order_by(tables.consumers.c.id).with_for_update()
        connection.execute(lock).all()
        connection.execute(delete(tables.consumers).where(of_topic))
        for table in (tables.producers, tables.holdings, tables.commits):
            connection.execute(delete(table).where(table.c.topic_id == topic_id))


def insert_topic(connection: Connection, topic: Topic) -> Topic:
    """Insert a topic with its partitions; return it with its serial."""
    values = _topic_values(topic)
    new = insert(_topics).values(id=topic.id, created_ms=now_ms(), **values).returning(_topics.c.serial)
    serial = connection.execute(new).scalar_one()
    insert_partitions(connection, topic.id, topic.partitions)
    return replace(topic, serial=serial)


def put_topic(connection: Connection, topic: Topic) -> None:
    """Insert a topic, or update one without partitions, which keeps its serial."""
    changed = connection.execute(update(_topics).where(_topics.c.id == topic.id).values(**_topic_values(topic)))
    if changed.rowcount:
        insert_partitions(connection, topic.id, topic.partitions)
    else:
        insert_topic(connection, topic)


def _topic_values(topic: Topic) -> dict[str, Any]:
    return {
        "name": topic.name,
        "state": topic.state.value,
        "retention_ms": topic.retention_ms,
        "retention_bytes": topic.retention_bytes,
        "owner": topic.owner,
        "batch_bytes_max": topic.batch_bytes_max,
        "compression": topic.compression,
    }


def insert_partitions(connection: Connection, topic_id: str, partitions: Sequence[Partition]) -> None:
    """Insert partitions with their current epochs and members."""
    epochs = [{"topic_id": topic_id, "partition": p.index, "epoch": p.epoch} for p in partitions]
    members = [
        {**epoch, "position": position, "broker_id": member}
        for epoch, partition in zip(epochs, partitions, strict=True)
        for position, member in enumerate(partition.members)
    ]
    for table, rows in ((_partitions, epochs), (tables.epochs, epochs), (_replicas, members)):
        if rows:
            connection.execute(insert(table), rows)


def put_broker(connection: Connection, broker: Broker) -> None:
    """Insert or update a broker."""
    values = asdict(broker)
    changed = connection.execute(update(_brokers).where(_brokers.c.id == broker.id).values(**values))
    if changed.rowcount == 0:
        connection.execute(insert(_brokers).values(**values))


def _state_of(connection: Connection, topic_id: str, allowed: Iterable[TopicState] = _ORDER) -> TopicState:
    """Return the state of a topic, which is stable while the row of `state` is locked. Raises TopicMissing."""
    found = connection.execute(select(_topics.c.state).where(_topics.c.id == topic_id)).scalar_one_or_none()
    if found is None or found not in allowed:
        raise TopicMissing(topic_id, found)
    return TopicState(found)


def _read_topics(connection: Connection) -> tuple[Topic, ...]:
    by_topic = _read_partitions(connection)
    rows = connection.execute(select(_topics).order_by(_topics.c.serial))
    return tuple(_topic(row, tuple(by_topic[row.id])) for row in rows)


def _read_partitions(connection: Connection) -> defaultdict[str, list[Partition]]:
    """Load the partitions of all topics in their current epochs."""
    joined = _partitions.outerjoin(
        _replicas,
        (_replicas.c.topic_id == _partitions.c.topic_id)
        & (_replicas.c.partition == _partitions.c.partition)
        & (_replicas.c.epoch == _partitions.c.epoch),
    )
    query = select(_partitions, _replicas.c.broker_id).select_from(joined)
    ordered = query.order_by(_partitions.c.topic_id, _partitions.c.partition, _replicas.c.position)
    members: dict[tuple[str, int, int], list[str]] = {}
    for row in connection.execute(ordered):
        listed = members.setdefault((row.topic_id, row.partition, row.epoch), [])
        if row.broker_id is not None:
            listed.append(row.broker_id)
    found: defaultdict[str, list[Partition]] = defaultdict(list)
    for (topic_id, index, epoch), listed in members.items():
        found[topic_id].append(Partition(index=index, epoch=epoch, members=tuple(listed)))
    return found


def _topic(row: Row[Any], partitions: tuple[Partition, ...]) -> Topic:
    return Topic(
        id=row.id,
        name=row.name,
        state=TopicState(row.state),
        serial=row.serial,
        partitions=partitions,
        retention_ms=row.retention_ms,
        retention_bytes=row.retention_bytes,
        owner=row.owner,
        batch_bytes_max=row.batch_bytes_max,
        compression=row.compression,
    )


def _broker(row: Row[Any]) -> Broker:
    values = row._asdict()
    del values["serial"]
    return Broker(**values)
