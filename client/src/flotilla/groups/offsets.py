"""Where a group is in its partitions, as values, and the arithmetic on it: what is left to read, where a reset leads.

A committed offset is the next one to read. It may lie below the first record that is left, because retention went on,
or beyond the last one, because a topic's records were lost: what is left to read is counted from what is there.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from flotilla.groups.state import Group, Place


@dataclass(frozen=True, kw_only=True)
class Commit:
    """How far a group has come in a partition."""

    place: Place
    offset: int  # the next one to read
    note: str | None = None  # whatever the member wants to find there again
    committed_ms: int = 0  # given by the database


@dataclass(frozen=True)
class Listed:
    """A group, and the ids of the topics in which it has committed anything."""

    group: Group
    committed: tuple[str, ...] = ()


class Bounds(NamedTuple):
    """Where a partition begins and ends."""

    first: int
    next: int


class ResetKind(StrEnum):
    """The ways to say where a group is to go on."""

    EARLIEST = "earliest"
    LATEST = "latest"
    TIMESTAMP = "timestamp_ms"
    OFFSET = "offset"
    SHIFT = "shift"


class ResetTo(NamedTuple):
    """Where a group is to go on; `value` is a time, an offset, or by how many records to move."""

    kind: ResetKind
    value: int = 0


def lag(committed: int | None, bounds: Bounds) -> int:
    """Count what is left to read. A group that has committed nothing has everything before it."""
    return max(0, bounds.next - max(committed or 0, bounds.first))


def reset_offset(to: ResetTo, committed: int | None, bounds: Bounds, at_time: int | None = None) -> int:
    """Tell where a reset leads: never outside of what is there. `at_time` is the first offset of the time asked for."""
    wanted = {
        ResetKind.EARLIEST: bounds.first,
        ResetKind.LATEST: bounds.next,
        ResetKind.TIMESTAMP: bounds.next if at_time is None else at_time,
        ResetKind.OFFSET: to.value,
        ResetKind.SHIFT: (bounds.first if committed is None else committed) + to.value,
    }[to.kind]
    return min(max(wanted, bounds.first), bounds.next)
