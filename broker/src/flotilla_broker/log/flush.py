"""A flush: one write and sync of queued frames. It runs in any thread and shares no state with the log."""

from dataclasses import dataclass, field

from flotilla_broker.log.files import Buffer, File, FileSystem
from flotilla_broker.log.segments import Segment


@dataclass(slots=True)
class Step:
    """Frames for one segment, one after another."""

    file: File
    position: int
    buffers: list[Buffer] = field(default_factory=list)
    adopt: tuple[str, str] | None = None  # a spare, and its new name, set before the write
    made: bool = False  # the file is new in the folder

    def fill_page(self, page_bytes: int) -> None:
        """Add zeros up to the end of the last page; `position` is the start of a page."""
        self.buffers.append(bytes(-sum(map(len, self.buffers)) % page_bytes))


@dataclass(slots=True)
class Flush:
    """All frames that were queued when the flush began."""

    fs: FileSystem
    sync: bool
    steps: list[Step]
    last_lsn: int
    marks: dict[int, tuple[int, int]]  # by group: last index, generation
    states: dict[int, int]  # by group: the state index that it saves
    sealed: list[Segment]  # segments that this flush ends

    def run(self) -> None:
        """Write and sync, segment by segment: a segment is complete before the next one's checkpoint exists."""
        for step in self.steps:
            if step.adopt is not None:
                self.fs.rename(*step.adopt)
            if self.sync and (step.made or step.adopt is not None):
                self.fs.sync_folder()
            step.file.write(step.position, step.buffers)
            if self.sync:
                step.file.sync()


@dataclass(frozen=True, slots=True)
class Durable:
    """The result of a flush."""

    lsn: int  # all frames up to here are durable
    indexes: dict[int, int]  # by group: all entries up to here are durable
