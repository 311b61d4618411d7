"""The guards, one by one; those that compare logs are tested against two lists and the rules of Raft."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flotilla_broker.raft import Entry
from flotilla_broker.raft.guards import (
    Mismatch,
    NewEntries,
    StoredEntries,
    are_consecutive,
    classify_append,
    find_conflict,
    grants_pre_vote,
    is_countable,
    is_first_vote,
    is_majority,
    may_install,
    safe_commit_index,
    yields_to,
)

MEMBERS = 3


@dataclass(frozen=True)
class Terms:
    """A log as a list of terms; the first is the entry at index 1. Entries before the anchor cannot be read."""

    terms: Sequence[int]
    anchor_index: int = 0

    @property
    def last_index(self) -> int:
        return len(self.terms)

    @property
    def last_term(self) -> int:
        return self.term_of(self.last_index)

    def term_of(self, index: int) -> int:
        assert self.anchor_index <= index <= self.last_index, f"{index} is not in the log"
        return self.terms[index - 1] if index else 0

    def term_start(self, index: int) -> int:
        while index - 1 > self.anchor_index and self.term_of(index - 1) == self.term_of(index):
            index -= 1
        return index


def entries(first: int, *terms: int) -> list[Entry]:
    return [Entry(first + at, term, 0, 0, memoryview(b"")) for at, term in enumerate(terms)]


# -- two logs ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A follower, the leader of the newest term, and the commit index that the follower knows."""

    follower: Terms
    leader: list[int]
    commit_index: int

    @property
    def agreement(self) -> int:
        """The newest index up to which both logs match."""
        at = 0
        while (
            at < min(len(self.follower.terms), len(self.leader)) and self.follower.terms[at] == self.leader[at]
        ):  # terms are enough: a term has one leader, which writes each index once
            at += 1
        return at

    def message(self, prev_index: int, count: int) -> tuple[int, int, list[Entry]]:
        terms = self.leader[prev_index : prev_index + count]
        return prev_index, Terms(self.leader).term_of(prev_index), entries(prev_index + 1, *terms)


def is_up_to_date(candidate: list[int], voter: list[int]) -> bool:
    return (candidate[-1:] or [0], len(candidate)) >= (voter[-1:] or [0], len(voter))


@st.composite
def raft_histories(draw: st.DrawFn) -> Case:
    """Let three members lead, append and replicate by the rules of Raft; return two of them."""
    logs: list[list[int]] = [[] for _ in range(MEMBERS)]
    committed, leader = 0, 0
    for term in range(1, draw(st.integers(1, 6)) + 1):
        able = [
            at for at in range(MEMBERS) if is_majority(sum(is_up_to_date(logs[at], other) for other in logs), MEMBERS)
        ]
        leader = draw(st.sampled_from(able))
        logs[leader] = logs[leader] + [term] * draw(st.integers(1, 4))
        for at in range(MEMBERS):
            copied = draw(st.integers(0, len(logs[leader])))
            if at != leader and logs[at][:copied] != logs[leader][:copied]:
                logs[at] = logs[leader][:copied]
        for index in range(1, len(logs[leader]) + 1):
            holders = sum(log[:index] == logs[leader][:index] for log in logs)
            if is_majority(holders, MEMBERS) and logs[leader][index - 1] == term:
                committed = max(committed, index)
    follower = logs[draw(st.sampled_from([at for at in range(MEMBERS) if at != leader]))]
    same = Case(Terms(follower), logs[leader], 0).agreement
    known = draw(st.integers(0, min(committed, same)))
    anchor = draw(st.integers(0, known))
    return Case(Terms(follower, anchor), logs[leader], known)


@given(raft_histories(), st.data())
@settings(max_examples=200)
def test_append_is_classified_like_in_raft(case: Case, data: st.DataObject) -> None:
    """It never truncates matching entries, never accepts conflicting ones, and never touches committed ones."""
    prev_index = data.draw(st.integers(0, len(case.leader)))
    prev_index, prev_term, sent = case.message(prev_index, data.draw(st.integers(0, 5)))
    end = prev_index + len(sent)
    held = case.follower.terms
    verdict = classify_append(case.follower, case.commit_index, prev_index, prev_term, sent)
    if isinstance(verdict, StoredEntries):
        assert verdict.index == end
        assert case.agreement >= end
    elif isinstance(verdict, NewEntries):
        assert verdict.prev_index == sent[verdict.skip].index - 1 >= case.commit_index
        assert verdict.prev_term == Terms(case.leader).term_of(verdict.prev_index)
        assert case.agreement == verdict.prev_index, "a matching entry would be removed, or a conflicting one kept"
        assert [*held[: verdict.prev_index], *(e.term for e in sent[verdict.skip :])] == case.leader[:end]
    else:
        assert case.agreement < prev_index
        assert case.agreement <= verdict.hint_index <= prev_index, "the leader's lower term may begin here"
        assert case.commit_index <= verdict.hint_index


@given(raft_histories(), st.data())
@settings(max_examples=200)
def test_conflict_hint_is_never_below_the_match_index(case: Case, data: st.DataObject) -> None:
    """Between the result of `find_conflict` and the index, the logs match nowhere."""
    index = data.draw(st.integers(case.commit_index, len(case.leader)))
    term = Terms(case.leader).term_of(index)
    at, found_term = find_conflict(case.follower, case.commit_index, index, term)
    assert max(case.commit_index, min(index, case.agreement)) <= at <= max(index, case.commit_index)
    assert found_term == case.follower.term_of(at)
    assert found_term <= term or at == max(case.commit_index, case.follower.anchor_index)


@given(raft_histories())
@settings(max_examples=200)
def test_leader_finds_the_match_index_of_a_diverged_follower_in_one_step_per_term(case: Case) -> None:
    """Each rejection moves the next index down, so a former leader rejoins after a few of them."""
    leader = Terms(case.leader)
    prev_index = leader.last_index
    rounds = 0
    while True:
        verdict = classify_append(case.follower, case.commit_index, prev_index, leader.term_of(prev_index), [])
        if not isinstance(verdict, Mismatch):
            break
        rounds += 1
        at, _ = find_conflict(leader, 0, verdict.hint_index, verdict.hint_term)
        assert case.agreement <= min(at, verdict.hint_index) < prev_index
        prev_index = min(at, verdict.hint_index)
    assert rounds <= len(set(case.leader) | set(case.follower.terms)) + 1


JUDGED = [
    # log, anchor, commit index, prev index, sent terms -> verdict
    ([], 0, 0, (0, 0), [], StoredEntries(0)),
    ([], 0, 0, (0, 0), [1, 1], NewEntries(0, 0, 0)),
    ([1, 1, 1], 0, 0, (0, 0), [1, 1], StoredEntries(2)),  # a repeated append keeps the entries after it
    ([1, 1, 1], 0, 3, (1, 1), [1], StoredEntries(2)),
    ([1, 1, 1], 0, 0, (1, 1), [1, 2], NewEntries(1, 2, 1)),  # entry 3 conflicts, entry 2 is kept
    ([1, 1, 1], 0, 0, (3, 1), [2], NewEntries(0, 3, 1)),
    ([1, 1, 1], 0, 0, (5, 1), [1], Mismatch(3, 1)),  # there is a gap
    ([1, 1, 1], 0, 0, (3, 2), [2], Mismatch(3, 1)),  # the hint may be the index itself: with another term
    ([1, 3, 3], 0, 0, (3, 2), [2], Mismatch(1, 1)),
    ([2, 3, 3], 0, 0, (3, 1), [], Mismatch(0, 0)),
    ([1, 1, 2, 2], 2, 2, (0, 0), [1, 1, 2], StoredEntries(3)),  # trimmed entries were committed, so they match
    ([1, 1, 2, 2], 2, 2, (1, 1), [], StoredEntries(1)),
    ([1, 1, 2, 2], 2, 2, (1, 1), [1, 3], NewEntries(1, 2, 1)),
    ([1, 1], 2, 2, (2, 1), [1], NewEntries(0, 2, 1)),  # only an anchor is left
    ([1, 1], 2, 2, (4, 1), [], Mismatch(2, 1)),
]


@pytest.mark.parametrize(("held", "anchor", "commit", "prev", "sent", "verdict"), JUDGED)
def test_append_verdicts(
    held: list[int],
    anchor: int,
    commit: int,
    prev: tuple[int, int],
    sent: list[int],
    verdict: NewEntries | StoredEntries | Mismatch,
) -> None:
    assert classify_append(Terms(held, anchor), commit, *prev, entries(prev[0] + 1, *sent)) == verdict


def test_conflict_is_not_searched_where_the_logs_cannot_match() -> None:
    held = Terms([1, 1, 2, 2, 5, 5, 5])
    assert find_conflict(held, 0, 7, 5) == (7, 5)
    assert find_conflict(held, 0, 9, 6) == (7, 5)
    assert find_conflict(held, 0, 7, 4) == (4, 2)
    assert find_conflict(held, 0, 7, 1) == (2, 1)
    assert find_conflict(held, 0, 7, 0) == (0, 0)
    assert find_conflict(held, 6, 7, 1) == (6, 5), "all members have the floor"
    assert find_conflict(Terms(held.terms, 3), 0, 7, 1) == (3, 2), "below the anchor nothing is known"
    assert find_conflict(held, 9, 9, 1) == (0, 0), "a floor that this log lacks proves nothing"


# -- consecutive entries ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prev", "sent", "in_line"),
    [
        ((3, 2), [], True),
        ((3, 2), entries(4, 2, 2, 5), True),
        ((3, 2), entries(5, 2), False),
        ((3, 2), entries(3, 2), False),
        ((3, 2), entries(4, 1), False),
        ((3, 2), entries(4, 3, 2), False),
        ((3, 2), [*entries(4, 2), *entries(6, 2)], False),
        ((3, 2), [*entries(4, 2), *entries(4, 2)], False),
    ],
)
def test_entries_are_consecutive_if_indexes_are_contiguous_and_terms_do_not_decrease(
    prev: tuple[int, int], sent: list[Entry], in_line: bool
) -> None:
    assert are_consecutive(*prev, sent) is in_line


@given(raft_histories(), st.integers(0, 20), st.integers(0, 20))
def test_every_slice_of_a_valid_log_is_consecutive(case: Case, prev_index: int, count: int) -> None:
    prev_index, prev_term, sent = case.message(min(prev_index, len(case.leader)), count)
    assert are_consecutive(prev_index, prev_term, sent)


# -- snapshots --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("held", "commit", "last", "wanted"),
    [
        ([1, 1], 2, (5, 2), True),
        ([1, 1], 0, (2, 1), False),  # all entries exist
        ([1, 1, 1], 0, (2, 1), False),  # and more: a late snapshot removes nothing
        ([1, 1, 1], 3, (2, 1), False),
        ([1, 1, 1], 3, (3, 9), False),  # committed here: the snapshot cannot contain another entry
        ([1, 1, 1], 1, (3, 2), True),  # the log conflicts with it
        ([], 0, (1, 1), True),
    ],
)
def test_snapshot_is_installed_only_if_the_log_lacks_its_last_entry(
    held: list[int], commit: int, last: tuple[int, int], wanted: bool
) -> None:
    assert may_install(Terms(held), commit, *last) is wanted


@given(raft_histories(), st.data())
def test_snapshot_never_removes_entries_of_the_leader(case: Case, data: st.DataObject) -> None:
    """A snapshot is a committed prefix of the leader's log: installing it must not remove matching entries."""
    last_index = data.draw(st.integers(1, len(case.leader)))
    if may_install(case.follower, case.commit_index, last_index, Terms(case.leader).term_of(last_index)):
        assert case.agreement < last_index
        assert case.commit_index < last_index
    else:
        assert case.agreement >= last_index


# -- terms, commits and votes -----------------------------------------------------------------------------


def test_reply_counts_only_in_its_own_term() -> None:
    """A late reply may be about entries that the follower has replaced since."""
    assert [is_countable(term, 5) for term in (4, 5, 6)] == [False, True, False]


def test_commit_index_is_limited_by_the_durable_index() -> None:
    """A replica acts on a commit only up to its durable index, also in a group of one."""
    assert [safe_commit_index(commit, 5, 0) for commit in (4, 5, 6)] == [4, 5, 5]


def test_entries_of_earlier_terms_are_committed_with_a_durable_entry_of_the_leader_s_term() -> None:
    """Raft's figure 8: an entry of an earlier term on a majority of disks may still be replaced."""
    noop = 7
    assert safe_commit_index(9, 6, noop) == 0, "the no-op is counted, and not on this disk"
    assert [safe_commit_index(9, durable, noop) for durable in (7, 8, 9, 10)] == [7, 8, 9, 9]
    assert [safe_commit_index(commit, 6, noop) for commit in (4, 5, 6)] == [4, 5, 6], "known from the leader before"


def test_one_of_two_simultaneous_candidates_yields() -> None:
    """To the more up-to-date log, or else to the larger id: exactly one of them."""
    for last, own_last in (((1, 5), (1, 5)), ((2, 1), (1, 9)), ((1, 6), (1, 5))):
        for one, other in (("a", "b"), ("b", "a")):
            there = yields_to(one, other, last=last, own_last=own_last)
            back = yields_to(other, one, last=own_last, own_last=last)
            assert there != back
    assert yields_to("a", "b", last=(1, 6), own_last=(1, 5))
    assert yields_to("b", "a", last=(1, 5), own_last=(1, 5))


def test_vote_counts_once_per_member() -> None:
    assert is_first_vote({"a"}, "b")
    assert not is_first_vote({"a", "b"}, "b")


@pytest.mark.parametrize("members", range(1, 8))
def test_two_majorities_always_share_a_member(members: int) -> None:
    counts = [count for count in range(members + 1) if is_majority(count, members)]
    assert 2 * min(counts) > members
    assert 2 * (min(counts) - 1) <= members
    assert max(counts) == members


def test_pre_vote_needs_a_higher_term_an_up_to_date_log_and_no_live_leader() -> None:
    """All three conditions are needed."""
    logs = [((3, 9), True), ((3, 10), True), ((4, 1), True), ((3, 8), False), ((2, 99), False)]
    for (last, good), term, lives in product(logs, (6, 7, 8), (False, True)):
        granted = grants_pre_vote(term=term, own_term=7, last=last, own_last=(3, 9), leader_is_alive=lives)
        assert granted is (good and term == 8 and not lives)
