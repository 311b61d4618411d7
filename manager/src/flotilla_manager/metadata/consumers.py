"""Registrations of consumers, and where they are.

Only the writer registers them. Any manager moves them on, without the writer: a step names the version that it starts
from, and is made only if that is still the current one. So each version is left exactly once, whoever tries.
A partition that was added after a consumer's registration has no position yet; it begins at 0.
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
    """Who consumes what, and has come how far."""

    def register_consumer(
        self, epoch: int, consumer_id: str, topic_id: str, partition: int | None, positions: Sequence[int]
    ) -> Consumer:
        """Register a consumer that begins at these positions; to do so again changes nothing.

        Raises TopicMissing, IdTaken.
        """
        values = {"id": consumer_id, "topic_id": topic_id, "partition": partition, "version": 0, "cursor": 0}
        missing = insert_missing(self._dialect, _consumers, "id").values(**values, seen_ms=now_ms())
        begins = [{"consumer_id": consumer_id, "partition": p, "next_offset": at} for p, at in enumerate(positions)]
        with self.registering(epoch) as connection:
            rows.require_ready(connection, topic_id)
            if connection.execute(missing).rowcount and begins:
                connection.execute(insert(_positions), begins)
            (found,) = _read(connection, _BY_IDS, {"ids": [consumer_id]})
            rows.require_same_topic(consumer_id, found.topic_id, topic_id)
            return found

    def find_consumer(self, consumer_id: str) -> Consumer | None:
        """Look a consumer up, with its positions."""
        return self.find_consumers([consumer_id]).get(consumer_id)

    def find_consumers(self, consumer_ids: Sequence[str]) -> dict[str, Consumer]:
        """Look many consumers up, each with its positions; those that are not there are left out."""
        found: list[Consumer] = []
        with self.asking() as connection:
            for some in rows.chunks(consumer_ids):
                found += _read(connection, _BY_IDS, {"ids": some})
        return {consumer.id: consumer for consumer in found}

    def touch_consumers(self, ids: Sequence[str]) -> None:
        """Note that consumers have been heard of. Unknown ids are ignored."""
        with self.writing() as connection:
            rows.touch(connection, _consumers, ids)

    def list_consumers(self, after: str, limit: int, silence_s: float) -> list[Consumer]:
        """List consumers in the order of their ids, from the one behind `after` on."""
        some = rows.page(select(_consumers.c.id), _consumers.c.id, after, limit)
        question = _question(_consumers.c.id.in_(some))
        with self.asking() as connection:
            return _read(connection, question, {}, silence_s)

    def advance(self, steps: Sequence[Advance]) -> list[bool]:
        """Make the steps that start from a consumer's current version; tell of each whether it was made.

        All are one transaction. Raises OutcomeUnknown if it cannot be told whether they were made.
        """
        ids = sorted({step.consumer_id for step in steps})
        versions: dict[str, int] = {}
        with self.writing() as connection:
            for some in rows.chunks(ids):
                found = connection.execute(rows.locked(_consumers, _consumers.c.version), {"ids": some})
                versions.update((row.id, row.version) for row in found)
            made = choose(versions, steps)
            self._write(connection, [step for step, is_made in zip(steps, made, strict=True) if is_made])
        return made

    def _write(self, connection: Connection, steps: Sequence[Advance]) -> None:
        """Write the steps, of which the last counts where a consumer makes several."""
        if not steps:
            return
        last = {step.consumer_id: step for step in steps}
        places = {(step.consumer_id, step.partition): step.position for step in steps}
        connection.execute(
            _MOVE, [{"key": s.consumer_id, "to_version": s.version + 1, "to_cursor": s.cursor} for s in last.values()]
        )
        connection.execute(
            upsert(self._dialect, _positions, "consumer_id", "partition"),
            [{"consumer_id": c, "partition": p, "next_offset": at} for (c, p), at in places.items()],
        )


_MOVE = (
    update(_consumers)
    .where(_consumers.c.id == bindparam("key"))
    .values(version=bindparam("to_version"), cursor=bindparam("to_cursor"), seen_ms=now_ms())
)


def choose(versions: Mapping[str, int], steps: Sequence[Advance]) -> list[bool]:
    """Tell which steps start from the version that their consumer has by then, one after the other."""
    current = dict(versions)
    made = []
    for step in steps:
        made.append(current.get(step.consumer_id) == step.version)
        if made[-1]:
            current[step.consumer_id] = step.version + 1
    return made


def _read(
    connection: Connection, question: Select[Any], values: dict[str, Any], silence_s: float = math.inf
) -> list[Consumer]:
    found = connection.execute(question, values)
    by_consumer = groupby(found, key=lambda row: row.id)
    return [_consumer(list(of_one), silence_s) for _, of_one in by_consumer]


def _question(which: ColumnElement[bool]) -> Select[Any]:
    """Ask for consumers, with one row for each partition of their topic."""
    joined = _consumers.outerjoin(_partitions, _partitions.c.topic_id == _consumers.c.topic_id).outerjoin(
        _positions,
        (_positions.c.consumer_id == _consumers.c.id) & (_positions.c.partition == _partitions.c.partition),
    )
    offset = func.coalesce(_positions.c.next_offset, 0).label("next_offset")
    question = select(_consumers, rows.silent_ms(_consumers), _partitions.c.partition.label("at"), offset)
    return question.select_from(joined).where(which).order_by(_consumers.c.id, _partitions.c.partition)


_BY_IDS = _question(_consumers.c.id.in_(bindparam("ids", expanding=True)))


def _consumer(of_one: Sequence[Row[Any]], silence_s: float) -> Consumer:
    row = of_one[0]
    return Consumer(
        id=row.id,
        topic_id=row.topic_id,
        partition=row.partition,
        version=row.version,
        cursor=row.cursor,
        positions=tuple(each.next_offset for each in of_one if each.at is not None),
        active=row.silent_ms <= silence_s * 1000,
        seen_ms=row.seen_ms,
    )
