"""Disk space: checked before an entry is accepted, so that no write of an accepted entry finds the disk full."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Space:
    """The available space, in segments and bytes."""

    active_bytes: int  # left in the active segment
    spares: int  # spare segments
    growth: int  # segments that can still be created
    reserve: int  # segments that entries must not use
    usable_bytes: int  # of a new segment, after its checkpoint

    @property
    def segments_left(self) -> int:
        """New segments for entries; below zero, the reserve is in use."""
        return self.spares + self.growth - self.reserve

    def admits(self, size: int, pending: int = 0) -> bool:
        """Whether an entry of `size` bytes on disk can be written without the reserve.

        `pending` bytes were admitted before and may not be written yet.
        """
        if self.segments_left < 0 or size > max(self.active_bytes, self.usable_bytes):
            return False
        beyond = size + pending - self.active_bytes
        return beyond <= 0 or -(-beyond // self.usable_bytes) <= self.segments_left


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """What a log occupies, and what it may occupy: the file system, or log_bytes_max if that is less."""

    used_bytes: int
    live_bytes: int  # of entries that are not removed; the cleaner can free the rest in the long run
    capacity_bytes: int
    free_bytes: int


def growth(free_bytes: int, used_bytes: int, log_bytes_max: int | None, segment_bytes: int) -> int:
    """Return the number of segments that can still be created."""
    left = free_bytes if log_bytes_max is None else min(free_bytes, log_bytes_max - used_bytes)
    return max(0, left // segment_bytes)
