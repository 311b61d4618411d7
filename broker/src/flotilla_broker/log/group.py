"""A group: the entries and the state of one replica.

The rules of a log, for normal operation and for recovery: indexes are contiguous, terms never decrease, truncation
removes a tail, trimming removes a head and keeps (index, term) of the entry before it.

`state` is the caller's summary of the entries up to `state_index`, for example the last sequence of each producer. Each
checkpoint saves it. After a restart the caller loads `state` and reads the entries after it. So an entry stays readable
until it is below the first index *and* covered by a state on disk (`keep_from`).
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from operator import attrgetter

from flotilla_broker.log.errors import EntryMissing, GroupQuarantined, LogMisuse
from flotilla_broker.log.index import Freed, MemoryRows, Row, Run, cut_head, cut_tail
from flotilla_broker.log.records import GroupRecord

_FIRST_INDEX = attrgetter("first_index")


class Group:
    """The log and the state of one replica."""

    def __init__(self, record: GroupRecord) -> None:
        self.number = record.number
        self.meta = record.meta
        self.term = record.term
        self.vote = record.vote
        self.first_index = record.first_index
        self.anchor_term = record.anchor_term
        self.first_offset = record.first_offset
        self.last_index = record.last_index
        self.last_term = record.last_term
        self.next_offset = record.next_offset
        self.state = record.state
        self.state_index = record.state_index
        self.quarantined = record.quarantined
        self.runs: list[Run] = []
        self.durable_index = self.last_index
        self.generation = 0  # number of truncations: a flush from before one does not make later entries durable
        self.queued_state_index = record.state_index  # of the last state written, durable or not
        self.saved_state_index = record.state_index  # of the last durable state
        self.take_state: Callable[[], tuple[int, bytes]] | None = None

    def for_checkpoint(self) -> GroupRecord:
        """Return everything except the entries, with the caller's current state."""
        self.refresh_state()
        return GroupRecord(
            number=self.number,
            meta=self.meta,
            term=self.term,
            vote=self.vote,
            first_index=self.first_index,
            anchor_term=self.anchor_term,
            first_offset=self.first_offset,
            last_index=self.last_index,
            last_term=self.last_term,
            next_offset=self.next_offset,
            state_index=self.state_index,
            state=self.state,
            quarantined=self.quarantined,
        )

    def refresh_state(self) -> None:
        """Get the current state from the caller, if it provides one."""
        if self.take_state is not None and not self.quarantined:
            self.state_index, self.state = self.take_state()
        self.queued_state_index = self.state_index

    @property
    def keep_from(self) -> int:
        """The first entry that must stay readable."""
        return min(self.first_index, self.saved_state_index + 1)

    def check_usable(self) -> None:
        """Raise if the group is quarantined."""
        if self.quarantined:
            raise GroupQuarantined(self.number, self.quarantined)

    # -- changes ------------------------------------------------------------------------------------------

    def check_append(self, index: int, term: int, next_offset: int) -> None:
        """Check that the entry is the next one; raises LogMisuse."""
        if index != self.last_index + 1:
            raise LogMisuse(f"group {self.number}: cannot append entry {index} after {self.last_index}")
        if term < self.last_term:
            raise LogMisuse(
                f"group {self.number}: cannot append entry {index} of term {term} after term {self.last_term}"
            )
        if next_offset < self.next_offset:
            raise LogMisuse(
                f"group {self.number}: entry {index} has next offset {next_offset}, below {self.next_offset}"
            )

    def append(
        self,
        segment: int,
        index: int,
        term: int,
        position: int,
        size: int,
        lsn: int,
        next_offset: int,
        time_ms: int,
    ) -> Run | None:
        """Add a checked entry; return its run if it starts a new one."""
        run = self.runs[-1] if self.runs else None
        started = run is None or run.segment != segment or run.term != term
        if run is None or started:
            run = Run(segment, index, term, lsn, MemoryRows())
            self.runs.append(run)
        run.add(position, size, lsn, next_offset, time_ms)
        self.last_index, self.last_term, self.next_offset = index, term, next_offset
        return run if started else None

    def check_truncate(self, index: int) -> None:
        """Check that entries from `index` on may be removed; raises LogMisuse."""
        if not self.first_index <= index <= self.last_index:
            raise LogMisuse(f"group {self.number}: cannot truncate from entry {index}, it has {self._held()}")
        if index <= self.state_index:
            raise LogMisuse(
                f"group {self.number}: cannot truncate from entry {index}, the state covers {self.state_index}"
            )

    def truncate(self, index: int, term: int, next_offset: int) -> Freed:
        """Remove the entries from `index` on; the previous entry has this term and next offset."""
        self.last_index, self.last_term, self.next_offset = index - 1, term, next_offset
        self.generation += 1
        self.durable_index = min(self.durable_index, index - 1)
        return cut_tail(self.runs, index)

    def check_trim(self, index: int) -> None:
        """Check that entries before `index` may be removed; raises LogMisuse."""
        if not self.first_index <= index <= self.last_index + 1:
            raise LogMisuse(f"group {self.number}: cannot trim to entry {index}, it has {self._held()}")

    def trim(self, index: int, term: int, next_offset: int) -> Freed:
        """Remove the entries before `index`; the last of them has this term and next offset."""
        self.first_index, self.anchor_term, self.first_offset = index, term, next_offset
        return self.release()

    def release(self) -> Freed:
        """Remove entries that are no longer needed."""
        return cut_head(self.runs, self.keep_from)

    def drop(self) -> Freed:
        """Remove all entries."""
        return cut_tail(self.runs, 0)

    # -- recovery -----------------------------------------------------------------------------------------

    def overlay(self, run: Run) -> None:
        """Add a run, and remove entries of older runs from its first index on, which it replaced."""
        cut_tail(self.runs, run.first_index)
        self.runs.append(run)

    def missing_entry(self) -> int | None:
        """Return the index of the first missing entry, if any."""
        expected = self.keep_from
        for run in self.runs:
            if run.first_index != expected:
                break
            expected = run.next_index
        return expected if expected <= self.last_index else None

    # -- look-ups -----------------------------------------------------------------------------------------

    def run_of(self, index: int) -> Run:
        """Find the run of an entry."""
        at = bisect_right(self.runs, index, key=_FIRST_INDEX) - 1
        if at < 0 or index >= self.runs[at].next_index:
            raise EntryMissing(f"group {self.number}: no entry {index}, it has {self._held()}")
        return self.runs[at]

    def runs_from(self, index: int) -> Iterator[Run]:
        """Yield the run of `index`, and the later ones."""
        at = max(0, bisect_right(self.runs, index, key=_FIRST_INDEX) - 1)
        yield from self.runs[at:]

    def term_of(self, index: int) -> int:
        """Return the term of an entry, or of the anchor."""
        return self.anchor_term if index == self.first_index - 1 else self.run_of(index).term

    def first_above(self, key: Callable[[Row], int], value: int) -> int:
        """Find the first index whose (never decreasing) key is above `value`; last index + 1 if there is none."""
        visible = [run for run in self.runs if run.next_index > self.first_index]
        at = bisect_right(visible, value, key=lambda run: key(run.at(run.next_index - 1)))
        if at == len(visible):
            return self.last_index + 1
        return max(self.first_index, visible[at].bisect(key, value))

    def _held(self) -> str:
        if self.last_index < self.first_index:
            return f"no entries (the next is {self.last_index + 1})"
        return f"entries {self.first_index} to {self.last_index}"
