"""Settings of the log, with validation."""

from dataclasses import dataclass

from flotilla_broker.log.frames import frame_bytes
from flotilla_broker.log.records import Durability

PAGE_BYTES = 4096  # page of the file system; flushes write whole pages
_MIB = 1 << 20
SEGMENTS_PER_READ_MAX = 8  # entries of a partition with little traffic are in many segments
READS_MAX = 32  # at the same time
_SPARES_MAX = 64
_OPEN_FILES_MIN = 8
_SEGMENT_BYTES_MAX = 1 << 31  # positions have 32 bits; a checkpoint may exceed the segment size


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """Settings of one log. The defaults suit a broker with a volume of its own."""

    durability: Durability = Durability.FSYNC
    segment_bytes: int = 64 * _MIB
    entry_bytes_max: int = 8 * _MIB + _MIB // 16
    reserve_segments: int = 2  # reserved for terms, votes, no-ops and the cleaner
    ahead_segments: int = 1  # created in advance, beyond the reserve
    log_bytes_max: int | None = None  # of all files; None: limited by the file system
    clean_below: float = 0.5  # a segment with a smaller live part is cleaned
    open_files_max: int = 256

    @property
    def open_files_most(self) -> int:
        """Maximum number of open files: in the cache, and in reads in progress."""
        return self.open_files_max + READS_MAX * SEGMENTS_PER_READ_MAX

    def __post_init__(self) -> None:
        _require(2 <= self.reserve_segments <= _SPARES_MAX, "reserve_segments", f"from 2 to {_SPARES_MAX}")  # noqa: PLR2004 - one for the writer, one for the cleaner
        _require(0 <= self.ahead_segments <= _SPARES_MAX, "ahead_segments", f"from 0 to {_SPARES_MAX}")
        _require(self.entry_bytes_max >= 1, "entry_bytes_max", "at least 1")
        least = 2 * frame_bytes(self.entry_bytes_max)
        _require(
            least <= self.segment_bytes <= _SEGMENT_BYTES_MAX,
            "segment_bytes",
            f"from {least} (two of the largest entries) to {_SEGMENT_BYTES_MAX}",
        )
        _require(self.segment_bytes % PAGE_BYTES == 0, "segment_bytes", f"a multiple of {PAGE_BYTES}")
        held = (self.reserve_segments + 2) * self.segment_bytes
        _require(
            self.log_bytes_max is None or self.log_bytes_max >= held,
            "log_bytes_max",
            f"at least {held} (the reserve and two segments)",
        )
        _require(0 < self.clean_below < 1, "clean_below", "between 0 and 1")
        _require(self.open_files_max >= _OPEN_FILES_MIN, "open_files_max", f"at least {_OPEN_FILES_MIN}")


def _require(holds: bool, name: str, rule: str) -> None:
    if not holds:
        raise ValueError(f"{name} must be {rule}")
