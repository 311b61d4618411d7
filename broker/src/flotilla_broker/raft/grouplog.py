"""One group of the broker's log, with the interface that Raft needs."""

from typing import Protocol

from flotilla_broker.log import Log
from flotilla_broker.log.group import Group
from flotilla_broker.log.reading import ReadPlan
from flotilla_broker.raft.messages import Entry


class LogListener(Protocol):
    """Gets every change of the log, in order."""

    def appended(self, entry: Entry) -> None:
        """An entry was appended."""

    def truncated(self, index: int) -> None:
        """The entries from `index` on were removed."""

    def make_noop(self) -> tuple[bytes, int]:
        """Return payload and time of a new leader's no-op entry."""


class GroupLog:
    """One group. Its number changes when a snapshot replaces it."""

    def __init__(self, log: Log, number: int, listener: LogListener) -> None:
        self.log = log
        self.number = number
        self._listener = listener
        self._group = log.group(number)

    @property
    def group(self) -> Group:
        """The group, read-only."""
        return self._group

    @property
    def anchor_index(self) -> int:
        """The index before the first entry."""
        return self._group.first_index - 1

    @property
    def last_index(self) -> int:
        """The index of the last entry."""
        return self._group.last_index

    @property
    def last_term(self) -> int:
        """The term of the last entry."""
        return self._group.last_term

    @property
    def durable_index(self) -> int:
        """All entries up to here are durable."""
        return self._group.durable_index

    @property
    def next_offset(self) -> int:
        """The offset after the last record."""
        return self._group.next_offset

    @property
    def term(self) -> int:
        """The term that was saved last."""
        return self._group.term

    @property
    def vote(self) -> str:
        """The vote that was saved with it."""
        return self._group.vote.decode("ascii")

    def term_of(self, index: int) -> int:
        """Return the term of an entry, or of the anchor."""
        group = self._group
        return group.last_term if index == group.last_index else group.term_of(index)

    def term_start(self, index: int) -> int:
        """Return an index at or before this one; all entries between the two have the same term."""
        return max(self._group.first_index, self._group.run_of(index).first_index)

    def offset_behind(self, index: int) -> int:
        """Return the offset after the last record of an entry, or of the anchor."""
        group = self._group
        if index == group.last_index:
            return group.next_offset
        if index < group.first_index:
            return group.first_offset
        return group.run_of(index).at(index).next_offset

    def append(self, entry: Entry) -> None:
        """Append an entry."""
        self.log.append(self.number, entry.index, entry.term, entry.payload, entry.next_offset, entry.time_ms)
        self._listener.appended(entry)

    def append_noop(self, index: int, term: int) -> None:
        """Append a new leader's no-op entry."""
        payload, time_ms = self._listener.make_noop()
        self.append(Entry(index, term, self._group.next_offset, time_ms, memoryview(payload)))

    def truncate(self, index: int) -> None:
        """Remove the entries from `index` on."""
        self.log.truncate(self.number, index)
        self._listener.truncated(index)

    def save_term(self, term: int, vote: str) -> None:
        """Save term and vote."""
        self.log.set_term(self.number, term, vote.encode("ascii"))

    def plan(self, index: int, bytes_max: int) -> ReadPlan:
        """Plan to read entries from `index` on."""
        return self.log.plan_read(self.number, index, bytes_max=bytes_max)

    def switch(self, number: int) -> None:
        """Continue with another group: an installed snapshot."""
        self.number = number
        self._group = self.log.group(number)
