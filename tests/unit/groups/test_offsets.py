"""Lag and offset resets."""

import pytest

from flotilla.groups.offsets import OffsetBounds, ResetKind, ResetTo, lag, reset_offset

BOUNDS = OffsetBounds(10, 30)


@pytest.mark.parametrize(
    ("committed", "left"),
    [
        (None, 20),
        (10, 20),
        (25, 5),
        (30, 0),
        (3, 20),  # retention went on
        (99, 0),  # records that were there are gone
    ],
)
def test_lag_counts_only_existing_records(committed: int | None, left: int) -> None:
    assert lag(committed, BOUNDS) == left


@pytest.mark.parametrize(
    ("to", "committed", "at_time", "expected"),
    [
        (ResetTo(ResetKind.EARLIEST), 20, 30, 10),
        (ResetTo(ResetKind.LATEST), 20, 30, 30),
        (ResetTo(ResetKind.TIMESTAMP, 1234), 20, 17, 17),
        (ResetTo(ResetKind.TIMESTAMP, 1234), 20, None, 30),
        (ResetTo(ResetKind.OFFSET, 12), 20, 30, 12),
        (ResetTo(ResetKind.OFFSET, 5), 20, 30, 10),
        (ResetTo(ResetKind.OFFSET, 1 << 62), 20, 30, 30),
        (ResetTo(ResetKind.SHIFT, -5), 20, 30, 15),
        (ResetTo(ResetKind.SHIFT, 5), None, 30, 15),
        (ResetTo(ResetKind.SHIFT, -(1 << 62)), 20, 30, 10),
        (ResetTo(ResetKind.SHIFT, 1 << 62), 20, 30, 30),
    ],
)
def test_reset_offset_is_within_bounds(to: ResetTo, committed: int | None, at_time: int | None, expected: int) -> None:
    assert reset_offset(to, committed, BOUNDS, at_time) == expected
