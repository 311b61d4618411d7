"""Registered producers of the simple API. Only the writer registers them; any manager updates last-seen times."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, bindparam, select

from flotilla_manager.metadata import rows, tables
from flotilla_manager.metadata.clock import now_ms
from flotilla_manager.metadata.database import Database
from flotilla_manager.metadata.upsert import insert_missing
from flotilla_manager.model import Producer

_producers = tables.producers
_BY_ID = select(_producers).where(_producers.c.id == bindparam("id"))


class Producers(Database):
    """Producers and their topics."""

    def register_producer(self, epoch: int, producer_id: str, topic_id: str) -> Producer:
        """Register a producer. Idempotent. Raises TopicMissing, IdTaken."""
        values = {"id": producer_id, "topic_id": topic_id, "seen_ms": now_ms()}
        with self.writer_transaction(epoch) as connection:
            rows.require_ready(connection, topic_id)
            connection.execute(insert_missing(self._dialect, _producers, "id").values(**values))
            row = connection.execute(_BY_ID, {"id": producer_id}).one()
            rows.require_same_topic(producer_id, row.topic_id, topic_id)
            return _producer(row)

    def find_producer(self, producer_id: str) -> Producer | None:
        """Return a producer; None if it is not registered."""
        with self.read_statement() as connection:
            row = connection.execute(_BY_ID, {"id": producer_id}).one_or_none()
            return None if row is None else _producer(row)

    def list_new_producers(self, after_serial: int, limit: int) -> list[tuple[int, Producer]]:
        """List registrations after a serial, oldest first, so that caches can follow them."""
        later = select(_producers).where(_producers.c.serial > after_serial)
        with self.read_statement() as connection:
            found = connection.execute(later.order_by(_producers.c.serial).limit(limit))
            return [(row.serial, _producer(row)) for row in found]

    def touch_producers(self, ids: Sequence[str]) -> None:
        """Set the last-seen time of producers to now. Unknown ids are ignored."""
        with self.write_transaction() as connection:
            rows.touch(connection, _producers, ids)

    def list_producers(self, after: str, limit: int, timeout_s: float) -> list[Producer]:
        """List producers by id, after the id `after`. A producer is active if it was seen in the last `timeout_s`."""
        query = select(_producers, rows.idle_ms(_producers))
        with self.read_statement() as connection:
            found = connection.execute(rows.page(query, _producers.c.id, after, limit))
            return [_producer(row, active=row.idle_ms <= timeout_s * 1000) for row in found]


def _producer(row: Row[Any], *, active: bool = True) -> Producer:
    return Producer(id=row.id, topic_id=row.topic_id, active=active, seen_ms=row.seen_ms)
