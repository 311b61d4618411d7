"""Names of the files in the folder, and what is known of a segment."""

import re
from dataclasses import dataclass

from flotilla_broker.log.records import SegmentRecord

STORE = "store.json"
TEMPORARY = ".tmp"
_NAME = re.compile(r"(\d{16})\.(log|cold|index)")
_SPARE = re.compile(r"spare-(\d{16})")


@dataclass(slots=True)
class Segment:
    """A segment; its frames lie before `end`."""

    id: int
    cold: bool  # written by the cleaner
    end: int = 0
    file_bytes: int = 0
    index_bytes: int = 0
    live_bytes: int = 0
    checkpoint_bytes: int = 0
    settled: bool = False  # whole on disk; nothing is added any more
    readable: bool = True  # the cleaner keeps away from a segment that it could not read

    @property
    def name(self) -> str:
        """The file that holds the frames."""
        return f"{self.id:016}.{'cold' if self.cold else 'log'}"

    @property
    def index_name(self) -> str:
        """The file that holds the rows once the segment is sealed."""
        return index_name(self.id)

    def for_checkpoint(self) -> SegmentRecord:
        """Describe the segment once it is sealed."""
        return SegmentRecord(self.id, self.cold, self.end)


def index_name(segment: int) -> str:
    """Name the index file of a segment."""
    return f"{segment:016}.index"


def spare_name(number: int) -> str:
    """Name a segment that waits to be used."""
    return f"spare-{number:016}"


@dataclass(frozen=True, slots=True)
class Folder:
    """The files of a folder, by what they are; what is none of ours is left alone."""

    logs: tuple[int, ...]
    colds: tuple[int, ...]
    indexes: tuple[int, ...]
    spares: tuple[int, ...]
    leftovers: tuple[str, ...]  # half-made files of a process that died

    @classmethod
    def from_names(cls, names: list[str]) -> "Folder":
        """Sort the names."""
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
