"""Retention: which entries to keep, decided from the index alone. Pure."""

from collections.abc import Iterable
from typing import NamedTuple


class Stretch(NamedTuple):
    """Consecutive entries that are removed together."""

    next_index: int
    size: int


def keep_from(
    *, first_index: int, committed_index: int, expired_index: int, stretches: Iterable[Stretch], bytes_max: int | None
) -> int:
    """Return the first entry to keep; `first_index` if none expired.

    Entries before `expired_index` are too old. If the rest exceeds `bytes_max`, the oldest stretches are removed as
    well, as whole stretches: the rest may slightly exceed the limit. Uncommitted entries are kept.
    """
    keep = max(first_index, expired_index)
    if bytes_max is not None:
        held = [stretch for stretch in stretches if stretch.next_index > keep]
        excess = sum(stretch.size for stretch in held) - bytes_max
        for stretch in held:
            if excess < stretch.size:
                break
            excess -= stretch.size
            keep = stretch.next_index
    return min(keep, committed_index + 1)
