"""Segments, and the names of the files in the folder."""

import re
from dataclasses import dataclass

from flotilla_broker.log.records import SegmentRecord

STORE = "store.json"
TEMPORARY = ".tmp"
_NAME = re.compile(r"(\d{16})\.(log|cold|index)")
_SPARE = re.compile(r"spare-(\d{16})")


@dataclass(slots=True)
class Segment:
    """A segment; its frames end at `end`."""

    id: int
    cold: bool  # written by the cleaner
    end: int = 0
    file_bytes: int = 0
    index_bytes: int = 0
    live_bytes: int = 0
    checkpoint_bytes: int = 0
    settled: bool = False  # complete on disk
    readable: bool = True  # False: the cleaner skips it

    @property
    def name(self) -> str:
        """Name of the file with the frames."""
        return f"{self.id:016}.{'cold' if self.cold else 'log'}"

    @property
    def index_name(self) -> str:
        """Name of the index file, which exists when the segment is sealed."""
        return index_name(self.id)

    def for_checkpoint(self) -> SegmentRecord:
        """Describe a sealed segment."""
        return SegmentRecord(self.id, self.cold, self.end)


def index_name(segment: int) -> str:
    """Return the name of the index file of a segment."""
    return f"{segment:016}.index"


def spare_name(number: int) -> str:
    """Return the name of a spare."""
    return f"spare-{number:016}"


@dataclass(frozen=True, slots=True)
class Folder:
    """The files of a folder by kind; unknown files are ignored."""

    logs: tuple[int, ...]
    colds: tuple[int, ...]
    indexes: tuple[int, ...]
    spares: tuple[int, ...]
    leftovers: tuple[str, ...]  # temporary files of a process that died

    @classmethod
    def from_names(cls, names: list[str]) -> "Folder":
        """Classify file names."""
        kinds: dict[str, list[int]] = {"log": [], "cold": [], "index": [], "spare": []}
        leftovers = []
        for name in names:
            if match := _NAME.fullmatch(name):
                kinds[match[2]].append(int(match[1]))
            elif match := _SPARE.fullmatch(name):
                kinds["spare"].append(int(match[1]))
            elif name.endswith(TEMPORARY):
                leftovers.append(name)
        logs, colds, indexes, spares = (tuple(sorted(numbers)) for numbers in kinds.values())
        return cls(logs, colds, indexes, spares, tuple(leftovers))
