"""The log of a broker: frames of many groups in one sequence of segments.

It stores entries, terms, votes and states of numbered groups, and reports what is durable. It knows nothing of Raft or
HTTP. One thread uses it, except `Flush.run`, `Job.run` and `ReadPlan.run`, which may run in any thread. So there are
no locks, and a test can run steps in any order, or crash between them. `driver.py` runs the threads; `view.py` is the
read-only part.

The path of a write: `append` (like every change) takes effect in memory at once and queues a frame. `begin_flush`
returns all queued frames, `Flush.run` writes and syncs them, `end_flush` returns what is durable. Meanwhile frames are
queued for the next flush. A payload must not be changed before its flush has ended. The log reads no clock: callers
pass the time of entries.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from flotilla_broker.log.config import LogConfig
from flotilla_broker.log.errors import (
    EntryDamaged,
    GroupQuarantined,
    GroupUnknown,
    LogFailed,
    LogMisuse,
)
from flotilla_broker.log.files import Buffer, FileCache, FileSystem
from flotilla_broker.log.flush import Durable, Flush
from flotilla_broker.log.frames import Kind
from flotilla_broker.log.group import Group
from flotilla_broker.log.jobs import Job
from flotilla_broker.log.maintenance import Maintenance
from flotilla_broker.log.reading import Entry
from flotilla_broker.log.records import CheckpointHead, Durability, GroupRecord, StoreRecord, encode
from flotilla_broker.log.recovery import Recovered
from flotilla_broker.log.storefile import write_store
from flotilla_broker.log.view import LogView
from flotilla_broker.log.writer import Checkpoint, Writer


class Log(LogView):
    """An open log (see `opening.open_log`)."""

    def __init__(
        self, fs: FileSystem, files: FileCache, config: LogConfig, store: StoreRecord, found: Recovered
    ) -> None:
        self._fs = fs
        self._files = files
        self._config = config
        self._store = store
        self._salt = store.salt
        self._groups = found.groups
        self._next_group = found.next_group
        self._touched: dict[int, Group] = {}
        self._states: dict[int, int] = {}  # by group: state index in the queued checkpoint
        self._flush: Flush | None = None
        self._failed: BaseException | None = None
        self.recovered_lsn = found.next_lsn - 1  # last frame that recovery found
        self.durable_lsn = self.recovered_lsn
        self._last_mark = -1  # the LSN of the last mark, and of the last frame before the marks that precede it
        self._marked_lsn = 0
        self.fresh = found.fresh  # created now: nothing was ever acknowledged
        self.damage = tuple(found.damage)  # found by recovery
        self.torn_frames = found.torn_frames
        self._maintenance = Maintenance(fs, files, config, store.salt, found, on_damage=self.quarantine_damaged)
        self._writer = Writer(
            fs,
            salt=store.salt,
            segment_bytes=config.segment_bytes,
            next_lsn=found.next_lsn,
            next_segment=found.next_segment,
            take_spare=self._maintenance.take_spare,
            on_segment=self._maintenance.add_segment,
            take_checkpoint=self._checkpoint,
            on_failure=self.fail,
        )
        self._maintenance.attach(self._groups, self._writer)

    # -- groups -------------------------------------------------------------------------------------------

    def create_group(
        self,
        meta: bytes,
        *,
        term: int = 0,
        vote: bytes = b"",
        anchor_index: int = 0,
        anchor_term: int = 0,
        first_offset: int = 0,
        state: bytes = b"",
    ) -> int:
        """Create a group and return its number.

        A snapshot starts after an anchor, the (index, term) before its first entry. It is written as a separate group,
        which then replaces the old one atomically (`replace_group`).
        """
        self._check_open()
        number = self._next_group
        record = GroupRecord(
            number=number,
            meta=meta,
            term=term,
            vote=vote,
            first_index=anchor_index + 1,
            anchor_term=anchor_term,
            first_offset=first_offset,
            last_index=anchor_index,
            last_term=anchor_term,
            next_offset=first_offset,
            state_index=anchor_index,
            state=state,
        )
        self._writer.put(Kind.OPEN, number, encode(record))
        self._next_group += 1
        self._groups[number] = Group(record)
        return number

    def set_meta(self, number: int, meta: bytes) -> int:
        """Change the caller's meta of a group; return the lsn."""
        group = self._usable(number)
        self._put(group, Kind.META, meta)
        group.meta = meta
        return self.last_lsn

    def replace_group(self, old: int, new: int, meta: bytes) -> int:
        """Drop group `old` and set the final meta of `new`, atomically; return the lsn."""
        replaced, group = self.group(old), self._usable(new)
        if old == new:
            raise LogMisuse(f"group {old} cannot replace itself")
        self._put(group, Kind.REPLACE, meta, index=old)
        self._forget(replaced)
        group.meta = meta
        return self.last_lsn

    def drop_group(self, number: int) -> int:
        """Remove a group; its space is freed in the background. Return the lsn."""
        group = self.group(number)
        self._check_open()
        self._put(group, Kind.DROP, b"")
        self._forget(group)
        return self.last_lsn

    def _forget(self, group: Group) -> None:
        del self._groups[group.number]
        self._touched.pop(group.number, None)
        self._maintenance.free(group.drop())

    def quarantine(self, number: int, reason: str) -> int:
        """Take a group out of service until it is dropped or replaced; return the lsn."""
        if not reason:
            raise LogMisuse(f"group {number}: quarantine reason must not be empty")
        group = self.group(number)
        self._check_open()
        self._put(group, Kind.QUARANTINE, reason.encode())
        group.quarantined = reason
        return self.last_lsn

    def provide_state(self, number: int, take: Callable[[], tuple[int, bytes]]) -> None:
        """Set the function that returns (index, state) for each checkpoint.

        The entry at the index must never be truncated. Entries are kept until a saved state covers them, so trimming
        frees space only for groups that provide a state.
        """
        self.group(number).take_state = take

    # -- entries ------------------------------------------------------------------------------------------

    def append(self, number: int, index: int, term: int, payload: Buffer, next_offset: int, time_ms: int) -> int:
        """Append an entry; `next_offset` is the offset after its last record. Return the lsn."""
        group = self._usable(number)
        group.check_append(index, term, next_offset)
        size = len(payload)
        if size > self._config.entry_bytes_max:
            raise LogMisuse(
                f"group {number}: entry {index} has {size} bytes, the limit is {self._config.entry_bytes_max}"
            )
        writer = self._writer
        position = writer.put(Kind.ENTRY, number, payload, index, term, next_offset, time_ms)
        self._touched[number] = group
        lsn = writer.next_lsn - 1
        segment = writer.active
        run = group.append(segment.id, index, term, position, size, lsn, next_offset, time_ms)
        segment.live_bytes += segment.end - position
        if run is not None:
            self._maintenance.note_run(segment.id, group, run)
        return lsn

    def truncate(self, number: int, index: int) -> int:
        """Remove the entries from `index` on; return the lsn."""
        group = self._usable(number)
        group.check_truncate(index)
        end = self._end_before(group, index)
        self._put(group, Kind.TRUNCATE, b"", index, *end)
        with self._failing():
            self._maintenance.free(group.truncate(index, *end))
        return self.last_lsn

    def trim(self, number: int, index: int) -> int:
        """Remove the entries before `index`, and remember the term of the last of them; return the lsn."""
        group = self._usable(number)
        group.check_trim(index)
        anchor = self._end_before(group, index)
        if group.queued_state_index + 1 < index and group.take_state is not None:
            self._save_state(group)
        self._put(group, Kind.TRIM, b"", index, *anchor)
        with self._failing():
            self._maintenance.free(group.trim(index, *anchor))
        return self.last_lsn

    def _end_before(self, group: Group, index: int) -> tuple[int, int]:
        """Return term and next offset of the entry before `index`, read from its frame: the index may be damaged."""
        if index - 1 < group.first_index:
            return group.anchor_term, group.first_offset
        (entry,) = self.read(group.number, index - 1, bytes_max=1, count_max=1)
        return entry.term, entry.next_offset

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Fail the log if a queued change is applied only partially."""
        try:
            yield
        except Exception as error:
            self.fail(error)
            raise LogFailed(f"log change was applied only partially: {error}") from error

    def save_state(self, number: int) -> int:
        """Save the group's current state without a checkpoint; return the lsn."""
        self._save_state(self._usable(number))
        return self.last_lsn

    def _save_state(self, group: Group) -> None:
        """Save the state without a checkpoint, so that a trim frees space at once."""
        group.refresh_state()
        self._put(group, Kind.STATE, group.state, group.state_index)
        self._states[group.number] = group.state_index

    def set_term(self, number: int, term: int, vote: bytes) -> int:
        """Save the term, and the vote in it; return the lsn."""
        group = self._usable(number)
        if term < group.term:
            raise LogMisuse(f"group {number}: term {term} is below the current term {group.term}")
        self._put(group, Kind.TERM, vote, term=term)
        group.term, group.vote = term, vote
        return self.last_lsn

    def mark(self) -> int:
        """Queue a frame without content.

        Recovery treats a gap in the last flush as a torn write. A later mark, written when the log is idle, proves that
        the flush was complete: a gap in it is damage.
        """
        self._check_open()
        if self.last_lsn != self._last_mark:
            self._marked_lsn = self.last_lsn
        self._writer.put(Kind.MARK, 0, b"")
        self._last_mark = self.last_lsn
        return self.last_lsn

    @property
    def content_lsn(self) -> int:
        """The LSN of the last frame that is no mark."""
        return self._marked_lsn if self.last_lsn == self._last_mark else self.last_lsn

    def _put(
        self, group: Group, kind: Kind, payload: bytes, index: int = 0, term: int = 0, next_offset: int = 0
    ) -> None:
        self._writer.put(kind, group.number, payload, index, term, next_offset)
        self._touched[group.number] = group

    def _usable(self, number: int) -> Group:
        self._check_open()
        group = self._groups.get(number)
        if group is None:
            raise GroupUnknown(f"unknown group {number}")
        if group.quarantined:
            raise GroupQuarantined(number, group.quarantined)
        return group

    def _check_open(self) -> None:
        if self._failed is not None:
            raise LogFailed(f"the log accepts nothing more: {self._failed}") from self._failed

    # -- reading ------------------------------------------------------------------------------------------

    def read(self, number: int, index: int, *, bytes_max: int, count_max: int = 1 << 20) -> list[Entry]:
        """Read entries from `index` on: at least one, then as many as fit into both limits.

        Damage found on the way quarantines the group.
        """
        try:
            return self.plan_read(number, index, bytes_max=bytes_max, count_max=count_max).run()
        except EntryDamaged as error:
            self.quarantine_damaged(error)
            raise

    # -- flushes ------------------------------------------------------------------------------------------

    def begin_flush(self, *, sync: bool | None = None) -> Flush | None:
        """Return a flush of all queued frames; None if there are none, or a flush is in progress."""
        self._check_open()
        if self._flush is not None or not self._writer.has_queued:
            return None
        last_lsn = self.last_lsn
        steps, sealed = self._writer.begin()
        marks = {number: (group.last_index, group.generation) for number, group in self._touched.items()}
        wanted = self._config.durability == Durability.FSYNC if sync is None else sync
        self._flush = Flush(self._fs, wanted, steps, last_lsn, marks, self._states, sealed)
        self._touched, self._states = {}, {}
        return self._flush

    def end_flush(self, flush: Flush) -> Durable:
        """Record that a flush has run; return what is durable."""
        self._flush = None
        self.durable_lsn = flush.last_lsn
        self._writer.end()
        indexes = {}
        for number, (last_index, generation) in flush.marks.items():
            group = self._groups.get(number)
            if group is not None and group.generation == generation:
                group.durable_index = indexes[number] = last_index
        with self._failing():
            self._maintenance.note_flush(flush)
            self._note_states(flush.states)
        return Durable(flush.last_lsn, indexes)

    def _note_states(self, states: dict[int, int]) -> None:
        for number, state_index in states.items():
            group = self._groups.get(number)
            if group is not None:
                group.saved_state_index = state_index
                self._maintenance.free(group.release())

    def fail(self, error: BaseException) -> None:
        """Record that a flush or a job failed: the state of the disk is unknown, so nothing is retried."""
        self._failed = self._failed or error

    def flush(self, *, sync: bool | None = None) -> Durable | None:
        """Flush synchronously."""
        flush = self.begin_flush(sync=sync)
        if flush is None:
            return None
        try:
            flush.run()
        except Exception as error:
            self.fail(error)
            raise LogFailed(f"log write failed: {error}") from error
        return self.end_flush(flush)

    # -- background ---------------------------------------------------------------------------------------

    def next_job(self) -> Job | None:
        """Return the next background job, one at a time; None if there is none."""
        self._check_open()
        return self._maintenance.next_job(self.space)

    def check_for_work(self) -> None:
        """Check for background jobs again: other processes may have freed space."""
        self._maintenance.check_for_work()

    def end_job(self, job: Job) -> None:
        """Record that a job has run."""
        self._maintenance.end_job(job)

    def quarantine_damaged(self, error: EntryDamaged) -> None:
        """Quarantine the group of a damaged entry, if a second read finds the damage again.

        Between a plan and its run, the entry may have been trimmed or moved, and its old location overwritten.
        """
        group = self._groups.get(error.group)
        if group is None or group.quarantined or not group.keep_from <= error.index <= group.last_index:
            return
        try:
            self.plan_read(error.group, error.index, bytes_max=1).run()
        except EntryDamaged:
            self.quarantine(error.group, str(error))

    # -- checkpoints --------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the first segment after opening, with a checkpoint, and sync it."""
        self._writer.roll()
        self.flush(sync=True)

    def close(self) -> None:
        """Write and sync everything, unless the log has failed, and release the folder."""
        try:
            if self._failed is None:
                self._sync_all()
        finally:
            self.fail(RuntimeError("the log is closed"))
            self._writer.close()
            self._files.clear()
            self._fs.close()

    def _sync_all(self) -> None:
        self.flush(sync=True)
        self.mark()
        self.flush(sync=True)
        if self._config.durability == Durability.OS:
            self._maintenance.sync_segments()
            write_store(self._fs, msgspec.structs.replace(self._store, clean=True))

    def _checkpoint(self) -> Checkpoint:
        records = [group.for_checkpoint() for group in self._groups.values()]
        self._states.update({record.number: record.state_index for record in records})
        yield (
            Kind.CHECKPOINT_BEGIN,
            0,
            encode(CheckpointHead(self._next_group, self._maintenance.sealed_segments())),
        )
        for record in records:
            yield Kind.CHECKPOINT_GROUP, record.number, encode(record)
        yield Kind.CHECKPOINT_END, 0, b""
