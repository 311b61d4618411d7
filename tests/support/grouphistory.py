"""Checks what the members of a consumer group did: pure, from what they remember.

1. Every record that was acknowledged was processed, by somebody, at least once.
2. A partition has one owner at a time: accepted commits of two tenures never interleave.
3. Whoever gets a partition goes on where the last accepted commit ended, or earlier commits of its own begin there: as
   members never go back, accepted offsets of a partition never do.

A tenure is the time for which one member has a partition. Times are of one clock; a commit took effect somewhere
between when it was sent and when it was answered, so only what is certain counts.
"""

from collections import defaultdict
from collections.abc import Iterable
from itertools import combinations
from typing import NamedTuple

from support.history import Name


class Tenure(NamedTuple):
    """A member's time with a partition: the how-manyth of that member."""

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
    """Return what is wrong, in words; nothing if all is well."""
    done = set(processed)
    found = [f"{name} was acknowledged, and nobody processed it" for name in acknowledged if name not in done]
    of_partition: defaultdict[int, list[Accepted]] = defaultdict(list)
    for commit in commits:
        of_partition[commit.partition].append(commit)
    for partition, own in sorted(of_partition.items()):
        found += _check_tenures(partition, own)
        found += _check_order(partition, own)
    return found


def _check_tenures(partition: int, commits: list[Accepted]) -> list[str]:
    """Find two tenures of which each has a commit that certainly came before one of the other."""
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
    """Find a commit that certainly came after one with a higher offset."""
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
