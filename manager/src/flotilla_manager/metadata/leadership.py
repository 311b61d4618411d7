"""Who is the writer, and which managers there are.

The writer's epoch only ever rises. It is checked by whoever changes topology, in the transaction that changes it, so
a writer that was replaced while it slept changes nothing. Whether a writer lives is told by its beat, which others
compare over time by their own clocks.
"""

from typing import Any

from sqlalchemy import Row, case, delete, select, update

from flotilla_manager.metadata import tables
from flotilla_manager.metadata.clock import now_ms
from flotilla_manager.metadata.database import Database, state_row
from flotilla_manager.metadata.upsert import upsert
from flotilla_manager.model import ManagerInfo, Writer

FORGOTTEN_AFTER_MS = 3_600_000  # managers that were silent for so long are dropped from the list

_state = tables.state
_managers = tables.managers


def writer_of(row: Row[Any]) -> Writer:
    """Make the writer out of the row of `state`."""
    return Writer(row.writer_epoch, row.writer_url, row.writer_beat)


class Leadership(Database):
    """The writer's epoch and beat, and the managers' beats."""

    def writer(self) -> Writer:
        """Tell who is the writer; epoch 0 means that there never was one."""
        with self.asking() as connection:
            return writer_of(state_row(connection))

    def take_over(self, url: str, at_least: int = 0) -> int:
        """Become the writer; return the new epoch, which is above all earlier ones and at least `at_least`."""
        following = _state.c.writer_epoch + 1
        change = update(_state).values(
            writer_epoch=case((following < at_least, at_least), else_=following),
            writer_url=url,
            writer_beat=_state.c.writer_beat + 1,
            version=_state.c.version + 1,
        )
        with self.writing() as connection:
            state_row(connection)  # raises if there is none
            return int(connection.execute(change.returning(_state.c.writer_epoch)).scalar_one())

    def beat(self, epoch: int) -> None:
        """Show that the writer lives. Raises Fenced."""
        mine = _state.c.writer_epoch == epoch
        with self.writing() as connection:
            beaten = connection.execute(update(_state).where(mine).values(writer_beat=_state.c.writer_beat + 1))
            if beaten.rowcount == 0:
                raise self._fenced(connection, epoch)

    def beat_manager(self, name: str, role: str, url: str) -> None:
        """Show that a manager lives, and forget those that have long been silent."""
        values = {"name": name, "role": role, "url": url, "seen_ms": now_ms()}
        with self.writing() as connection:
            connection.execute(upsert(self._dialect, _managers, "name").values(**values))
            connection.execute(delete(_managers).where(_managers.c.seen_ms < now_ms() - FORGOTTEN_AFTER_MS))

    def managers(self, silence_s: float) -> list[ManagerInfo]:
        """List the managers by name; those that were silent for longer than `silence_s` are not active."""
        silent_ms = (now_ms() - _managers.c.seen_ms).label("silent_ms")
        question = select(_managers, silent_ms).where(silent_ms <= FORGOTTEN_AFTER_MS).order_by(_managers.c.name)
        with self.asking() as connection:
            return [
                ManagerInfo(
                    name=row.name,
                    role=row.role,
                    url=row.url,
                    active=row.silent_ms <= silence_s * 1000,
                    seen_ms=row.seen_ms,
                )
                for row in connection.execute(question)
            ]
