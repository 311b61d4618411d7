"""Reading entries: the log's thread makes a plan, and any thread runs it.

Each frame is verified, header and payload, and compared with its index row: a read returns what was written, or
raises.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from flotilla_broker.log import frames
from flotilla_broker.log.errors import EntryDamaged
from flotilla_broker.log.files import Buffer, File, is_unreadable

_GAP_BYTES_MAX = 16 << 10  # frames closer than this are read with one call
_READ_BYTES_MAX = 4 << 20


class Entry(msgspec.Struct, frozen=True, gc=False):
    """An entry of the log."""

    index: int
    term: int
    next_offset: int  # after its last record; the same as the previous entry's if it has none
    time_ms: int
    payload: Buffer


class EntryLocation(NamedTuple):
    """Location of an entry to read."""

    entry: Entry  # without payload, unless it is still in memory
    segment: int
    file: File | None  # None: the payload is still in memory
    position: int
    size: int
    lsn: int

    @property
    def end(self) -> int:
        """Position after the frame."""
        return self.position + frames.frame_bytes(self.size)


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """A plan to read consecutive entries of a group."""

    group: int
    salt: int
    locations: list[EntryLocation]

    @property
    def is_in_memory(self) -> bool:
        """Whether `run` reads no file."""
        return all(location.file is None for location in self.locations)

    def run(self) -> list[Entry]:
        """Read all entries; raises EntryDamaged."""
        entries: list[Entry] = []
        for stretch in _stretches(self.locations):
            file, start = stretch[0].file, stretch[0].position
            if file is None:
                entries.append(stretch[0].entry)
                continue
            try:
                buffer = file.read(start, stretch[-1].end - start)
            except OSError as error:
                if not is_unreadable(error):
                    raise
                where = f"segment {stretch[0].segment} at {start}: {error}"
                raise EntryDamaged(self.group, stretch[0].entry.index, where) from error
            entries += [
                msgspec.structs.replace(location.entry, payload=self._payload(location, buffer, start))
                for location in stretch
            ]
        return entries

    def _payload(self, location: EntryLocation, buffer: bytes, start: int) -> memoryview:
        entry = location.entry
        frame = frames.parse(buffer, location.position - start, location.segment, self.salt)
        if (
            frame is None
            or (frame.group, frame.index, frame.lsn) != (self.group, entry.index, location.lsn)
            or (frame.term, frame.next_offset, frame.time_ms) != (entry.term, entry.next_offset, entry.time_ms)
            or not frames.payload_is_intact(frame, buffer)
        ):
            raise EntryDamaged(self.group, entry.index, f"segment {location.segment} at {location.position}")
        return frames.payload_of(frame, buffer)


def _stretches(locations: list[EntryLocation]) -> Iterator[list[EntryLocation]]:
    """Group locations that one read covers."""
    stretch: list[EntryLocation] = []
    for location in locations:
        joins = (
            stretch
            and location.file is not None
            and location.file is stretch[-1].file
            and 0 <= location.position - stretch[-1].end <= _GAP_BYTES_MAX
            and location.end - stretch[0].position <= _READ_BYTES_MAX
        )
        if stretch and not joins:
            yield stretch
            stretch = []
        stretch.append(location)
    if stretch:
        yield stretch
