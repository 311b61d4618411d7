"""The guards: pure rules that let only such messages through to the core as keep Raft's promises.

pysyncobj's elections and its commit rule are right; much around them is not (each guard's docstring says what it
holds back, with the line of `syncobj.py` of version 0.3.17). So the core never sees the network: what arrives is
judged here first. Sending and counting what followers have is ours too (`progress.py`).

Nothing here keeps state, asks for the time, or changes a log.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from flotilla_broker.raft.messages import Entry


class Held(Protocol):
    """What a replica holds: an anchor, and the entries behind it."""

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
        """Tell the term of an entry, or of the anchor."""

    def term_start(self, index: int) -> int:
        """Tell an index, at or before this one, from which on all entries have the same term up to it."""


@dataclass(frozen=True, slots=True)
class Fresh:
    """Entries are new: those behind `skip`. What is held behind the one before them contradicts them and goes."""

    skip: int
    prev_index: int
    prev_term: int


@dataclass(frozen=True, slots=True)
class Known:
    """Everything is held already, up to `index`. There may be more behind it, which stays."""

    index: int


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The entry before is not held. The newest that might match is this one."""

    hint_index: int
    hint_term: int


def judge_append(
    held: Held, commit_index: int, prev_index: int, prev_term: int, entries: Sequence[Entry]
) -> Fresh | Known | Mismatch:
    """Apply Raft's own conflict rule before the core sees an append (guard G2).

    The core deletes everything behind `prevLogIdx`, also what matches (984-1006): a delayed or repeated append
    then removes entries that were acknowledged. So entries that match are stripped, and where nothing is left the
    core is not shown any.

    What is committed matches by Raft's own promise (every later leader has it), also where it was trimmed here.
    """
    if prev_index > commit_index and not _matches(held, prev_index, prev_term):
        return Mismatch(*find_conflict(held, commit_index, prev_index, prev_term))
    index, term = prev_index, prev_term
    for skip, entry in enumerate(entries):
        if entry.index > commit_index and not _matches(held, entry.index, entry.term):
            return Fresh(skip, index, term)
        index, term = entry.index, entry.term
    return Known(index)


def _matches(held: Held, index: int, term: int) -> bool:
    return held.anchor_index <= index <= held.last_index and held.term_of(index) == term


def find_conflict(held: Held, floor: int, index: int, term: int) -> tuple[int, int]:
    """Find the newest entry, at or before `index`, that another log with `term` at `index` may hold as well.

    Terms never decrease along a log, so a whole term is skipped at a time. It never goes below `floor`, up to
    which the logs agree (the core's own hint, the end of the log, made a follower that had diverged ask for the
    wrong place again and again: G4).
    """
    at = min(index, held.last_index)
    lowest = max(floor, held.anchor_index)
    while at > lowest and held.term_of(at) > term:
        at = held.term_start(at) - 1
    at = max(at, lowest)
    return (at, held.term_of(at)) if at <= held.last_index else (0, 0)


def are_in_line(prev_index: int, prev_term: int, entries: Sequence[Entry]) -> bool:
    """Tell whether entries follow each other: indexes dense, terms never decreasing.

    The core adds whatever it is given at the end of the log (1012).
    """
    for entry in entries:
        if entry.index != prev_index + 1 or entry.term < prev_term:
            return False
        prev_index, prev_term = entry.index, entry.term
    return True


def is_countable(reply_term: int, current_term: int) -> bool:
    """Tell whether a reply may be counted: only in the term in which it was asked for (guard G1).

    The core's replies carry no term (1114). One that comes late, to a leader that was deposed and elected again,
    claimed entries that the follower has replaced since.
    """
    return reply_term == current_term


def known_commit(commit_index: int, durable_index: int, noop_index: int) -> int:
    """Tell how far this replica may act on a commit (guard D): what it says was committed, it has on disk.

    The core counts itself without asking whether its own copy is on disk (660), and in a group of one it commits at
    once. Followers reply only for what is on theirs; so with this a commit has a majority of disks, ours among them.

    If it counted entries of its own leadership, which begins at `noop_index`, and none of them is on this disk, nothing
    is known (0). Entries of earlier terms before them may be on a majority of disks and still be replaced: only one of
    the leader's own term protects them (Raft, 5.4.2 and figure 8), and after a crash here there would be none.
    """
    index = min(commit_index, durable_index)
    return 0 if index < noop_index <= commit_index else index


def is_first_vote(voters: set[str], voter: str) -> bool:
    """Tell whether a vote of this term is the first of that member (the core counts duplicates, 1065)."""
    return voter not in voters


def grants_pre_vote(
    *, term: int, own_term: int, last: tuple[int, int], own_last: tuple[int, int], leader_lives: bool
) -> bool:
    """Tell whether to support a candidacy before there is one (the core has no pre-vote).

    A member that was cut off or stopped would otherwise come back with a higher term and depose a leader with which
    everybody else was content. `last` is (term, index) of the last entry.
    """
    return term > own_term and last >= own_last and not leader_lives


def yields_to(rival: str, me: str, *, last: tuple[int, int], own_last: tuple[int, int]) -> bool:
    """Tell whether a member that asks for support itself should rather give it to a rival.

    Two that campaign at the same time split the votes, and nobody leads until they lose patience. So one of them gives
    way: to a longer log, or else to the larger id.
    """
    return (last, rival) > (own_last, me)


def is_majority(count: int, members: int) -> bool:
    """Tell whether `count` of `members` is more than half."""
    return 2 * count > members


def may_install(held: Held, commit_index: int, last_index: int, last_term: int) -> bool:
    """Tell whether a copy of the log up to (last_index, last_term), all committed, should replace what is held.

    A copy that comes late must not take away what was acknowledged since: if its last entry is held here, so is
    everything before it.
    """
    return last_index > commit_index and not _matches(held, last_index, last_term)
