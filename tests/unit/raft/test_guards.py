"""The guards, one by one; and those that compare logs, against two lists and Raft's own rules."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flotilla_broker.raft import Entry
from flotilla_broker.raft.guards import (
    Fresh,
    Known,
    Mismatch,
    are_in_line,
    find_conflict,
    grants_pre_vote,
    is_countable,
    is_first_vote,
    is_majority,
    judge_append,
    known_commit,
    may_install,
    yields_to,
)

MEMBERS = 3


@dataclass(frozen=True)
class Terms:
    """A log that is a list of terms: the entry at index 1 is the first. What is before the anchor cannot be seen."""

    terms: Sequence[int]
    anchor_index: int = 0

    @property
    def last_index(self) -> int:
        return len(self.terms)

    @property
    def last_term(self) -> int:
        return self.term_of(self.last_index)

    def term_of(self, index: int) -> int:
        assert self.anchor_index <= index <= self.last_index, f"{index} is not held"
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
    """A follower, the leader of the newest term, and what the follower knows to be committed."""

    follower: Terms
    leader: list[int]
    commit_index: int

    @property
    def agreement(self) -> int:
        """The newest index up to which both hold the same."""
        at = 0
        while (
            at < min(len(self.follower.terms), len(self.leader)) and self.follower.terms[at] == self.leader[at]
        ):  # terms are enough: a term has one leader, which writes an index once
            at += 1
        return at

    def message(self, prev_index: int, count: int) -> tuple[int, int, list[Entry]]:
        terms = self.leader[prev_index : prev_index + count]
        return prev_index, Terms(self.leader).term_of(prev_index), entries(prev_index + 1, *terms)


def is_up_to_date(candidate: list[int], voter: list[int]) -> bool:
    return (candidate[-1:] or [0], len(candidate)) >= (voter[-1:] or [0], len(voter))


@st.composite
def raft_histories(draw: st.DrawFn) -> Case:
    """Let three members lead, append and replicate by Raft's rules; return two of them as they are then."""
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
def test_an_append_is_judged_as_raft_would(case: Case, data: st.DataObject) -> None:
    """G2, H1: it never truncates what matches, never accepts what does not, and never touches what is committed."""
    prev_index = data.draw(st.integers(0, len(case.leader)))
    prev_index, prev_term, sent = case.message(prev_index, data.draw(st.integers(0, 5)))
    end = prev_index + len(sent)
    held = case.follower.terms
    verdict = judge_append(case.follower, case.commit_index, prev_index, prev_term, sent)
    if isinstance(verdict, Known):
        assert verdict.index == end
        assert case.agreement >= end
    elif isinstance(verdict, Fresh):
        assert verdict.prev_index == sent[verdict.skip].index - 1 >= case.commit_index
        assert verdict.prev_term == Terms(case.leader).term_of(verdict.prev_index)
        assert case.agreement == verdict.prev_index, "what matches goes, or what does not stays"
        assert [*held[: verdict.prev_index], *(e.term for e in sent[verdict.skip :])] == case.leader[:end]
    else:
        assert case.agreement < prev_index
        assert case.agreement <= verdict.hint_index <= prev_index, "a term that is lower there may begin here"
        assert case.commit_index <= verdict.hint_index


@given(raft_histories(), st.data())
@settings(max_examples=200)
def test_a_conflict_is_never_looked_for_below_where_the_logs_agree(case: Case, data: st.DataObject) -> None:
    """What `find_conflict` promises: of all that lies above its answer, up to the index, nothing is held by both."""
    index = data.draw(st.integers(case.commit_index, len(case.leader)))
    term = Terms(case.leader).term_of(index)
    at, found_term = find_conflict(case.follower, case.commit_index, index, term)
    assert max(case.commit_index, min(index, case.agreement)) <= at <= max(index, case.commit_index)
    assert found_term == case.follower.term_of(at)
    assert found_term <= term or at == max(case.commit_index, case.follower.anchor_index)


@given(raft_histories())
@settings(max_examples=200)
def test_a_leader_and_a_diverged_follower_find_where_they_agree_in_a_step_per_term(case: Case) -> None:
    """H11, G4: each refusal moves the question down, so that an ex-leader rejoins after a few of them."""
    leader = Terms(case.leader)
    prev_index = leader.last_index
    rounds = 0
    while True:
        verdict = judge_append(case.follower, case.commit_index, prev_index, leader.term_of(prev_index), [])
        if not isinstance(verdict, Mismatch):
            break
        rounds += 1
        at, _ = find_conflict(leader, 0, verdict.hint_index, verdict.hint_term)
        assert case.agreement <= min(at, verdict.hint_index) < prev_index
        prev_index = min(at, verdict.hint_index)
    assert rounds <= len(set(case.leader) | set(case.follower.terms)) + 1


JUDGED = [
    # held, anchor, commit, prev, terms sent -> verdict
    ([], 0, 0, (0, 0), [], Known(0)),
    ([], 0, 0, (0, 0), [1, 1], Fresh(0, 0, 0)),
    ([1, 1, 1], 0, 0, (0, 0), [1, 1], Known(2)),  # a repeated append leaves what is behind it
    ([1, 1, 1], 0, 3, (1, 1), [1], Known(2)),
    ([1, 1, 1], 0, 0, (1, 1), [1, 2], Fresh(1, 2, 1)),  # entry 3 is contradicted, entry 2 stays
    ([1, 1, 1], 0, 0, (3, 1), [2], Fresh(0, 3, 1)),
    ([1, 1, 1], 0, 0, (5, 1), [1], Mismatch(3, 1)),  # there is a hole
    ([1, 1, 1], 0, 0, (3, 2), [2], Mismatch(3, 1)),  # the hint may be the index itself: with another term
    ([1, 3, 3], 0, 0, (3, 2), [2], Mismatch(1, 1)),
    ([2, 3, 3], 0, 0, (3, 1), [], Mismatch(0, 0)),
    ([1, 1, 2, 2], 2, 2, (0, 0), [1, 1, 2], Known(3)),  # what was trimmed was committed, and matches
    ([1, 1, 2, 2], 2, 2, (1, 1), [], Known(1)),
    ([1, 1, 2, 2], 2, 2, (1, 1), [1, 3], Fresh(1, 2, 1)),
    ([1, 1], 2, 2, (2, 1), [1], Fresh(0, 2, 1)),  # only an anchor is left
    ([1, 1], 2, 2, (4, 1), [], Mismatch(2, 1)),
]


@pytest.mark.parametrize(("held", "anchor", "commit", "prev", "sent", "verdict"), JUDGED)
def test_appends_and_what_becomes_of_them(
    held: list[int],
    anchor: int,
    commit: int,
    prev: tuple[int, int],
    sent: list[int],
    verdict: Fresh | Known | Mismatch,
) -> None:
    assert judge_append(Terms(held, anchor), commit, *prev, entries(prev[0] + 1, *sent)) == verdict


def test_a_conflict_is_not_looked_for_where_the_other_log_cannot_agree() -> None:
    held = Terms([1, 1, 2, 2, 5, 5, 5])
    assert find_conflict(held, 0, 7, 5) == (7, 5)
    assert find_conflict(held, 0, 9, 6) == (7, 5)
    assert find_conflict(held, 0, 7, 4) == (4, 2)
    assert find_conflict(held, 0, 7, 1) == (2, 1)
    assert find_conflict(held, 0, 7, 0) == (0, 0)
    assert find_conflict(held, 6, 7, 1) == (6, 5), "the floor is agreed upon"
    assert find_conflict(Terms(held.terms, 3), 0, 7, 1) == (3, 2), "below the anchor nothing is known"
    assert find_conflict(held, 9, 9, 1) == (0, 0), "a floor that is not held says nothing"


# -- entries that follow each other -----------------------------------------------------------------------


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
def test_entries_are_in_line_if_indexes_are_dense_and_terms_do_not_go_back(
    prev: tuple[int, int], sent: list[Entry], in_line: bool
) -> None:
    assert are_in_line(*prev, sent) is in_line


@given(raft_histories(), st.integers(0, 20), st.integers(0, 20))
def test_every_part_of_a_legal_log_is_in_line(case: Case, prev_index: int, count: int) -> None:
    prev_index, prev_term, sent = case.message(min(prev_index, len(case.leader)), count)
    assert are_in_line(prev_index, prev_term, sent)


# -- copies -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("held", "commit", "last", "wanted"),
    [
        ([1, 1], 2, (5, 2), True),
        ([1, 1], 0, (2, 1), False),  # it is all here
        ([1, 1, 1], 0, (2, 1), False),  # and more: a late copy takes nothing away
        ([1, 1, 1], 3, (2, 1), False),
        ([1, 1, 1], 3, (3, 9), False),  # committed here: the copy cannot hold another entry, whatever it says
        ([1, 1, 1], 1, (3, 2), True),  # what is here is contradicted
        ([], 0, (1, 1), True),
    ],
)
def test_a_copy_is_installed_only_if_its_last_entry_is_not_here(
    held: list[int], commit: int, last: tuple[int, int], wanted: bool
) -> None:
    assert may_install(Terms(held), commit, *last) is wanted


@given(raft_histories(), st.data())
def test_a_copy_never_takes_away_what_the_leader_has(case: Case, data: st.DataObject) -> None:
    """A copy is a committed beginning of the leader's log: installed, it must not shorten what both hold."""
    last_index = data.draw(st.integers(1, len(case.leader)))
    if may_install(case.follower, case.commit_index, last_index, Terms(case.leader).term_of(last_index)):
        assert case.agreement < last_index
        assert case.commit_index < last_index
    else:
        assert case.agreement >= last_index


# -- numbers ----------------------------------------------------------------------------------------------


def test_a_reply_counts_only_in_its_own_term() -> None:
    """G1."""
    assert [is_countable(term, 5) for term in (4, 5, 6)] == [False, True, False]


def test_a_commit_is_known_up_to_where_the_disk_is() -> None:
    """D, for groups of one as well."""
    assert [known_commit(commit, 5, 0) for commit in (4, 5, 6)] == [4, 5, 5]


def test_entries_of_earlier_terms_are_committed_by_one_of_the_leader_s_own_that_is_on_its_disk() -> None:
    """D, and Raft's figure 8: what is on a majority of disks may still be replaced, if it is of an earlier term."""
    noop = 7
    assert known_commit(9, 6, noop) == 0, "the no-op is counted, and not on this disk"
    assert [known_commit(9, durable, noop) for durable in (7, 8, 9, 10)] == [7, 8, 9, 9]
    assert [known_commit(commit, 6, noop) for commit in (4, 5, 6)] == [4, 5, 6], "known from the leader before"


def test_of_two_that_ask_at_the_same_time_one_gives_way() -> None:
    """To a longer log, or else to the larger id: never both, and never none."""
    for last, own_last in (((1, 5), (1, 5)), ((2, 1), (1, 9)), ((1, 6), (1, 5))):
        for one, other in (("a", "b"), ("b", "a")):
            there = yields_to(one, other, last=last, own_last=own_last)
            back = yields_to(other, one, last=own_last, own_last=last)
            assert there != back
    assert yields_to("a", "b", last=(1, 6), own_last=(1, 5))
    assert yields_to("b", "a", last=(1, 5), own_last=(1, 5))


def test_a_vote_counts_once() -> None:
    assert is_first_vote({"a"}, "b")
    assert not is_first_vote({"a", "b"}, "b")


@pytest.mark.parametrize("members", range(1, 8))
def test_two_majorities_always_share_a_member(members: int) -> None:
    counts = [count for count in range(members + 1) if is_majority(count, members)]
    assert 2 * min(counts) > members
    assert 2 * (min(counts) - 1) <= members
    assert max(counts) == members


def test_a_pre_vote_needs_a_higher_term_a_log_as_good_and_a_leader_that_is_gone() -> None:
    """H12: all three."""
    logs = [((3, 9), True), ((3, 10), True), ((4, 1), True), ((3, 8), False), ((2, 99), False)]
    for (last, good), term, lives in product(logs, (6, 7, 8), (False, True)):
        granted = grants_pre_vote(term=term, own_term=7, last=last, own_last=(3, 9), leader_lives=lives)
        assert granted is (good and term == 8 and not lives)
