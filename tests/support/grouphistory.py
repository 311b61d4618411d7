"""Checks of a consumer group, by what its members recorded. Pure.

1. Every acknowledged record was processed at least once, by any member.
2. A partition has one owner at a time: accepted commits of two tenures never interleave.
3. A new owner continues at the last accepted commit: accepted offsets of a partition never decrease.

A tenure is the time in which one member owns a partition. All times are of one clock. A commit took effect at some time
between request and response, so a violation is reported only if it is certain.
"""

from collections import defaultdict
from collections.abc import Iterable
from itertools import combinations
from typing import NamedTuple

from support.history import Name


class Tenure(NamedTuple):
    """One tenure of a member: the n-th of that member."""

    member: str
    number: int


class Accepted(NamedTuple):
    """A commit that was accepted."""

    partition: int
    offset: int
    tenure: Tenure
    sent: float
    answered: float


def violations(acknowledged: Iterable[Name], processed: Iterable[Name], commits: Iterable[Accepted]) -> list[str]:
    """Return descriptions of violations; empty if there are none."""
    done = set(processed)
    found = [f"{name} was acknowledged, but not processed" for name in acknowledged if name not in done]
    of_partition: defaultdict[int, list[Accepted]] = defaultdict(list)
    for commit in commits:
        of_partition[commit.partition].append(commit)
    for partition, own in sorted(of_partition.items()):
        found += _check_tenures(partition, own)
        found += _check_order(partition, own)
    return found


def _check_tenures(partition: int, commits: list[Accepted]) -> list[str]:
    """Find two tenures where each has a commit that is certainly earlier than one of the other."""
    of_tenure: defaultdict[Tenure, list[Accepted]] = defaultdict(list)
    for commit in commits:
        of_tenure[commit.tenure].append(commit)
    return [
        f"partition {partition}: commits of {one} and {other} interleave"
        for one, other in combinations(sorted(of_tenure), 2)
        if _some_before(of_tenure[one], of_tenure[other]) and _some_before(of_tenure[other], of_tenure[one])
    ]


def _some_before(ones: list[Accepted], others: list[Accepted]) -> bool:
    return min(one.answered for one in ones) < max(other.sent for other in others)


def _check_order(partition: int, commits: list[Accepted]) -> list[str]:
    """Find a commit that is certainly later than one with a higher offset."""
    found = []
    highest: Accepted | None = None
    waiting = sorted(commits, key=lambda one: one.answered)
    at = 0
    for commit in sorted(commits, key=lambda one: one.sent):
        while waiting[at].answered < commit.sent:
            highest = waiting[at] if highest is None else max(highest, waiting[at], key=lambda one: one.offset)
            at += 1
        if highest is not None and commit.offset < highest.offset:
            found.append(
                f"partition {partition}: {commit.tenure} committed {commit.offset} after {highest.tenure} "
                f"had committed {highest.offset}"
            )
    return found
