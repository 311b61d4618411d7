"""A copy of the log, for a follower that needs entries which the leader has trimmed.

The leader sends an anchor, its committed entries behind it, and the machine's summary of them. All of that is
committed, so it stays true whoever leads. The follower writes it as a group of its own, and at the end that takes
the old one's place in one step. Until then its old log votes and answers as before.
"""

from collections.abc import Sequence

from flotilla_broker.log import Log, LogError
from flotilla_broker.raft.errors import EntryRefused
from flotilla_broker.raft.guards import are_in_line
from flotilla_broker.raft.messages import CopyBegin, Entry
from flotilla_broker.raft.port import Machine
from flotilla_broker.raft.progress import Mode, Progress

UNFINISHED = b""  # the note on a group that is still being copied; after a restart such groups are dropped


class CopyOut:
    """The leader's side: what was sent, and what of it is on the follower's disk."""

    def __init__(self, begin: CopyBegin, now: float) -> None:
        self.begin = begin
        self.moved_at = now
        self.progress = Progress(
            begin.anchor_index + 1, begin.anchor_index, Mode.STREAM, commit_told=begin.anchor_index
        )

    @property
    def number(self) -> int:
        """Which copy."""
        return self.begin.copy

    def accepted(self, now: float, index: int) -> None:
        """Take note of what arrived."""
        self.moved_at = now
        self.progress.accepted(index)

    @property
    def is_done(self) -> bool:
        """Tell whether the follower has all of it."""
        return self.progress.match_index >= self.begin.last_index


class CopyIn:
    """The follower's side: a group in the making. Making one raises EntryRefused or DiskFull."""

    def __init__(self, log: Log, machine: Machine, leader: str, begin: CopyBegin) -> None:
        self.leader = leader
        self.begin = begin
        self._log = log
        self._machine = machine
        machine.check_state(begin.last_index, begin.state)
        log.admit(len(begin.state))
        self.number = log.create_group(
            UNFINISHED,
            anchor_index=begin.anchor_index,
            anchor_term=begin.anchor_term,
            first_offset=begin.first_offset,
        )

    @property
    def last_index(self) -> int:
        """How far it got."""
        return self._log.group(self.number).last_index

    @property
    def is_whole(self) -> bool:
        """Tell whether everything is there."""
        return self.last_index == self.begin.last_index

    def add(self, entries: Sequence[Entry]) -> None:
        """Append the next entries; raises EntryRefused or LogError, and is of no more use then."""
        group = self._log.group(self.number)
        if not are_in_line(group.last_index, group.last_term, entries):
            raise EntryRefused(f"the entries of a copy do not follow entry {group.last_index}")
        if entries and entries[-1].index > self.begin.last_index:
            raise EntryRefused(f"a copy goes beyond its end, entry {self.begin.last_index}")
        self._machine.check(entries, group.next_offset)
        for entry in entries:
            self._log.admit(len(entry.payload))
            self._log.append(self.number, entry.index, entry.term, entry.payload, entry.next_offset, entry.time_ms)

    def install(self, old: int, term: int, vote: bytes) -> None:
        """Take the place of group `old`, with the promises that it made."""
        index, state = self.begin.last_index, self.begin.state
        self._log.set_term(self.number, term, vote)
        self._log.provide_state(self.number, lambda: (index, state))
        self._log.save_state(self.number)
        self._log.replace_group(old, self.number, self._log.group(old).meta)

    def drop(self) -> None:
        """Give up; what was written goes."""
        try:
            self._log.drop_group(self.number)
        except LogError as error:  # the log has failed: the process is about to end
            raise EntryRefused(f"a copy cannot be given up: {error}") from error
