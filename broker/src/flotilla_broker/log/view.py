"""What can be asked of a log without changing it: groups, entries, places, room."""

from collections.abc import Iterator, Mapping

from flotilla_broker.log.config import LogConfig
from flotilla_broker.log.errors import DiskFull, EntryDamaged, EntryMissing, GroupUnknown
from flotilla_broker.log.files import FileCache, FileSystem, is_unreadable
from flotilla_broker.log.frames import frame_bytes
from flotilla_broker.log.group import Group
from flotilla_broker.log.reading import Entry, Place, ReadPlan
from flotilla_broker.log.space import Space, growth
from flotilla_broker.log.upkeep import Upkeep
from flotilla_broker.log.writer import Writer

_ROWS_PER_LOOK = 512


class LogView:
    """The side of a log that is looked at; `store.Log` is the whole."""

    _fs: FileSystem
    _files: FileCache
    _config: LogConfig
    _salt: int
    _groups: dict[int, Group]
    _upkeep: Upkeep
    _writer: Writer

    @property
    def groups(self) -> Mapping[int, Group]:
        """All groups, by number. They are to be looked at; changes go through the log."""
        return self._groups

    @property
    def last_lsn(self) -> int:
        """The newest frame. What it says is durable once `durable_lsn` has reached it."""
        return self._writer.next_lsn - 1

    def group(self, number: int) -> Group:
        """Return a group to look at; raises GroupUnknown."""
        try:
            return self._groups[number]
        except KeyError:
            raise GroupUnknown(f"there is no group {number}") from None

    # -- room ---------------------------------------------------------------------------------------------

    def admit(self, size: int, pending: int = 0) -> None:
        """Raise DiskFull unless an entry of `size` bytes can be taken without touching the reserve.

        `pending` bytes of others were admitted before, and may still be on their way.
        """
        space = self.space()
        if not space.admits(frame_bytes(size), pending):
            raise DiskFull(
                f"no room for an entry of {size} bytes: only the reserve of {space.reserve} segments of "
                f"{self._config.segment_bytes} bytes is left; free disk space, or shorten the retention"
            )

    def space(self) -> Space:
        """Tell how much room there is."""
        config, active = self._config, self._writer.active
        capacity = self._writer.capacity_bytes
        more = growth(self._fs.free_bytes(), self.used_bytes, config.log_bytes_max, max(config.segment_bytes, capacity))
        return Space(
            active_bytes=capacity - active.end if more else self._writer.room_bytes,
            spares=len(self._upkeep.spares),
            growth=more,
            reserve=config.reserve_segments,
            usable_bytes=capacity - active.checkpoint_bytes,
        )

    @property
    def used_bytes(self) -> int:
        """What the log takes on disk."""
        return self._upkeep.used_bytes

    @property
    def unflushed_bytes(self) -> int:
        """What waits in memory to be written: the caller bounds it by not appending more."""
        return self._writer.unflushed_bytes

    # -- entries ------------------------------------------------------------------------------------------

    def plan_read(self, number: int, index: int, *, bytes_max: int, count_max: int = 1 << 20) -> ReadPlan:
        """Plan to read entries; `run` it in any thread, soon. EntryDamaged goes to `quarantine_damaged`."""
        group = self.group(number)
        group.check_usable()
        if not group.keep_from <= index <= group.last_index:
            raise EntryMissing(f"group {number} holds {group.keep_from} to {group.last_index}, not {index}")
        places: list[Place] = []
        try:
            for place in self._places(group, index):
                bytes_max -= place.size
                if places and (bytes_max < 0 or len(places) == count_max):
                    break
                places.append(place)
        except OSError as error:
            if not is_unreadable(error):
                raise
            raise EntryDamaged(number, index, f"its index cannot be read: {error}") from error
        return ReadPlan(number, self._salt, places)

    def _places(self, group: Group, index: int) -> Iterator[Place]:
        for run in group.runs_from(index):
            start = max(index, run.first_index)
            name = self._upkeep.segment(run.segment).name
            for at in range(start, run.next_index, _ROWS_PER_LOOK):
                rows = run.slice(at, min(_ROWS_PER_LOOK, run.next_index - at))
                for ahead, row in enumerate(rows):
                    payload = self._writer.payload(row.lsn)
                    file = self._files.get(name) if payload is None else None
                    entry = Entry(at + ahead, run.term, row.next_offset, row.time_ms, payload or b"")
                    yield Place(entry, run.segment, file, row.position, row.size, row.lsn)

    def term_of(self, number: int, index: int) -> int:
        """Tell the term of an entry, or of the one before the first."""
        return self.group(number).term_of(index)

    def find_offset(self, number: int, offset: int) -> int:
        """Find the entry that holds a record offset; behind the last entry if the offset is yet to come."""
        return self.group(number).first_above(lambda row: row.next_offset, offset)

    def find_time(self, number: int, time_ms: int) -> int:
        """Find the first entry that was appended at `time_ms` or later; behind the last if there is none."""
        return self.group(number).first_above(lambda row: row.time_ms, time_ms - 1)
