"""Writer epoch, and heartbeats of managers.

The writer epoch never decreases. Every transaction of the writer checks it, so a writer that was replaced while it was
paused changes nothing. The writer increments a heartbeat counter. Standbys detect a dead writer when the counter does
not change for some time on their own clocks.
"""

from typing import Any

from sqlalchemy import Row, case, delete, select, update

from flotilla_manager.metadata import tables
from flotilla_manager.metadata.clock import now_ms
from flotilla_manager.metadata.database import Database, state_row
from flotilla_manager.metadata.upsert import upsert
from flotilla_manager.model import ManagerInfo, Writer

MANAGER_EXPIRY_MS = 3_600_000  # managers without a heartbeat are deleted after this time

_state = tables.state
_managers = tables.managers


def writer_of(row: Row[Any]) -> Writer:
    """Return the writer from the row of `state`."""
    return Writer(row.writer_epoch, row.writer_url, row.writer_beat)


class Managers(Database):
    """Epoch and heartbeat of the writer, and heartbeats of managers."""

    def writer(self) -> Writer:
        """Return the current writer. Epoch 0: there was none yet."""
        with self.read_statement() as connection:
            return writer_of(state_row(connection))

    def take_over(self, url: str, at_least: int = 0) -> int:
        """Become the writer; return the new epoch, which is above all earlier epochs and at least `at_least`."""
        next_epoch = _state.c.writer_epoch + 1
        change = update(_state).values(
            writer_epoch=case((next_epoch < at_least, at_least), else_=next_epoch),
            writer_url=url,
            writer_beat=_state.c.writer_beat + 1,
            version=_state.c.version + 1,
        )
        with self.write_transaction() as connection:
            state_row(connection)  # raises SchemaMissing if there is none
            return int(connection.execute(change.returning(_state.c.writer_epoch)).scalar_one())

    def heartbeat(self, epoch: int) -> None:
        """Record a heartbeat of the writer. Raises Fenced."""
        mine = _state.c.writer_epoch == epoch
        with self.write_transaction() as connection:
            updated = connection.execute(update(_state).where(mine).values(writer_beat=_state.c.writer_beat + 1))
            if updated.rowcount == 0:
                raise self._fenced(connection, epoch)

    def manager_heartbeat(self, name: str, role: str, url: str) -> None:
        """Record a heartbeat of a manager, and delete expired managers."""
        values = {"name": name, "role": role, "url": url, "seen_ms": now_ms()}
        with self.write_transaction() as connection:
            connection.execute(upsert(self._dialect, _managers, "name").values(**values))
            connection.execute(delete(_managers).where(_managers.c.seen_ms < now_ms() - MANAGER_EXPIRY_MS))

    def list_managers(self, timeout_s: float) -> list[ManagerInfo]:
        """List managers by name. A manager is active if its last heartbeat is at most `timeout_s` old."""
        idle_ms = (now_ms() - _managers.c.seen_ms).label("idle_ms")
        query = select(_managers, idle_ms).where(idle_ms <= MANAGER_EXPIRY_MS).order_by(_managers.c.name)
        with self.read_statement() as connection:
            return [
                ManagerInfo(
                    name=row.name,
                    role=row.role,
                    url=row.url,
                    active=row.idle_ms <= timeout_s * 1000,
                    seen_ms=row.seen_ms,
                )
                for row in connection.execute(query)
            ]
