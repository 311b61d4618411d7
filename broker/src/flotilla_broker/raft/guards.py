"""The guards: pure rules that decide which messages reach pysyncobj.

The elections and the commit rule of pysyncobj are correct; other parts break Raft's safety. Each guard's docstring
names the defect and its line in `syncobj.py` 0.3.17; docs/raft.md lists all rules with their tests. Messages from the
network pass these rules first. Sending, and what a leader knows of its followers, is ours too (`progress.py`).

Nothing here keeps state, reads a clock, or changes a log.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from flotilla_broker.raft.messages import Entry


class ReplicaLog(Protocol):
    """The log of a replica: an anchor, and the entries after it."""

    @property
    def anchor_index(self) -> int:
        """The index before the first entry."""

    @property
    def last_index(self) -> int:
        """The index of the last entry."""

    @property
    def last_term(self) -> int:
        """The term of the last entry."""

    def term_of(self, index: int) -> int:
        """Return the term of an entry, or of the anchor."""

    def term_start(self, index: int) -> int:
        """Return an index at or before this one; all entries between the two have the same term."""


@dataclass(frozen=True, slots=True)
class NewEntries:
    """Entries after the first `skip` are new. Entries of this log after `prev_index` conflict and are deleted."""

    skip: int
    prev_index: int
    prev_term: int


@dataclass(frozen=True, slots=True)
class StoredEntries:
    """All entries up to `index` are stored. Later entries of this log stay."""

    index: int


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The previous entry does not match. The last entry that may match is at `hint_index`."""

    hint_index: int
    hint_term: int


def classify_append(
    log: ReplicaLog, commit_index: int, prev_index: int, prev_term: int, entries: Sequence[Entry]
) -> NewEntries | StoredEntries | Mismatch:
    """Apply Raft's conflict rule before pysyncobj sees an append: only conflicting entries are deleted.

    pysyncobj deletes every entry after `prevLogIdx`, also those that match (984-1006): a delayed or repeated append
    would remove acknowledged entries. So entries that match are stripped; if none is left, pysyncobj gets no entries.

    Committed entries match by leader completeness (every later leader has them), also where they were trimmed here.
    """
    if prev_index > commit_index and not _matches(log, prev_index, prev_term):
        return Mismatch(*find_conflict(log, commit_index, prev_index, prev_term))
    index, term = prev_index, prev_term
    for skip, entry in enumerate(entries):
        if entry.index > commit_index and not _matches(log, entry.index, entry.term):
            return NewEntries(skip, index, term)
        index, term = entry.index, entry.term
    return StoredEntries(index)


def _matches(log: ReplicaLog, index: int, term: int) -> bool:
    return log.anchor_index <= index <= log.last_index and log.term_of(index) == term


def find_conflict(log: ReplicaLog, floor: int, index: int, term: int) -> tuple[int, int]:
    """Find the last entry, at or before `index`, that may match a log with `term` at `index`.

    Terms never decrease along a log, so a whole term is skipped at a time. It never goes below `floor`, up to
    which the logs agree. (pysyncobj's hint is the end of the follower's log: a diverged follower then asks for the
    wrong index again and again.)
    """
    at = min(index, log.last_index)
    lowest = max(floor, log.anchor_index)
    while at > lowest and log.term_of(at) > term:
        at = log.term_start(at) - 1
    at = max(at, lowest)
    return (at, log.term_of(at)) if at <= log.last_index else (0, 0)


def is_caught_up(log: ReplicaLog, verified_index: int, commit_index: int, term: int) -> bool:
    """Whether a log that matches the leader's up to `verified_index` has everything that was ever committed.

    It has if the leader of `term` has committed an entry of its own term, and the log has that entry: every earlier
    entry comes before it. A commit index of an earlier term may be older than what was committed.
    """
    return log.anchor_index <= commit_index <= verified_index and log.term_of(commit_index) == term


def are_consecutive(prev_index: int, prev_term: int, entries: Sequence[Entry]) -> bool:
    """Whether indexes are contiguous and terms never decrease.

    pysyncobj appends every entry that it gets, without a check (1006).
    """
    for entry in entries:
        if entry.index != prev_index + 1 or entry.term < prev_term:
            return False
        prev_index, prev_term = entry.index, entry.term
    return True


def is_countable(reply_term: int, current_term: int) -> bool:
    """Whether a reply counts: only in the term of the request.

    Replies of pysyncobj carry no term (1098). A late one, to a leader that was deposed and elected again, would count
    entries that the follower has replaced since.
    """
    return reply_term == current_term


def safe_commit_index(commit_index: int, durable_index: int, noop_index: int) -> int:
    """Return the commit index that this replica may act on: only entries on its own disk.

    pysyncobj counts the leader itself even if the leader's entry is not durable (660), and in a group of one it commits
    at once. Followers reply only for durable entries. So with this rule a committed entry is on a majority of disks,
    including the leader's.

    If pysyncobj counted entries of this leader's own term, which starts at `noop_index`, and none of them is on this
    disk, the result is 0. Entries of earlier terms may be on a majority of disks and still be replaced: only an entry
    of the leader's own term protects them (Raft paper, 5.4.2 and figure 8), and after a crash here there would be none.
    """
    index = min(commit_index, durable_index)
    return 0 if index < noop_index <= commit_index else index


def is_first_vote(voters: set[str], voter: str) -> bool:
    """Whether a vote is the first of that member in this term: pysyncobj counts duplicates (1065)."""
    return voter not in voters


def grants_pre_vote(
    *, term: int, own_term: int, last: tuple[int, int], own_last: tuple[int, int], leader_is_alive: bool
) -> bool:
    """Whether to grant a pre-vote (Raft thesis, 9.6); pysyncobj has none.

    Without it, a member that was partitioned or stopped returns with a higher term and deposes a leader that the
    majority follows. `last` is (term, index) of the last entry.
    """
    return term > own_term and last >= own_last and not leader_is_alive


def yields_to(rival: str, me: str, *, last: tuple[int, int], own_last: tuple[int, int]) -> bool:
    """Whether a member that runs a pre-vote itself grants one to a rival.

    Two members that campaign at the same time split the vote, and the group has no leader until the next election
    timeout. So one of them yields: to the more up-to-date log, or else to the larger id.
    """
    return (last, rival) > (own_last, me)


def is_majority(count: int, members: int) -> bool:
    """Whether `count` of `members` is more than half."""
    return 2 * count > members


def may_install(log: ReplicaLog, commit_index: int, last_index: int, last_term: int) -> bool:
    """Whether a snapshot up to (last_index, last_term), all committed, should replace this log.

    A late snapshot must not remove entries that were acknowledged since: if this log has its last entry, it has every
    entry before it too (log matching).
    """
    return last_index > commit_index and not _matches(log, last_index, last_term)
