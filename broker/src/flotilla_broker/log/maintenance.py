"""Maintenance of the log: spare segments, index files, cleaning, removal of files.

It chooses the next background job and applies its result; the jobs touch only files.
"""

from collections.abc import Callable, Mapping

from flotilla_broker.log.cleaner import Clean, Piece, choose, plan_piece
from flotilla_broker.log.config import LogConfig
from flotilla_broker.log.errors import EntryDamaged
from flotilla_broker.log.files import FileCache, FileSystem
from flotilla_broker.log.flush import Flush
from flotilla_broker.log.frames import Kind
from flotilla_broker.log.group import Group
from flotilla_broker.log.index import FileRows, Freed, Run, RunRecord, Written, run_record
from flotilla_broker.log.jobs import Job, Preallocate, Remove, WriteIndex
from flotilla_broker.log.records import Cleaned, SegmentRecord, encode
from flotilla_broker.log.recovery import Recovered
from flotilla_broker.log.segments import Segment, spare_name
from flotilla_broker.log.space import Space
from flotilla_broker.log.writer import Writer

_RECYCLED_MAX = 4  # recycled spares beyond the wanted number
_URGENT_LIVE_PART_MAX = 0.9  # limit of the live part when space is short


class Maintenance:
    """Chooses background jobs, and tracks segments and spares."""

    def __init__(
        self,
        fs: FileSystem,
        files: FileCache,
        config: LogConfig,
        salt: int,
        found: Recovered,
        *,
        on_damage: Callable[[EntryDamaged], None],
    ) -> None:
        self._fs = fs
        self._files = files
        self._config = config
        self._salt = salt
        self._on_damage = on_damage
        self._segments = found.segments
        self._runs = found.unindexed  # runs whose rows are in memory, by segment
        self._to_index = [found.segments[number] for number in found.unindexed]
        self._index_plan: tuple[int, Segment, WriteIndex] | None = None  # runs when that lsn is durable
        self._durable_lsn = found.next_lsn - 1
        self._to_remove = list(found.obsolete)
        self._recyclable: list[str] = []  # those of them with the size of a spare
        self._retired: list[tuple[int, list[Segment]]] = []  # removed when that lsn is durable
        self._next_spare = max(found.spares, default=0) + 1
        self._starved_growth = -1  # value of Space.growth when creating a spare failed
        self._index_failed = self._clean_failed = False  # because the disk was full
        self._sealed_bytes: int | None = None  # of all files except the active segment; None: unknown
        self._job: Job | None = None
        self._may_have_work = True
        self._groups: Mapping[int, Group] = {}
        self._writer: Writer
        self.spares = [spare_name(number) for number in found.spares]

    def attach(self, groups: Mapping[int, Group], writer: Writer) -> None:
        """Set the groups and the writer."""
        self._groups = groups
        self._writer = writer

    # -- events of the log --------------------------------------------------------------------------------

    def take_spare(self) -> str | None:
        """Return a spare, also of the reserve: admitted entries must be written."""
        self._may_have_work = True
        return self.spares.pop(0) if self.spares else None

    def add_segment(self, segment: Segment) -> None:
        """Add a segment."""
        self._segments[segment.id] = segment
        self._runs[segment.id] = []
        self._sealed_bytes = None

    def note_run(self, segment: int, group: Group, run: Run) -> None:
        """Add a run of the active segment."""
        self._runs[segment].append((group, run))

    def free(self, freed: Freed) -> None:
        """Subtract freed bytes."""
        self._may_have_work = True
        self._clean_failed = False
        for segment, size in freed.items():
            self._segments[segment].live_bytes -= size

    def note_flush(self, flush: Flush) -> None:
        """Record the end of a flush."""
        self._durable_lsn = flush.last_lsn
        if flush.sealed or self._retired or self._index_plan is not None:
            self._may_have_work = True
        for segment in flush.sealed:
            segment.settled = True
            self._to_index.append(segment)
        durable = [segments for lsn, segments in self._retired if lsn <= flush.last_lsn]
        self._retired = self._retired[len(durable) :]
        self._sealed_bytes = None if durable else self._sealed_bytes
        for segment in (segment for segments in durable for segment in segments):
            self._to_remove += [segment.name, segment.index_name]
            if segment.file_bytes == self._config.segment_bytes:
                self._recyclable.append(segment.name)

    def sync_segments(self) -> None:
        """Sync all segments, after flushes without sync."""
        for segment in self._segments.values():
            self._files.get(segment.name).sync()

    def segment(self, number: int) -> Segment:
        """Return a segment."""
        return self._segments[number]

    def sealed_segments(self) -> list[SegmentRecord]:
        """Describe all segments except the active one."""
        active = self._writer.active.id
        return [segment.for_checkpoint() for segment in self._segments.values() if segment.id != active]

    @property
    def live_bytes(self) -> int:
        """Bytes of entries that are not removed."""
        return sum(segment.live_bytes for segment in self._segments.values())

    @property
    def used_bytes(self) -> int:
        """Disk usage of the log."""
        if self._sealed_bytes is None:
            retired = [segment for _, segments in self._retired for segment in segments]
            sealed = [segment for segment in self._segments.values() if segment is not self._writer.active]
            self._sealed_bytes = sum(
                max(segment.end, segment.file_bytes) + segment.index_bytes for segment in (*sealed, *retired)
            )
        active = self._writer.active
        spares = len(self.spares) * self._config.segment_bytes
        return self._sealed_bytes + max(active.end, active.file_bytes) + spares

    # -- jobs ---------------------------------------------------------------------------------------------

    def check_for_work(self) -> None:
        """Check for work at the next `next_job`: other processes may have freed space."""
        self._may_have_work = True

    def next_job(self, take_space: Callable[[], Space]) -> Job | None:
        """Choose the next job: first jobs that free space, then those that free memory, then those that need space."""
        if self._job is not None or not self._may_have_work:
            return None
        space = take_space()
        self._job = self._remove() or self._write_index(space) or self._preallocate(space) or self._clean(space)
        self._may_have_work = self._job is not None
        return self._job

    def end_job(self, job: Job) -> None:
        """Apply the result of a job."""
        self._job = None
        self._may_have_work = True
        job.finish()

    def _remove(self) -> Job | None:
        """Remove obsolete files, but keep some segments as spares, which saves writing zeros.

        Old frames in them are ignored, because a frame contains the number of its segment.
        """
        if not self._to_remove:
            return None
        names, self._to_remove = self._to_remove, []
        for name in names:
            self._files.forget(name)
        wanted = max(0, self._spares_wanted + _RECYCLED_MAX - len(self.spares))
        recycle = {name: self._name_spare() for name in self._recyclable[:wanted]}
        self._recyclable = []
        return Remove(self._fs, names, recycle, self._removed)

    def _removed(self, recycled: list[str]) -> None:
        self.spares += recycled
        self._starved_growth, self._index_failed = -1, False

    @property
    def _spares_wanted(self) -> int:
        return self._config.reserve_segments + self._config.ahead_segments

    def _name_spare(self) -> str:
        self._next_spare += 1
        return spare_name(self._next_spare - 1)

    def _write_index(self, space: Space) -> Job | None:
        """Write the index of a sealed segment when the removal of all other entries is durable.

        The index lists the live entries. If a crash lost a trim that is not on disk yet, the trimmed entries would have
        to be in the index.
        """
        possible = space.growth > 0 or not self._index_failed
        if self._index_plan is None and self._to_index and possible:
            segment = self._to_index.pop(0)
            self._index_plan = (self._writer.next_lsn - 1, segment, self._plan_index(segment))
        if self._index_plan is None or self._index_plan[0] > self._durable_lsn:
            return None
        job, self._index_plan = self._index_plan[2], None
        return job

    def _plan_index(self, segment: Segment) -> WriteIndex:
        alive = [(group, run) for group, run in self._runs[segment.id] if run.count]
        alive.sort(key=lambda item: (item[0].number, item[1].first_index))
        runs = [(run_record(group.number, run), run.rows.get(run.row, run.count)) for group, run in alive]

        def done(written: Written | None) -> None:
            if written is not None:
                self._use_index(segment, written, [run for _, run in alive], [record for record, _ in runs])
                del self._runs[segment.id]
            else:
                self._to_index.append(segment)
            self._index_failed = written is None

        return WriteIndex(self._fs, segment.id, segment.end, runs, done)

    def _use_index(self, segment: Segment, written: Written, runs: list[Run], records: list[RunRecord]) -> None:
        """Let runs read their rows from the new index file."""
        self._files.forget(segment.index_name)  # a damaged file may have had this name
        rows = FileRows(self._files, segment.index_name, written.origin)
        segment.index_bytes = written.size
        self._sealed_bytes = None
        for run, record, row in zip(runs, records, written.rows, strict=True):
            if run.count:
                run.move(segment.id, rows, record.first_index, row)

    def _preallocate(self, space: Space) -> Job | None:
        if len(self.spares) >= self._spares_wanted or space.growth <= max(0, self._starved_growth):
            return None

        def done(made: str | None) -> None:
            if made is None:
                self._starved_growth = space.growth
            else:
                self.spares.append(made)

        return Preallocate(self._fs, self._name_spare(), self._config.segment_bytes, done)

    def _clean(self, space: Space) -> Job | None:
        if self._clean_failed and space.growth == 0:
            return None
        urgent = space.spares + space.growth <= space.reserve
        part = _URGENT_LIVE_PART_MAX if urgent else self._config.clean_below
        settled = [segment for segment in self._segments.values() if segment.settled]
        victims = choose(settled, self._config.segment_bytes, part, grows=space.growth > 0)
        if not victims:
            return None
        if not any(segment.live_bytes for segment in victims):
            self._retire(victims, [])
            return self._remove()
        if not self._spare_for_cleaner():
            return None
        try:
            pieces = self._plan_pieces(victims)
        except OSError:  # too many open files, or an unreadable index: retry later
            return None
        target = Segment(self._writer.take_segment_id(), cold=True, settled=True)
        return Clean(self._fs, self._salt, self.spares.pop(), target, victims, pieces, self._cleaned)

    def _spare_for_cleaner(self) -> bool:
        """Whether a spare is left for the writer, or half of the active segment: there may be only one spare."""
        return len(self.spares) > 1 or (
            len(self.spares) == 1 and self._writer.room_bytes > self._config.segment_bytes // 2
        )

    def _plan_pieces(self, victims: list[Segment]) -> list[Piece]:
        chosen = {segment.id: self._files.get(segment.name) for segment in victims}
        return [
            plan_piece(group.number, run, chosen[run.segment])
            for _, group in sorted(self._groups.items())
            for run in group.runs
            if run.segment in chosen
        ]

    def _cleaned(self, job: Clean) -> None:
        if job.written is None:
            self._to_remove.append(job.spare)
            self._clean_failed = job.damaged is None
            if job.damaged is not None:
                self._exclude_unreadable(job, job.damaged)
            return
        target = job.target
        target.file_bytes = target.end
        self._segments[target.id] = target
        runs, records = [piece.run for piece in job.pieces], [piece.record for piece in job.pieces]
        self._use_index(target, job.written, runs, records)
        target.live_bytes = sum(run.live_bytes for run in runs)
        self._retire(job.victims, [target])

    def _exclude_unreadable(self, job: Clean, damage: EntryDamaged) -> None:
        """Exclude unreadable segments from cleaning."""
        for piece in job.pieces:
            if piece.record.group == damage.group:
                self._segments[piece.segment].readable = False
        self._on_damage(damage)

    def _retire(self, victims: list[Segment], added: list[Segment]) -> None:
        """Replace segments; their files are removed when that is durable."""
        for segment in victims:
            del self._segments[segment.id]
            self._runs.pop(segment.id, None)
        self._to_index = [segment for segment in self._to_index if segment.id in self._segments]
        if self._index_plan is not None and self._index_plan[1].id not in self._segments:
            self._index_plan = None
        cleaned = Cleaned([segment.id for segment in victims], [segment.for_checkpoint() for segment in added])
        self._writer.put(Kind.CLEANED, 0, encode(cleaned))
        self._retired.append((self._writer.next_lsn - 1, victims))
        self._sealed_bytes = None
