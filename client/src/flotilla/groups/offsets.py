"""Committed offsets of consumer groups, lag and offset resets.

A committed offset is the next one to read. It may be below the first offset of the partition, because retention deleted
records, or above the next offset, because records were lost. Lag counts only existing records.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from flotilla.groups.state import Group, PartitionId


@dataclass(frozen=True, kw_only=True)
class Commit:
    """A committed offset."""

    tp: PartitionId
    offset: int  # the next one to read
    note: str | None = None  # metadata of the member
    committed_ms: int = 0  # set by the database


@dataclass(frozen=True)
class ListedGroup:
    """A group, and the ids of the topics with committed offsets."""

    group: Group
    committed: tuple[str, ...] = ()


class OffsetBounds(NamedTuple):
    """First and next offset of a partition."""

    first: int
    next: int


class ResetKind(StrEnum):
    """Kinds of reset targets."""

    EARLIEST = "earliest"
    LATEST = "latest"
    TIMESTAMP = "timestamp_ms"
    OFFSET = "offset"
    SHIFT = "shift"


class ResetTo(NamedTuple):
    """Target of an offset reset; `value` is a timestamp, an offset, or a number of records to shift by."""

    kind: ResetKind
    value: int = 0


def lag(committed: int | None, bounds: OffsetBounds) -> int:
    """Return the number of records to read. Without a committed offset, that is all records."""
    return max(0, bounds.next - max(committed or 0, bounds.first))


def reset_offset(to: ResetTo, committed: int | None, bounds: OffsetBounds, at_time: int | None = None) -> int:
    """Return the new offset, within the bounds of the partition. `at_time` is the first offset at the timestamp."""
    wanted = {
        ResetKind.EARLIEST: bounds.first,
        ResetKind.LATEST: bounds.next,
        ResetKind.TIMESTAMP: bounds.next if at_time is None else at_time,
        ResetKind.OFFSET: to.value,
        ResetKind.SHIFT: (bounds.first if committed is None else committed) + to.value,
    }[to.kind]
    return min(max(wanted, bounds.first), bounds.next)
