"""Retention by time and by size."""

import pytest

from flotilla_broker.partition.retention import Stretch, keep_from

STRETCHES = (Stretch(11, 100), Stretch(21, 100), Stretch(31, 50))


@pytest.mark.parametrize(
    ("expired", "bytes_max", "committed", "keep"),
    [
        (1, None, 30, 1),  # nothing is deleted
        (15, None, 30, 15),  # records that are too old are deleted
        (99, None, 30, 31),  # all of them, if all are too old
        (99, None, 20, 21),  # but never uncommitted ones
        (1, 250, 30, 1),  # just within the limit
        (1, 249, 30, 1),  # a little more than the limit is kept: only whole ranges are deleted
        (1, 150, 30, 11),
        (1, 149, 30, 11),
        (1, 50, 30, 21),
        (1, 0, 30, 31),
        (15, 50, 30, 21),  # both rules: what the first removes counts for the second
        (1, 0, 10, 11),
    ],
)
def test_start_offset_follows_from_the_limits(expired: int, bytes_max: int | None, committed: int, keep: int) -> None:
    found = keep_from(
        first_index=1, committed_index=committed, expired_index=expired, stretches=STRETCHES, bytes_max=bytes_max
    )
    assert found == keep


def test_start_offset_never_goes_back() -> None:
    found = keep_from(first_index=12, committed_index=30, expired_index=5, stretches=STRETCHES, bytes_max=None)
    assert found == 12
