"""Topology: topics, their partitions with epochs and replicas, and brokers. Only the writer changes it.

Every change raises the version in the transaction that makes it, so a snapshot of the same version is the same.
A topic's state only goes forward. From `deleting` on, its name is free and its clients are gone; when it is
`deleted`, its partitions are gone too, and what stays is a tombstone: what brokers that come late have to be told.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select, update

from flotilla_manager.metadata import tables
from flotilla_manager.metadata.clock import now_ms
from flotilla_manager.metadata.database import Database, state_row
from flotilla_manager.metadata.errors import NotForward, TopicExists, TopicMissing
from flotilla_manager.metadata.leadership import writer_of
from flotilla_manager.metadata.locks import lock_topics
from flotilla_manager.metadata.tokens import read_tokens
from flotilla_manager.model import Broker, Partition, Snapshot, Topic, TopicState

_ORDER = tuple(TopicState)
_ALIVE = (TopicState.CREATING, TopicState.READY)

_topics = tables.topics
_brokers = tables.brokers
_partitions = tables.partitions
_replicas = tables.replicas


class Unchanged:
    """Stands for a value that is to stay, where None is a value."""


UNCHANGED = Unchanged()


class Topology(Database):
    """What only the writer changes and what everybody reads as a snapshot."""

    def version(self) -> int:
        """Tell the version of the topology: cheap, to see whether a new snapshot is due."""
        with self.asking() as connection:
            return int(state_row(connection).version)

    def snapshot(self) -> Snapshot:
        """Read the whole topology as it was at one moment."""
        with self.reading() as connection:
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
        """Begin a topic, in state creating, whatever its state and serial say. Raises TopicExists."""
        with self.deciding(epoch) as connection:
            taken = (_topics.c.name == topic.name) & _topics.c.state.in_(_ALIVE)
            found = connection.execute(select(_topics.c.id).where(taken)).scalar_one_or_none()
            if found is not None:
                raise TopicExists(topic.name, found)
            return insert_topic(connection, replace(topic, state=TopicState.CREATING))

    def set_topic_state(self, epoch: int, topic_id: str, state: TopicState) -> None:
        """Take a topic forward; to set the state that it has changes nothing. Raises TopicMissing, NotForward."""
        with self.deciding(epoch) as connection:
            current = _state_of(connection, topic_id)
            if _ORDER.index(state) < _ORDER.index(current):
                raise NotForward(f"topic {topic_id} is {current}: it does not become {state} again")
            if state not in _ALIVE:
                lock_topics(connection, [topic_id], shared=False)  # from those who commit to it
            connection.execute(update(_topics).where(_topics.c.id == topic_id).values(state=state.value))
            if state not in _ALIVE:
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
        """Change what is given; None takes a limit, a hint or an owner away. Raises TopicMissing."""
        given = {
            "retention_ms": retention_ms,
            "retention_bytes": retention_bytes,
            "owner": owner,
            "batch_bytes_max": batch_bytes_max,
            "compression": compression,
        }
        values = {name: value for name, value in given.items() if not isinstance(value, Unchanged)}
        with self.deciding(epoch) as connection:
            _state_of(connection, topic_id, _ALIVE)
            if values:
                connection.execute(update(_topics).where(_topics.c.id == topic_id).values(**values))

    def add_partitions(self, epoch: int, topic_id: str, partitions: Sequence[Partition]) -> None:
        """Give a topic more partitions. Consumers that are there begin at offset 0 of them. Raises TopicMissing."""
        with self.deciding(epoch) as connection:
            _state_of(connection, topic_id, _ALIVE)
            insert_partitions(connection, topic_id, partitions)

    def put_broker(self, epoch: int, broker: Broker) -> None:
        """Make a broker known, or change what is known of it."""
        with self.deciding(epoch) as connection:
            put_broker(connection, broker)

    def _remove_clients(self, connection: Connection, topic_id: str) -> None:
        # Consumers are locked in the order of their ids, as by everybody, so that nobody waits in a circle.
        mine = tables.consumers.c.topic_id == topic_id
        lock = select(tables.consumers.c.id).where(mine).order_by(tables.consumers.c.id).with_for_update()
        connection.execute(lock).all()
        connection.execute(delete(tables.consumers).where(mine))
        for table in (tables.producers, tables.holdings, tables.commits):
            connection.execute(delete(table).where(table.c.topic_id == topic_id))


def insert_topic(connection: Connection, topic: Topic) -> Topic:
    """Add a topic with its partitions; return it with its serial."""
    values = _topic_values(topic)
    new = insert(_topics).values(id=topic.id, created_ms=now_ms(), **values).returning(_topics.c.serial)
    serial = connection.execute(new).scalar_one()
    insert_partitions(connection, topic.id, topic.partitions)
    return replace(topic, serial=serial)


def put_topic(connection: Connection, topic: Topic) -> None:
    """Insert a topic, or change one that has no partitions; it keeps its serial."""
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
    """Add partitions, each with its current epoch and its members."""
    lives = [{"topic_id": topic_id, "partition": p.index, "epoch": p.epoch} for p in partitions]
    members = [
        {**life, "position": position, "broker_id": member}
        for life, partition in zip(lives, partitions, strict=True)
        for position, member in enumerate(partition.members)
    ]
    for table, rows in ((_partitions, lives), (tables.epochs, lives), (_replicas, members)):
        if rows:
            connection.execute(insert(table), rows)


def put_broker(connection: Connection, broker: Broker) -> None:
    """Insert or update a broker."""
    values = asdict(broker)
    changed = connection.execute(update(_brokers).where(_brokers.c.id == broker.id).values(**values))
    if changed.rowcount == 0:
        connection.execute(insert(_brokers).values(**values))


def _state_of(connection: Connection, topic_id: str, allowed: Iterable[TopicState] = _ORDER) -> TopicState:
    """Tell a topic's state, which nobody else changes while the row of `state` is locked. Raises TopicMissing."""
    found = connection.execute(select(_topics.c.state).where(_topics.c.id == topic_id)).scalar_one_or_none()
    if found is None or found not in allowed:
        raise TopicMissing(topic_id, found)
    return TopicState(found)


def _read_topics(connection: Connection) -> tuple[Topic, ...]:
    by_topic = _read_partitions(connection)
    rows = connection.execute(select(_topics).order_by(_topics.c.serial))
    return tuple(_topic(row, tuple(by_topic[row.id])) for row in rows)


def _read_partitions(connection: Connection) -> defaultdict[str, list[Partition]]:
    """Read the current epoch of every partition, by topic."""
    joined = _partitions.outerjoin(
        _replicas,
        (_replicas.c.topic_id == _partitions.c.topic_id)
        & (_replicas.c.partition == _partitions.c.partition)
        & (_replicas.c.epoch == _partitions.c.epoch),
    )
    question = select(_partitions, _replicas.c.broker_id).select_from(joined)
    ordered = question.order_by(_partitions.c.topic_id, _partitions.c.partition, _replicas.c.position)
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
