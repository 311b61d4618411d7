"""Registrations of producers. Only the writer makes them; any manager reads and touches them."""

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
    """Who may produce to which topic."""

    def register_producer(self, epoch: int, producer_id: str, topic_id: str) -> Producer:
        """Register a producer; to do so again changes nothing. Raises TopicMissing, IdTaken."""
        values = {"id": producer_id, "topic_id": topic_id, "seen_ms": now_ms()}
        with self.registering(epoch) as connection:
            rows.require_ready(connection, topic_id)
            connection.execute(insert_missing(self._dialect, _producers, "id").values(**values))
            row = connection.execute(_BY_ID, {"id": producer_id}).one()
            rows.require_same_topic(producer_id, row.topic_id, topic_id)
            return _producer(row)

    def find_producer(self, producer_id: str) -> Producer | None:
        """Look a producer up."""
        with self.asking() as connection:
            row = connection.execute(_BY_ID, {"id": producer_id}).one_or_none()
            return None if row is None else _producer(row)

    def newest_producers(self, after_serial: int, limit: int) -> list[tuple[int, Producer]]:
        """List registrations that came after a serial, oldest first, so that caches can follow them."""
        later = select(_producers).where(_producers.c.serial > after_serial)
        with self.asking() as connection:
            found = connection.execute(later.order_by(_producers.c.serial).limit(limit))
            return [(row.serial, _producer(row)) for row in found]

    def touch_producers(self, ids: Sequence[str]) -> None:
        """Note that producers have been heard of. Unknown ids are ignored."""
        with self.writing() as connection:
            rows.touch(connection, _producers, ids)

    def list_producers(self, after: str, limit: int, silence_s: float) -> list[Producer]:
        """List producers in the order of their ids, from the one behind `after` on."""
        question = select(_producers, rows.silent_ms(_producers))
        with self.asking() as connection:
            found = connection.execute(rows.page(question, _producers.c.id, after, limit))
            return [_producer(row, active=row.silent_ms <= silence_s * 1000) for row in found]


def _producer(row: Row[Any], *, active: bool = True) -> Producer:
    return Producer(id=row.id, topic_id=row.topic_id, active=active, seen_ms=row.seen_ms)
