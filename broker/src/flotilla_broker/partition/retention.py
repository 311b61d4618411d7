"""How long records stay: a pure decision, from what the log knows without reading a record."""

from collections.abc import Iterable
from typing import NamedTuple


class Stretch(NamedTuple):
    """Some consecutive entries that lie together: what space is freed in."""

    next_index: int
    size: int


def keep_from(
    *, first_index: int, committed_index: int, expired_index: int, stretches: Iterable[Stretch], bytes_max: int | None
) -> int:
    """Tell the first entry to keep: `first_index` if nothing has to go.

    Entries before `expired_index` are too old. If the rest takes more than `bytes_max`, the oldest stretches go too,
    whole ones only: a little more than the limit stays rather than less. What is not committed stays.
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
