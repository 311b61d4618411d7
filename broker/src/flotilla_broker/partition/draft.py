"""An entry in the making: how several batches become one entry."""

from typing import NamedTuple

from flotilla.records import BatchHeader, Buffer, assign
from flotilla_broker.partition.entries import RECORDS
from flotilla_broker.partition.outcomes import Appended, Done, Waiter


class Submitted(NamedTuple):
    """A batch that waits for the next entry."""

    header: BatchHeader
    batch: Buffer
    done: Done


class Draft:
    """An entry in the making: batches one behind the other, each with its offset and the time of the entry."""

    def __init__(self, index: int, term: int, next_offset: int, time_ms: int) -> None:
        self.index = index
        self.term = term
        self.next_offset = next_offset
        self.time_ms = time_ms
        self.payload = bytearray(RECORDS)
        self.waiters: list[Waiter] = []

    def add(self, header: BatchHeader, batch: Buffer, done: Done) -> None:
        """Put a batch behind the others."""
        start = len(self.payload)
        self.payload += batch
        with memoryview(self.payload) as view:
            assign(view[start:], self.next_offset, self.time_ms)
        self.waiters.append(Waiter(self.term, Appended(self.next_offset, self.time_ms), done))
        self.next_offset += header.count
