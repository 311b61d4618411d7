"""A partition in memory: batches as they were sent, with the offsets and times that a broker gives them.

What holds is what holds for a real one: offsets never change and never go back, nor do append times; a batch that its
producer sends again is stored once, which is decided by the code that brokers run. Here, all is committed at once.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import NamedTuple

from flotilla.producers.errors import ProducerRefused
from flotilla.producers.table import ProducerTable
from flotilla.records import BatchHeader, BatchInvalid, Buffer, Record, assign, check, decode
from flotilla.serving.errors import Refusal


class _Stored(NamedTuple):
    batch: bytes
    base: int
    end: int  # the offset behind it
    time_ms: int


_end, _time_ms = attrgetter("end"), attrgetter("time_ms")


class Partition:
    """One partition."""

    def __init__(self) -> None:
        self.first_offset = 0
        self.next_offset = 0
        self._stored: list[_Stored] = []
        self._time_ms = 0  # of the last append
        self._entries = 0
        self._producers = ProducerTable()
        self._watchers: list[Callable[[], None]] = []

    @property
    def size_bytes(self) -> int:
        """What the batches take."""
        return sum(len(one.batch) for one in self._stored)

    # -- what comes ---------------------------------------------------------------------------------------

    def append(self, batch: Buffer, now_ms: int) -> tuple[int, int | None]:
        """Store a batch; return its offset, and when it was appended: None if it had been there. Raises Refusal."""
        header = read_header(batch)
        try:
            retry = self._producers.check(header)
        except ProducerRefused as error:
            raise Refusal(error.code, str(error), **error.details) from error
        if retry is not None:
            return retry.base_offset, None
        self._time_ms = max(now_ms, self._time_ms)
        self._store(header, bytearray(batch))
        return self.next_offset - header.count, self._time_ms

    def _store(self, header: BatchHeader, batch: bytearray) -> None:
        base, end = self.next_offset, self.next_offset + header.count
        assign(batch, base, self._time_ms)
        self._entries += 1
        self._producers.append(self._entries, header, base, self._time_ms)
        self._producers.commit(self._entries)
        self._stored.append(_Stored(bytes(batch), base, end, self._time_ms))
        self.next_offset = end
        self._notify()

    def delete_before(self, offset: int) -> None:
        """Delete the records below an offset; where records begin never goes back."""
        if offset > self.first_offset:
            self.first_offset = offset
            del self._stored[: bisect_right(self._stored, offset, key=_end)]
            self._notify()

    # -- what is there ------------------------------------------------------------------------------------

    def read(self, offset: int, bytes_max: int) -> list[bytes]:
        """Return the batch that holds `offset` and those behind it, up to a size, but at least one. Raises Refusal."""
        if offset < self.first_offset:
            raise self.out_of_range(f"offset {offset} is gone: records begin at {self.first_offset}")
        found: list[bytes] = []
        for one in self._from(offset):
            bytes_max -= len(one.batch)
            if found and bytes_max < 0:
                break
            found.append(one.batch)
        return found

    def records(self, offset: int) -> Iterator[Record]:
        """Open what is stored now, from an offset on; what its producer made unreadable is passed over."""
        start = max(offset, self.first_offset)
        return (record for one in self._from(start) for record in _open(one.batch) if record.offset >= start)

    def _from(self, offset: int) -> list[_Stored]:
        return self._stored[bisect_right(self._stored, offset, key=_end) :]

    def offset_at_time(self, time_ms: int) -> int:
        """Find the first record that was appended at a time or later; the next one if there is none."""
        at = bisect_left(self._stored, time_ms, key=_time_ms)
        return max(self.first_offset, self._stored[at].base if at < len(self._stored) else self.next_offset)

    def require_reached(self, offset: int, text: str, **details: int) -> None:
        """Refuse an offset that is yet to come; `text` names it. Raises Refusal."""
        if offset > self.next_offset:
            raise self.out_of_range(f"{text} is yet to come: the next record gets {self.next_offset}", **details)

    def out_of_range(self, text: str, **details: int) -> Refusal:
        """Refuse an offset, and name those that there are."""
        offsets = {"first_offset": self.first_offset, "next_offset": self.next_offset}
        return Refusal("offset_out_of_range", text, **details, **offsets)

    # -- who waits ----------------------------------------------------------------------------------------

    def watch(self, notify: Callable[[], None]) -> Callable[[], None]:
        """Call `notify` once, when records come or go, or the partition goes; return how to undo."""
        self._watchers.append(notify)

        def undo() -> None:
            if notify in self._watchers:
                self._watchers.remove(notify)

        return undo

    def close(self) -> None:
        """Have all who wait for records look again: there will be none."""
        self._notify()

    def _notify(self) -> None:
        watchers, self._watchers = self._watchers, []
        for notify in watchers:
            notify()


def _open(batch: bytes) -> list[Record]:
    try:
        return list(decode(batch))
    except BatchInvalid:
        return []


def read_header(batch: Buffer) -> BatchHeader:
    """Check a batch. Raises Refusal."""
    try:
        return check(batch)
    except BatchInvalid as error:
        raise Refusal("bad_batch", str(error)) from error
