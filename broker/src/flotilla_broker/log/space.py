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

    def admits(self, size: int) -> bool:
        """Tell whether an entry that takes `size` bytes on disk can be written without touching the reserve."""
        if self.segments_left < 0:
            return False
        return size <= self.active_bytes or (self.segments_left > 0 and size <= self.usable_bytes)


def growth(free_bytes: int, used_bytes: int, log_bytes_max: int | None, segment_bytes: int) -> int:
    """Tell how many more segments can be made."""
    left = free_bytes if log_bytes_max is None else min(free_bytes, log_bytes_max - used_bytes)
    return max(0, left // segment_bytes)
