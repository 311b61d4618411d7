"""What producers and consumers have in common as rows: looking up, locking, paging, silence."""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, Table, bindparam, select, update

from flotilla_manager.metadata import tables
from flotilla_manager.metadata.clock import now_ms
from flotilla_manager.metadata.errors import IdTaken, TopicMissing
from flotilla_manager.model import TopicState

IDS_MAX = 1_000  # ids in one statement


def require_ready(connection: Connection, topic_id: str) -> None:
    """Refuse a registration with a topic that cannot be used. Raises TopicMissing."""
    topics = tables.topics
    found = connection.execute(select(topics.c.state).where(topics.c.id == topic_id)).scalar_one_or_none()
    if found != TopicState.READY:
        raise TopicMissing(topic_id, found)


def require_same_topic(client_id: str, found: str, wanted: str) -> None:
    """Refuse an id that is in use elsewhere. Raises IdTaken."""
    if found != wanted:
        raise IdTaken(f"id {client_id} is registered with topic {found}, not with {wanted}")


def chunks(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    """Split ids so that a statement does not grow without limit."""
    return (ids[at : at + IDS_MAX] for at in range(0, len(ids), IDS_MAX))


@cache
def locked(table: Table, *columns: ColumnElement[Any]) -> Select[Any]:
    """Select the rows of `ids` and lock them, in the order of their ids, so that nobody waits in a circle.

    SQLite knows no such locks and needs none: who writes there has locked everything at the beginning.
    """
    rows = select(table.c.id, *columns).where(table.c.id.in_(bindparam("ids", expanding=True))).order_by(table.c.id)
    return rows.with_for_update(key_share=True)


def touch(connection: Connection, table: Table, ids: Sequence[str]) -> None:
    """Note that clients have been heard of."""
    for some in chunks(sorted(set(ids))):
        connection.execute(locked(table), {"ids": some}).all()
        connection.execute(update(table).where(table.c.id.in_(some)).values(seen_ms=now_ms()))


def silent_ms(table: Table) -> ColumnElement[int]:
    """Tell for how long a row has not been touched, by the database's clock."""
    return (now_ms() - table.c.seen_ms).label("silent_ms")


def page(question: Select[Any], key: ColumnElement[str], after: str, limit: int) -> Select[Any]:
    """Take the next rows behind a key."""
    return question.where(key > after).order_by(key).limit(limit)
