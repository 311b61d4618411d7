"""The check of group histories finds what it should find."""

from support.grouphistory import Accepted, Tenure, violations
from support.history import Name

ONE, TWO, BACK = Tenure("a", 1), Tenure("b", 1), Tenure("a", 2)


def commit(tenure: Tenure, offset: int, at: float, took: float = 0.5, partition: int = 0) -> Accepted:
    return Accepted(partition, offset, tenure, at, at + took)


def test_partition_that_moves_to_another_member_and_back_is_valid() -> None:
    commits = [commit(ONE, 1, 1), commit(ONE, 2, 2), commit(TWO, 2, 3), commit(TWO, 5, 4), commit(BACK, 6, 5)]
    assert violations([Name("p", 1)], [Name("p", 1), Name("p", 2)], commits) == []


def test_commits_that_overlap_in_time_are_not_a_violation() -> None:
    assert violations([], [], [commit(ONE, 2, 1, took=5), commit(TWO, 1, 2), commit(TWO, 3, 7)]) == []


def test_unprocessed_record_is_a_violation() -> None:
    assert violations([Name("p", 1)], [], []) == ["Name(producer='p', number=1) was acknowledged, but not processed"]


def test_two_owners_at_a_time_are_a_violation() -> None:
    found = violations([], [], [commit(ONE, 1, 1), commit(TWO, 2, 2), commit(ONE, 3, 3)])
    assert len(found) == 1
    assert "interleave" in found[0]


def test_decreasing_committed_offset_is_a_violation() -> None:
    found = violations([], [], [commit(ONE, 5, 1), commit(TWO, 3, 2), commit(TWO, 3, 2, partition=1)])
    assert len(found) == 1
    assert "committed 3 after" in found[0]
