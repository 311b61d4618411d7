"""The read-only part of the log: groups, entries, disk space."""

from collections.abc import Iterator, Mapping

from flotilla_broker.log.config import SEGMENTS_PER_READ_MAX, LogConfig
from flotilla_broker.log.errors import DiskFull, EntryDamaged, EntryMissing, GroupUnknown
from flotilla_broker.log.files import FileCache, FileSystem, is_unreadable
from flotilla_broker.log.frames import frame_bytes
from flotilla_broker.log.group import Group
from flotilla_broker.log.maintenance import Maintenance
from flotilla_broker.log.reading import Entry, EntryLocation, ReadPlan
from flotilla_broker.log.space import DiskUsage, Space, growth
from flotilla_broker.log.writer import Writer

_ROWS_PER_LOOK = 512


class LogView:
    """Queries of a log; `store.Log` adds changes."""

    _fs: FileSystem
    _files: FileCache
    _config: LogConfig
    _salt: int
    _groups: dict[int, Group]
    _maintenance: Maintenance
    _writer: Writer

    @property
    def groups(self) -> Mapping[int, Group]:
        """All groups by number, read-only."""
        return self._groups

    @property
    def last_lsn(self) -> int:
        """The lsn of the last frame. It is durable when `durable_lsn` has reached it."""
        return self._writer.next_lsn - 1

    @property
    def folder_id(self) -> str:
        """The identity of the folder on its file system: a copy of the files has another one."""
        return self._fs.folder_id()

    def group(self, number: int) -> Group:
        """Return a group, read-only; raises GroupUnknown."""
        try:
            return self._groups[number]
        except KeyError:
            raise GroupUnknown(f"unknown group {number}") from None

    # -- disk space ---------------------------------------------------------------------------------------

    def admit(self, size: int, pending: int = 0) -> None:
        """Check the disk space for an entry of `size` bytes, without the reserve; raises DiskFull.

        `pending` bytes of other entries were admitted before and may not be written yet.
        """
        space = self.space()
        if not space.admits(frame_bytes(size), pending):
            raise DiskFull(
                f"no disk space for an entry of {size} bytes: only the reserve of {space.reserve} segments of "
                f"{self._config.segment_bytes} bytes is left; free disk space, or reduce the retention"
            )

    def space(self) -> Space:
        """Return the available space."""
        config, active = self._config, self._writer.active
        capacity = self._writer.capacity_bytes
        more = growth(self._fs.free_bytes(), self.used_bytes, config.log_bytes_max, max(config.segment_bytes, capacity))
        return Space(
            active_bytes=capacity - active.end if more else self._writer.room_bytes,
            spares=len(self._maintenance.spares),
            growth=more,
            reserve=config.reserve_segments,
            usable_bytes=capacity - active.checkpoint_bytes,
        )

    def disk_usage(self) -> DiskUsage:
        """Return what the log occupies, and what it may occupy."""
        used, free, capacity = self.used_bytes, self._fs.free_bytes(), self._fs.total_bytes()
        limit = self._config.log_bytes_max
        if limit is not None:
            free, capacity = min(free, max(0, limit - used)), min(capacity, limit)
        return DiskUsage(used, self._maintenance.live_bytes, capacity, free)

    @property
    def used_bytes(self) -> int:
        """Disk usage of the log."""
        return self._maintenance.used_bytes

    @property
    def unflushed_bytes(self) -> int:
        """Bytes in memory that are not flushed; the caller limits them by not appending more."""
        return self._writer.unflushed_bytes

    # -- entries ------------------------------------------------------------------------------------------

    def plan_read(self, number: int, index: int, *, bytes_max: int, count_max: int = 1 << 20) -> ReadPlan:
        """Plan to read entries; `run` it soon, in any thread. Pass EntryDamaged to `quarantine_damaged`.

        A plan may end before both limits: it keeps at most SEGMENTS_PER_READ_MAX files open.
        """
        group = self.group(number)
        group.check_usable()
        if not group.keep_from <= index <= group.last_index:
            raise EntryMissing(
                f"group {number}: no entry {index}, it has entries {group.keep_from} to {group.last_index}"
            )
        locations: list[EntryLocation] = []
        segments: set[int] = set()  # open until the plan has run
        try:
            for location in self._locations(group, index):
                bytes_max -= location.size
                if location.file is not None:
                    segments.add(location.segment)
                if locations and (
                    bytes_max < 0 or len(locations) == count_max or len(segments) > SEGMENTS_PER_READ_MAX
                ):
                    break
                locations.append(location)
        except OSError as error:
            if not is_unreadable(error):
                raise
            raise EntryDamaged(number, index, f"its index is unreadable: {error}") from error
        return ReadPlan(number, self._salt, locations)

    def _locations(self, group: Group, index: int) -> Iterator[EntryLocation]:
        for run in group.runs_from(index):
            start = max(index, run.first_index)
            name = self._maintenance.segment(run.segment).name
            for at in range(start, run.next_index, _ROWS_PER_LOOK):
                rows = run.slice(at, min(_ROWS_PER_LOOK, run.next_index - at))
                for ahead, row in enumerate(rows):
                    payload = self._writer.payload(row.lsn)
                    file = self._files.get(name) if payload is None else None
                    entry = Entry(at + ahead, run.term, row.next_offset, row.time_ms, payload or b"")
                    yield EntryLocation(entry, run.segment, file, row.position, row.size, row.lsn)

    def term_of(self, number: int, index: int) -> int:
        """Return the term of an entry, or of the anchor."""
        return self.group(number).term_of(index)

    def find_offset(self, number: int, offset: int) -> int:
        """Find the entry with a record offset; last index + 1 if the offset is beyond the end."""
        return self.group(number).first_above(lambda row: row.next_offset, offset)

    def find_time(self, number: int, time_ms: int) -> int:
        """Find the first entry appended at `time_ms` or later; last index + 1 if there is none."""
        return self.group(number).first_above(lambda row: row.time_ms, time_ms - 1)
