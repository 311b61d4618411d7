"""One group of the broker's log, as Raft sees it."""

from typing import Protocol

from flotilla_broker.log import Log
from flotilla_broker.log.group import Group
from flotilla_broker.log.reading import ReadPlan
from flotilla_broker.raft.messages import Entry


class LogListener(Protocol):
    """Hears of every change of the log, in order, whoever made it."""

    def appended(self, entry: Entry) -> None:
        """An entry was appended."""

    def truncated(self, index: int) -> None:
        """The entries from `index` on are gone."""

    def make_noop(self) -> tuple[bytes, int]:
        """Make the payload and the time of the entry with which a leader begins."""


class GroupLog:
    """One group; its number changes when a copy of another replica's log takes its place."""

    def __init__(self, log: Log, number: int, listener: LogListener) -> None:
        self.log = log
        self.number = number
        self._listener = listener
        self._group = log.group(number)

    @property
    def group(self) -> Group:
        """The group, to look at."""
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
        """Everything up to here is on disk."""
        return self._group.durable_index

    @property
    def next_offset(self) -> int:
        """The offset behind the last record."""
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
        """Tell the term of an entry, or of the anchor."""
        group = self._group
        return group.last_term if index == group.last_index else group.term_of(index)

    def term_start(self, index: int) -> int:
        """Tell an index from which on all entries have the same term up to this one."""
        return max(self._group.first_index, self._group.run_of(index).first_index)

    def offset_behind(self, index: int) -> int:
        """Tell the offset behind the last record of an entry, or of the anchor."""
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
        """Append the entry with which a leader begins."""
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
        """Go on with another group: a copy of another replica's log that took this one's place."""
        self.number = number
        self._group = self.log.group(number)
