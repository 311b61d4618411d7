"""How much room there is: decided before an entry is taken, never found out while it is written."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Space:
    """What can still be written, in segments and bytes."""

    active_bytes: int  # left in the segment that is being written
    spares: int  # segments that are made already
    growth: int  # segments that could still be made
    reserve: int  # segments that entries do not get
    usable_bytes: int  # of a new segment, behind its checkpoint

    @property
    def segments_left(self) -> int:
        """New segments that entries may fill; below zero, the reserve is in use."""
        return self.spares + self.growth - self.reserve

    def admits(self, size: int, pending: int = 0) -> bool:
        """Tell whether an entry that takes `size` bytes on disk can be written without touching the reserve.

        `pending` bytes were admitted before, and may not be written yet.
        """
        if self.segments_left < 0 or size > max(self.active_bytes, self.usable_bytes):
            return False
        beyond = size + pending - self.active_bytes
        return beyond <= 0 or -(-beyond // self.usable_bytes) <= self.segments_left


def growth(free_bytes: int, used_bytes: int, log_bytes_max: int | None, segment_bytes: int) -> int:
    """Tell how many more segments can be made."""
    left = free_bytes if log_bytes_max is None else min(free_bytes, log_bytes_max - used_bytes)
    return max(0, left // segment_bytes)
