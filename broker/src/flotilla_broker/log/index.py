"""The index of entries: runs of rows.

A row describes one entry in 32 bytes: position and payload size, lsn, the offset after its last record, and its append
time. A run is a sequence of a group's entries in one segment: consecutive indexes, one term, ascending lsn. Rows of the
active segment are in memory. When it is sealed, they go to an index file in the same layout, and are read from there.
So memory has one small object per run, not per entry.

Runs of a group never interleave by lsn: a segment has a range of lsns, its index lists only entries that were live when
it was planned, and the cleaner keeps runs of different segments apart. So recovery orders whole runs by lsn
(`Group.overlay`) instead of comparing entries.
"""

import errno
import struct
import sys
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple, Protocol

import msgspec
from isal.isal_zlib import crc32

from flotilla_broker.log.files import FileCache
from flotilla_broker.log.frames import frame_bytes

if sys.byteorder != "little":  # pragma: no cover
    raise ImportError("the log requires a little-endian machine")

_COLUMNS = 4  # position and size, lsn, next offset, time
ROW_BYTES = 8 * _COLUMNS
_SIZE_SHIFT = 32
_POSITION_MASK = (1 << _SIZE_SHIFT) - 1

_PREFIX = struct.Struct("<4sIII")  # magic, directory bytes, directory crc, reserved
_MAGIC = b"FLX1"


class Row(NamedTuple):
    """Location of one entry."""

    position: int
    size: int
    lsn: int
    next_offset: int
    time_ms: int


def pack(position: int, size: int, lsn: int, next_offset: int, time_ms: int) -> tuple[int, int, int, int]:
    """Pack a row into four numbers."""
    return position | size << _SIZE_SHIFT, lsn, next_offset, time_ms


def unpack(table: "array[int]") -> Iterator[Row]:
    """Unpack rows."""
    columns = (table[column::_COLUMNS] for column in range(_COLUMNS))
    for place, lsn, next_offset, time_ms in zip(*columns, strict=True):
        yield Row(place & _POSITION_MASK, place >> _SIZE_SHIFT, lsn, next_offset, time_ms)


class Rows(Protocol):
    """A table of rows."""

    def get(self, start: int, count: int) -> "array[int]":
        """Return `count` rows from `start` on, four numbers each."""


class MemoryRows:
    """Rows of the active segment."""

    __slots__ = ("table",)

    def __init__(self) -> None:
        self.table = array("q")

    def get(self, start: int, count: int) -> "array[int]":
        """Return a copy of some rows."""
        return self.table[start * _COLUMNS : (start + count) * _COLUMNS]

    def cut(self, count: int) -> None:
        """Keep the first `count` rows."""
        del self.table[count * _COLUMNS :]


class FileRows:
    """Rows in the index file of a sealed segment."""

    __slots__ = ("_files", "_name", "_origin")

    def __init__(self, files: FileCache, name: str, origin: int) -> None:
        self._files = files
        self._name = name
        self._origin = origin

    def get(self, start: int, count: int) -> "array[int]":
        """Read some rows."""
        table = array("q")
        table.frombytes(self._files.get(self._name).read(self._origin + start * ROW_BYTES, count * ROW_BYTES))
        if len(table) != count * _COLUMNS:
            raise OSError(errno.EIO, "index file is truncated", self._name)
        return table


class Run:
    """Consecutive entries of a group in one segment."""

    __slots__ = ("count", "first_index", "live_bytes", "lsn", "row", "rows", "segment", "term")

    def __init__(self, segment: int, first_index: int, term: int, lsn: int, rows: Rows) -> None:
        self.segment = segment
        self.first_index = first_index
        self.term = term
        self.lsn = lsn  # of the first entry that the run had at its start: orders the runs of a group
        self.rows = rows
        self.row = 0  # the row of the first entry
        self.count = 0
        self.live_bytes = 0

    @property
    def next_index(self) -> int:
        """The index after the last entry."""
        return self.first_index + self.count

    def slice(self, index: int, count: int) -> "list[Row]":
        """Return the rows of `count` entries from `index` on."""
        return list(unpack(self.rows.get(self.row + index - self.first_index, count)))

    def at(self, index: int) -> Row:
        """Return the row of one entry."""
        return self.slice(index, 1)[0]

    def bisect(self, key: Callable[[Row], int], value: int) -> int:
        """Find the first index whose key is above `value`; `next_index` if there is none."""
        indexes = range(self.first_index, self.next_index)
        return self.first_index + bisect_right(indexes, value, key=lambda index: key(self.at(index)))

    def add(self, position: int, size: int, lsn: int, next_offset: int, time_ms: int) -> None:
        """Append a row; only in the active segment."""
        self.rows.table.extend(pack(position, size, lsn, next_offset, time_ms))  # type: ignore[attr-defined]
        self.count += 1
        self.live_bytes += frame_bytes(size)

    def bytes_of(self, index: int, count: int) -> int:
        """Return the size on disk of `count` entries."""
        if count == self.count:
            return self.live_bytes
        return sum(frame_bytes(row.size) for row in self.slice(index, count))

    def drop_tail(self, index: int) -> int:
        """Remove the entries from `index` on; return the freed bytes."""
        freed = self.bytes_of(index, self.next_index - index)
        self.count = index - self.first_index
        self.live_bytes -= freed
        if isinstance(self.rows, MemoryRows):
            self.rows.cut(self.row + self.count)  # the next row follows directly
        return freed

    def drop_head(self, index: int) -> int:
        """Remove the entries before `index`; return the freed bytes."""
        removed = index - self.first_index
        freed = self.bytes_of(self.first_index, removed)
        self.first_index, self.row = index, self.row + removed
        self.count -= removed
        self.live_bytes -= freed
        return freed

    def move(self, segment: int, rows: Rows, first_index: int, row: int) -> None:
        """Refer to a copy of the run, which started at `first_index` when it was copied and may have shrunk since."""
        self.segment, self.rows, self.row = segment, rows, row + self.first_index - first_index


Freed = dict[int, int]  # freed bytes by segment


def cut_tail(runs: list[Run], index: int) -> Freed:
    """Remove the entries from `index` on from a group's runs."""
    freed: Freed = {}
    while runs and runs[-1].next_index > index:
        run = runs[-1]
        freed[run.segment] = freed.get(run.segment, 0) + run.drop_tail(max(index, run.first_index))
        if run.count == 0:
            runs.pop()
    return freed


def cut_head(runs: list[Run], index: int) -> Freed:
    """Remove the entries before `index` from a group's runs."""
    freed: Freed = {}
    gone = 0
    while gone < len(runs) and runs[gone].first_index < index:
        run = runs[gone]
        freed[run.segment] = freed.get(run.segment, 0) + run.drop_head(min(index, run.next_index))
        if run.count > 0:
            break
        gone += 1
    del runs[:gone]
    return freed


class RunRecord(msgspec.Struct, frozen=True, array_like=True):
    """A run in an index file."""

    group: int
    first_index: int
    count: int
    term: int
    lsn: int
    live_bytes: int
    row: int


def run_record(group: int, run: Run) -> RunRecord:
    """Describe a run for an index file; `build` sets the row."""
    return RunRecord(group, run.first_index, run.count, run.term, run.lsn, run.live_bytes, 0)


class Directory(msgspec.Struct, frozen=True, array_like=True):
    """The first part of an index file."""

    segment: int
    end: int
    runs: list[RunRecord]


class Written(NamedTuple):
    """Positions of the rows in an index file."""

    origin: int  # position of the first row
    rows: list[int]  # the first row of each run
    size: int


def build(segment: int, end: int, runs: Sequence[tuple[RunRecord, "array[int]"]]) -> tuple[list[bytes], Written]:
    """Build an index file from runs and their rows, and set `row` of the records."""
    starts = list(accumulate((record.count for record, _ in runs), initial=0))
    records = [msgspec.structs.replace(record, row=row) for (record, _), row in zip(runs, starts, strict=False)]
    directory = msgspec.msgpack.encode(Directory(segment, end, records))
    prefix = _PREFIX.pack(_MAGIC, len(directory), crc32(directory), 0)
    origin = len(prefix) + len(directory)
    written = Written(origin, starts[:-1], origin + starts[-1] * ROW_BYTES)
    return [prefix, directory, *(table.tobytes() for _, table in runs)], written


def load(files: FileCache, name: str, segment: int) -> tuple[Directory, Rows] | None:
    """Read an index file; None if it is missing, damaged or of another segment."""
    try:
        file = files.get(name)
        prefix = file.read(0, _PREFIX.size)
        if len(prefix) < _PREFIX.size:
            return None
        magic, size, crc, _ = _PREFIX.unpack(prefix)
        packed = file.read(_PREFIX.size, min(size, file.size()))
    except OSError:  # missing or unreadable: the segment itself has the same information
        return None
    if magic != _MAGIC or crc32(packed) != crc:
        return None
    directory = msgspec.msgpack.decode(packed, type=Directory)
    origin = _PREFIX.size + size
    whole = file.size() >= origin + ROW_BYTES * sum(run.count for run in directory.runs)
    return (directory, FileRows(files, name, origin)) if whole and directory.segment == segment else None
