"""An in-memory partition: batches as they were sent, with assigned offsets and append times.

It has the guarantees of a replicated partition: offsets never change, offsets and append times never decrease, and a
retried batch is stored once; the code of brokers detects duplicates. Every append is committed at once.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import NamedTuple

from flotilla.producers.errors import ProducerRefused
from flotilla.producers.table import ProducerTable
from flotilla.protocol.errors import Refusal
from flotilla.records import BatchHeader, BatchInvalid, Buffer, Record, assign, check, decode


class _Stored(NamedTuple):
    batch: bytes
    base: int
    end: int  # offset after the last record
    time_ms: int


_end, _time_ms = attrgetter("end"), attrgetter("time_ms")


class Partition:
    """A partition."""

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
        """Size of the stored batches."""
        return sum(len(one.batch) for one in self._stored)

    # -- writes -------------------------------------------------------------------------------------------

    def append(self, batch: Buffer, now_ms: int) -> tuple[int, int | None]:
        """Append a batch; return its base offset and append time, None for a duplicate. Raises Refusal."""
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
        """Delete the records below an offset. The first offset never decreases."""
        if offset > self.first_offset:
            self.first_offset = offset
            del self._stored[: bisect_right(self._stored, offset, key=_end)]
            self._notify()

    # -- reads --------------------------------------------------------------------------------------------

    def read(self, offset: int, bytes_max: int) -> list[bytes]:
        """Return the batch with `offset` and later ones, up to a size but at least one. Raises Refusal."""
        if offset < self.first_offset:
            raise self.out_of_range(f"offset {offset} is below the first offset, {self.first_offset}")
        found: list[bytes] = []
        for one in self._from(offset):
            bytes_max -= len(one.batch)
            if found and bytes_max < 0:
                break
            found.append(one.batch)
        return found

    def records(self, offset: int) -> Iterator[Record]:
        """Decode the stored records from an offset on; skip batches that cannot be decoded."""
        start = max(offset, self.first_offset)
        return (record for one in self._from(start) for record in _open(one.batch) if record.offset >= start)

    def _from(self, offset: int) -> list[_Stored]:
        return self._stored[bisect_right(self._stored, offset, key=_end) :]

    def offset_at_time(self, time_ms: int) -> int:
        """Return the offset of the first record appended at `time_ms` or later; the next offset if there is none."""
        at = bisect_left(self._stored, time_ms, key=_time_ms)
        return max(self.first_offset, self._stored[at].base if at < len(self._stored) else self.next_offset)

    def require_reached(self, offset: int, text: str, **details: int) -> None:
        """Refuse an offset above the next offset; `text` names it. Raises Refusal."""
        if offset > self.next_offset:
            raise self.out_of_range(f"{text} is above the next offset, {self.next_offset}", **details)

    def out_of_range(self, text: str, **details: int) -> Refusal:
        """Return the refusal of an offset, with the valid range."""
        offsets = {"first_offset": self.first_offset, "next_offset": self.next_offset}
        return Refusal("offset_out_of_range", text, **details, **offsets)

    # -- waiting for records ------------------------------------------------------------------------------

    def watch(self, notify: Callable[[], None]) -> Callable[[], None]:
        """Call `notify` once, when the partition changes or is deleted; return a function that cancels it."""
        self._watchers.append(notify)

        def undo() -> None:
            if notify in self._watchers:
                self._watchers.remove(notify)

        return undo

    def close(self) -> None:
        """Wake all waiting fetches: the partition is deleted."""
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
