"""Registered consumers of the simple API, and their positions.

Only the writer registers consumers. Any manager advances them, without the writer, by compare-and-set: a step contains
the expected version, and is applied only if that is the current version. So each version is advanced exactly once,
even if several managers try.
A partition that was added after the registration has no row in `positions`; its position is 0.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, bindparam, func, insert, select, update

from flotilla_manager.metadata import rows, tables
from flotilla_manager.metadata.clock import now_ms
from flotilla_manager.metadata.database import Database
from flotilla_manager.metadata.upsert import insert_missing, upsert
from flotilla_manager.model import Advance, Consumer

_consumers = tables.consumers
_positions = tables.positions
_partitions = tables.partitions


class Consumers(Database):
    """Consumers and their positions."""

    def register_consumer(
        self, epoch: int, consumer_id: str, topic_id: str, partition: int | None, positions: Sequence[int]
    ) -> Consumer:
        """Register a consumer with its start positions. Idempotent: a registered consumer keeps its positions.

        Raises TopicMissing, IdTaken.
        """
        values = {"id": consumer_id, "topic_id": topic_id, "partition": partition, "version": 0, "cursor": 0}
        missing = insert_missing(self._dialect, _consumers, "id").values(**values, seen_ms=now_ms())
        starts = [{"consumer_id": consumer_id, "partition": p, "next_offset": at} for p, at in enumerate(positions)]
        with self.writer_transaction(epoch) as connection:
            rows.require_ready(connection, topic_id)
            if connection.execute(missing).rowcount and starts:
                connection.execute(insert(_positions), starts)
            (found,) = _read(connection, _BY_IDS, {"ids": [consumer_id]})
            rows.require_same_topic(consumer_id, found.topic_id, topic_id)
            return found

    def find_consumer(self, consumer_id: str) -> Consumer | None:
        """Return a consumer with its positions; None if it is not registered."""
        return self.find_consumers([consumer_id]).get(consumer_id)

    def find_consumers(self, consumer_ids: Sequence[str]) -> dict[str, Consumer]:
        """Return consumers with their positions, by id. Unknown ids are left out."""
        found: list[Consumer] = []
        with self.read_statement() as connection:
            for some in rows.chunks(consumer_ids):
                found += _read(connection, _BY_IDS, {"ids": some})
        return {consumer.id: consumer for consumer in found}

    def touch_consumers(self, ids: Sequence[str]) -> None:
        """Set the last-seen time of consumers to now. Unknown ids are ignored."""
        with self.write_transaction() as connection:
            rows.touch(connection, _consumers, ids)

    def list_consumers(self, after: str, limit: int, timeout_s: float) -> list[Consumer]:
        """List consumers by id, after the id `after`. A consumer is active if it was seen in the last `timeout_s`."""
        ids = rows.page(select(_consumers.c.id), _consumers.c.id, after, limit)
        query = _query(_consumers.c.id.in_(ids))
        with self.read_statement() as connection:
            return _read(connection, query, {}, timeout_s)

    def advance(self, steps: Sequence[Advance]) -> list[bool]:
        """Apply the steps whose version is current, in one transaction; return for each whether it was applied.

        Raises OutcomeUnknown if the commit may or may not have succeeded.
        """
        ids = sorted({step.consumer_id for step in steps})
        versions: dict[str, int] = {}
        with self.write_transaction() as connection:
            for some in rows.chunks(ids):
                found = connection.execute(rows.locked(_consumers, _consumers.c.version), {"ids": some})
                versions.update((row.id, row.version) for row in found)
            applied = match_versions(versions, steps)
            self._write(connection, [step for step, is_applied in zip(steps, applied, strict=True) if is_applied])
        return applied

    def _write(self, connection: Connection, steps: Sequence[Advance]) -> None:
        """Write the steps. If a consumer has several, the last one is written."""
        if not steps:
            return
        last = {step.consumer_id: step for step in steps}
        positions = {(step.consumer_id, step.partition): step.position for step in steps}
        connection.execute(
            _ADVANCE,
            [{"key": s.consumer_id, "to_version": s.version + 1, "to_cursor": s.cursor} for s in last.values()],
        )
        connection.execute(
            upsert(self._dialect, _positions, "consumer_id", "partition"),
            [{"consumer_id": c, "partition": p, "next_offset": at} for (c, p), at in positions.items()],
        )


_ADVANCE = (
    update(_consumers)
    .where(_consumers.c.id == bindparam("key"))
    .values(version=bindparam("to_version"), cursor=bindparam("to_cursor"), seen_ms=now_ms())
)


def match_versions(versions: Mapping[str, int], steps: Sequence[Advance]) -> list[bool]:
    """Return for each step whether its version is current, after the steps before it are applied."""
    current = dict(versions)
    applied = []
    for step in steps:
        applied.append(current.get(step.consumer_id) == step.version)
        if applied[-1]:
            current[step.consumer_id] = step.version + 1
    return applied


def _read(
    connection: Connection, query: Select[Any], values: dict[str, Any], timeout_s: float = math.inf
) -> list[Consumer]:
    found = connection.execute(query, values)
    by_consumer = groupby(found, key=lambda row: row.id)
    return [_consumer(list(consumer_rows), timeout_s) for _, consumer_rows in by_consumer]


def _query(condition: ColumnElement[bool]) -> Select[Any]:
    """Select consumers, with one row for each partition of their topic."""
    joined = _consumers.outerjoin(_partitions, _partitions.c.topic_id == _consumers.c.topic_id).outerjoin(
        _positions,
        (_positions.c.consumer_id == _consumers.c.id) & (_positions.c.partition == _partitions.c.partition),
    )
    offset = func.coalesce(_positions.c.next_offset, 0).label("next_offset")
    query = select(_consumers, rows.idle_ms(_consumers), _partitions.c.partition.label("at"), offset)
    return query.select_from(joined).where(condition).order_by(_consumers.c.id, _partitions.c.partition)


_BY_IDS = _query(_consumers.c.id.in_(bindparam("ids", expanding=True)))


def _consumer(consumer_rows: Sequence[Row[Any]], timeout_s: float) -> Consumer:
    row = consumer_rows[0]
    return Consumer(
        id=row.id,
        topic_id=row.topic_id,
        partition=row.partition,
        version=row.version,
        cursor=row.cursor,
        positions=tuple(each.next_offset for each in consumer_rows if each.at is not None),
        active=row.idle_ms <= timeout_s * 1000,
        seen_ms=row.seen_ms,
    )
