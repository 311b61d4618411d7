"""The cleaner: copies the live entries of mostly dead segments into a new segment, so that the old ones can be removed.

Copies keep their lsn, so that recovery orders them as before. They are sorted by group and index, so that a partition's
old entries are adjacent. The new segment gets its name when it is complete and synced, and replaces the old ones with
one CLEANED frame. The old files are removed when that frame is durable.
"""

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from isal.isal_zlib import crc32

from flotilla_broker.log import frames
from flotilla_broker.log.errors import EntryDamaged
from flotilla_broker.log.files import Buffer, File, FileSystem
from flotilla_broker.log.frames import Kind
from flotilla_broker.log.index import Run, RunRecord, Written, pack, run_record, unpack
from flotilla_broker.log.jobs import write_index
from flotilla_broker.log.reading import Entry, EntryLocation, ReadPlan
from flotilla_broker.log.segments import Segment

_PART_BYTES = 1 << 20
_PART_ENTRIES = 1024
_SMALL_PART = 8  # a segment is small below 1/8 of the full size ...
_SMALL_MIN = 8  # ... and small segments are merged from this number on
_VICTIMS_MAX = 64
_INDEX_PART = 8  # on a full disk, 1/8 of a segment is left for the index of the copies


def choose(segments: Sequence[Segment], segment_bytes: int, live_part_max: float, *, grows: bool) -> list[Segment]:
    """Choose the segments to clean: all dead ones, or else those with the fewest live bytes that fit into one segment.

    Many small segments (each restart leaves one) are merged even if all their entries are live. Cleaning uses a spare;
    unless the log can grow (`grows`), it must free at least as much.
    """
    dead = [segment for segment in segments if segment.live_bytes == 0]
    if dead:
        return dead[:_VICTIMS_MAX]
    readable = [segment for segment in segments if segment.readable]
    mostly_dead = [segment for segment in readable if segment.live_bytes < segment.end * live_part_max]
    small = [segment for segment in readable if segment.end * _SMALL_PART < segment_bytes]
    room = segment_bytes if grows else segment_bytes - segment_bytes // _INDEX_PART
    for candidates in (mostly_dead, small if len(small) >= _SMALL_MIN else []):
        chosen = _fill(candidates, room)
        freed = sum(max(segment.end, segment.file_bytes) - segment.live_bytes for segment in chosen)
        if chosen and (grows or freed >= segment_bytes):
            return chosen
    return []


def _fill(candidates: Sequence[Segment], room: int) -> list[Segment]:
    """Take the segments with the fewest live bytes, as long as these fit."""
    chosen: list[Segment] = []
    for segment in sorted(candidates, key=lambda segment: (segment.live_bytes, segment.id)):
        room -= segment.live_bytes
        if room < 0 or len(chosen) == _VICTIMS_MAX:
            break
        chosen.append(segment)
    return chosen


class Piece(NamedTuple):
    """A run at the time when cleaning was planned."""

    run: Run
    record: RunRecord
    segment: int
    file: File
    source: "array[int]"  # rows in the old segment
    target: "array[int]"  # rows in the new one

    def parts(self) -> Iterator[list[EntryLocation]]:
        """Yield its entries in parts of limited size."""
        part: list[EntryLocation] = []
        size = 0
        for index, row in enumerate(unpack(self.source), start=self.record.first_index):
            entry = Entry(index, self.record.term, row.next_offset, row.time_ms, b"")
            part.append(EntryLocation(entry, self.segment, self.file, row.position, row.size, row.lsn))
            size += row.size
            if size >= _PART_BYTES or len(part) == _PART_ENTRIES:
                yield part
                part, size = [], 0
        if part:
            yield part


def plan_piece(group: int, run: Run, file: File) -> Piece:
    """Record the locations of a run's entries; the run may shrink while they are copied."""
    return Piece(run, run_record(group, run), run.segment, file, run.rows.get(run.row, run.count), array("q"))


@dataclass(slots=True)
class Clean:
    """Job that copies pieces into a spare, which becomes segment `target`."""

    fs: FileSystem
    salt: int
    spare: str
    target: Segment
    victims: list[Segment]
    pieces: list[Piece]
    done: Callable[["Clean"], None]
    damaged: EntryDamaged | None = None
    written: Written | None = None  # its index; None: disk full
    _buffers: list[Buffer] = field(default_factory=list)
    _queued_bytes: int = 0

    def run(self) -> None:
        """Copy, sync, write the index, and only then rename the spare to the segment's name."""
        file = self.fs.open(self.spare)
        try:
            for piece in self.pieces:
                self._copy(piece, file)
        except EntryDamaged as error:
            self.damaged = error
            return
        self._write(file)
        file.truncate(self.target.end)
        file.sync()
        runs = [(piece.record, piece.target) for piece in self.pieces]
        self.written = write_index(self.fs, self.target.id, self.target.end, runs)
        if self.written is not None:
            self.fs.rename(self.spare, self.target.name)
            self.fs.sync_folder()

    def finish(self) -> None:
        """Let the log replace the segments."""
        self.done(self)

    def _copy(self, piece: Piece, file: File) -> None:
        for part in piece.parts():
            for location, entry in zip(part, ReadPlan(piece.record.group, self.salt, part).run(), strict=True):
                self._put(piece, location, entry)
            if self._queued_bytes >= _PART_BYTES:
                self._write(file)

    def _put(self, piece: Piece, location: EntryLocation, entry: Entry) -> None:
        position = self.target.end + self._queued_bytes
        header = frames.pack(
            self.salt,
            self.target.id,
            location.lsn,
            piece.record.lsn,  # identifies the run if the index is lost
            piece.record.group,
            Kind.ENTRY,
            entry.index,
            entry.term,
            entry.next_offset,
            entry.time_ms,
            location.size,
            crc32(entry.payload),
        )
        self._buffers += (header, entry.payload, frames.padding(location.size))
        self._queued_bytes += frames.frame_bytes(location.size)
        piece.target.extend(pack(position, location.size, location.lsn, entry.next_offset, entry.time_ms))

    def _write(self, file: File) -> None:
        file.write(self.target.end, self._buffers)
        self.target.end += self._queued_bytes
        self._buffers, self._queued_bytes = [], 0
