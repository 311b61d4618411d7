"""Named locks, shared or exclusive, held until the end of the transaction.

They are PostgreSQL advisory locks, which are granted in the order of requests. Shared row locks are not: new shared
locks overtake a waiting exclusive lock, so a steady stream of commits would starve it. SQLite needs no locks: a write
transaction has locked the whole database at its start.

Locks are taken in this order: the row of `state`, a group, topics. Names are hashed; a collision only causes
unnecessary waits.
"""

from collections.abc import Iterable
from hashlib import blake2b

from sqlalchemy import Connection, text

_TOPIC_LOCKS = 16  # shared by all topics, because the lock table of a server has some thousand entries
_EXCLUSIVE = text("SELECT pg_advisory_xact_lock(:key)")
_SHARED = text("SELECT pg_advisory_xact_lock_shared(:key)")


def lock_group(connection: Connection, name: str, *, shared: bool) -> None:
    """Lock a group: shared against changes of members and owners, exclusive also against commits."""
    _lock(connection, [_key(f"group {name}")], shared=shared)


def lock_topics(connection: Connection, topic_ids: Iterable[str], *, shared: bool) -> None:
    """Lock topics: shared against their deletion, exclusive also against commits."""
    buckets = {_key(topic_id) % _TOPIC_LOCKS for topic_id in topic_ids}
    _lock(connection, sorted(_key(f"topics {bucket}") for bucket in buckets), shared=shared)


def _lock(connection: Connection, keys: Iterable[int], *, shared: bool) -> None:
    if connection.dialect.name == "sqlite":
        return
    for key in keys:
        connection.execute(_SHARED if shared else _EXCLUSIVE, {"key": key})


def _key(name: str) -> int:
    """Hash a name to the key of a lock, a signed 64-bit integer."""
    return int.from_bytes(blake2b(f"flotilla {name}".encode(), digest_size=8).digest(), signed=True)
