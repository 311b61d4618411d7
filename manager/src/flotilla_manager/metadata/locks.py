"""Locks by name, which many may share and one may have alone, in turn. They end with the transaction.

PostgreSQL's locks of rows can be shared too, but they are not fair: whoever wants a row alone waits for as long as
others keep sharing it, and those who come later do not wait for it. Under a steady stream of commits that is for ever.
Advisory locks have a queue. SQLite needs none of this: who writes there has locked everything at the beginning.

Locks are taken in the order: the row of `state`, then a group, then topics. Names are hashed; two that meet in one lock
wait for each other without need, and no more than that.
"""

from collections.abc import Iterable
from hashlib import blake2b

from sqlalchemy import Connection, text

_TOPIC_LOCKS = 16  # for all topics together: a server has room for some thousand locks only
_ALONE = text("SELECT pg_advisory_xact_lock(:key)")
_SHARED = text("SELECT pg_advisory_xact_lock_shared(:key)")


def lock_group(connection: Connection, name: str, *, shared: bool) -> None:
    """Keep others from changing a group's members and owners, or from committing to it as well."""
    _lock(connection, [_key(f"group {name}")], shared=shared)


def lock_topics(connection: Connection, topic_ids: Iterable[str], *, shared: bool) -> None:
    """Keep others from removing topics, or from committing to them as well."""
    buckets = {_key(topic_id) % _TOPIC_LOCKS for topic_id in topic_ids}
    _lock(connection, sorted(_key(f"topics {bucket}") for bucket in buckets), shared=shared)


def _lock(connection: Connection, keys: Iterable[int], *, shared: bool) -> None:
    if connection.dialect.name == "sqlite":
        return
    for key in keys:
        connection.execute(_SHARED if shared else _ALONE, {"key": key})


def _key(name: str) -> int:
    """Make a lock's number, of 64 bits with a sign."""
    return int.from_bytes(blake2b(f"flotilla {name}".encode(), digest_size=8).digest(), signed=True)
