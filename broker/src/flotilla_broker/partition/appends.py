"""Appends: their three outcomes (ok, failed, unknown), and the entry that collects their batches."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from flotilla.records import BatchHeader, Buffer, assign
from flotilla_broker.partition.entries import RECORDS

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Appended:
    """Committed: on the disks of a majority."""

    base_offset: int
    time_ms: int
    retried: bool = False  # the batch was already stored


@dataclass(frozen=True, slots=True)
class Failed:
    """Not stored, and will not be: rejected before it was proposed, or another entry was committed at its index."""

    code: str
    message: str
    details: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Unknown:
    """Stored or not. A retry with the same sequence finds out, and never stores it twice."""

    message: str


Outcome = Appended | Failed | Unknown
Done = Callable[[Outcome], None]


def complete(done: Done, outcome: Outcome) -> None:
    """Call a callback with the outcome of an append. Its errors are logged, and do not affect the partition."""
    try:
        done(outcome)
    except Exception:
        logger.exception("append callback failed outcome=%s", outcome)


class Waiter:
    """A callback that waits for the commit of the entry at an index, with one term."""

    __slots__ = ("appended", "done", "term")

    def __init__(self, term: int, appended: Appended, done: Done) -> None:
        self.term = term
        self.appended = appended
        self.done = done


class Submitted(NamedTuple):
    """A batch in the queue for the next entry."""

    header: BatchHeader
    batch: Buffer
    done: Done


class Draft:
    """An entry that is being built from batches, each with its offset and the time of the entry."""

    def __init__(self, index: int, term: int, next_offset: int, time_ms: int) -> None:
        self.index = index
        self.term = term
        self.next_offset = next_offset
        self.time_ms = time_ms
        self.payload = bytearray(RECORDS)
        self.waiters: list[Waiter] = []

    def add(self, header: BatchHeader, batch: Buffer, done: Done) -> None:
        """Add a batch."""
        start = len(self.payload)
        self.payload += batch
        with memoryview(self.payload) as view:
            assign(view[start:], self.next_offset, self.time_ms)
        self.waiters.append(Waiter(self.term, Appended(self.next_offset, self.time_ms), done))
        self.next_offset += header.count
