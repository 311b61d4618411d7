"""Last starts of brokers, which prove that a data folder is an older copy. Only the writer changes them.

They are no part of the topology: readers do not need them, and they change every second.
"""

from collections.abc import Mapping

from sqlalchemy import select

from flotilla_manager.metadata import tables
from flotilla_manager.metadata.database import Database
from flotilla_manager.metadata.upsert import upsert
from flotilla_server.broker_starts import Start

_starts = tables.broker_starts


class BrokerStarts(Database):
    """The last known start of each broker."""

    def broker_starts(self) -> dict[str, Start]:
        """Return the starts by broker id."""
        with self.read_statement() as connection:
            return {
                row.broker_id: Start(row.number, bytes.fromhex(row.token), row.lsn)
                for row in connection.execute(select(_starts))
            }

    def put_broker_starts(self, epoch: int, starts: Mapping[str, Start]) -> None:
        """Insert or update starts, as the writer. Raises Fenced."""
        with self.writer_transaction(epoch) as connection:
            rows = [
                {"broker_id": id_, "number": start.number, "token": start.token.hex(), "lsn": start.lsn}
                for id_, start in sorted(starts.items())
            ]
            connection.execute(upsert(self._dialect, _starts, "broker_id"), rows)
