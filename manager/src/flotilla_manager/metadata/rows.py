"""Queries shared by producers and consumers: checks, row locks, paging, and last-seen times."""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, Table, bindparam, select, update

from flotilla_manager.metadata import tables
from flotilla_manager.metadata.clock import now_ms
from flotilla_manager.metadata.errors import IdTaken, TopicMissing
from flotilla_manager.model import TopicState

IDS_MAX = 1_000  # ids per statement


def require_ready(connection: Connection, topic_id: str) -> None:
    """Require that a topic is ready. Raises TopicMissing."""
    topics = tables.topics
    found = connection.execute(select(topics.c.state).where(topics.c.id == topic_id)).scalar_one_or_none()
    if found != TopicState.READY:
        raise TopicMissing(topic_id, found)


def require_same_topic(client_id: str, found: str, requested: str) -> None:
    """Require that an id is not registered with another topic. Raises IdTaken."""
    if found != requested:
        raise IdTaken(f"id {client_id} is registered with topic {found}, not {requested}")


def chunks(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    """Split ids, to limit the size of statements."""
    return (ids[at : at + IDS_MAX] for at in range(0, len(ids), IDS_MAX))


@cache
def locked(table: Table, *columns: ColumnElement[Any]) -> Select[Any]:
    """Select the rows of `ids` FOR UPDATE, in the order of their ids, to avoid deadlocks.

    SQLite ignores row locks and needs none: a write transaction has locked the whole database at its start.
    """
    rows = select(table.c.id, *columns).where(table.c.id.in_(bindparam("ids", expanding=True))).order_by(table.c.id)
    return rows.with_for_update(key_share=True)


def touch(connection: Connection, table: Table, ids: Sequence[str]) -> None:
    """Set the last-seen time of clients to now."""
    for some in chunks(sorted(set(ids))):
        connection.execute(locked(table), {"ids": some}).all()
        connection.execute(update(table).where(table.c.id.in_(some)).values(seen_ms=now_ms()))


def idle_ms(table: Table) -> ColumnElement[int]:
    """Return the time since a client was last seen, by the database's clock."""
    return (now_ms() - table.c.seen_ms).label("idle_ms")


def page(query: Select[Any], key: ColumnElement[str], after: str, limit: int) -> Select[Any]:
    """Limit a query to the next rows after a key."""
    return query.where(key > after).order_by(key).limit(limit)
