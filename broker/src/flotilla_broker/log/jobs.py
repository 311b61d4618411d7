"""Background jobs: work on files that no append waits for.

The log creates a job, any thread calls `run` (it touches only files), and the log's thread calls `finish`. A job that
finds the disk full changes nothing; the log retries when there is more space.
"""

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from flotilla_broker.log import index
from flotilla_broker.log.files import FileSystem, discard, is_full
from flotilla_broker.log.index import RunRecord, Written
from flotilla_broker.log.segments import TEMPORARY, index_name


class Job(Protocol):
    """A background job."""

    def run(self) -> None:
        """Do the work, in any thread."""

    def finish(self) -> None:
        """Pass the result to the log, in the log's thread."""


@dataclass(slots=True)
class Preallocate:
    """Creates a spare segment."""

    fs: FileSystem
    name: str
    size: int
    done: Callable[[str | None], None]
    made: bool = False

    def run(self) -> None:
        """Write zeros, then rename the file: the final name means that it is complete."""
        temporary = self.name + TEMPORARY
        try:
            self.fs.preallocate(temporary, self.size)
            self.fs.rename(temporary, self.name)
            self.made = True
        except OSError as error:
            if not is_full(error):
                raise
            discard(self.fs, temporary)

    def finish(self) -> None:
        """Pass the spare to the log."""
        self.done(self.name if self.made else None)


@dataclass(slots=True)
class WriteIndex:
    """Writes the index file of a sealed segment."""

    fs: FileSystem
    segment: int
    end: int
    runs: list[tuple[RunRecord, "array[int]"]]
    done: Callable[[Written | None], None]
    written: Written | None = None

    def run(self) -> None:
        """Write the file."""
        self.written = write_index(self.fs, self.segment, self.end, self.runs)

    def finish(self) -> None:
        """Let the log read rows from the file."""
        self.done(self.written)


def write_index(fs: FileSystem, segment: int, end: int, runs: list[tuple[RunRecord, "array[int]"]]) -> Written | None:
    """Write an index file under a temporary name, sync and rename it. None: the disk is full."""
    name = index_name(segment)
    try:
        file = fs.create(name + TEMPORARY)
        buffers, written = index.build(segment, end, runs)
        file.write(0, buffers)
        file.sync()
        fs.rename(name + TEMPORARY, name)
    except OSError as error:
        if not is_full(error):
            raise
        discard(fs, name + TEMPORARY)
        return None
    return written


@dataclass(slots=True)
class Remove:
    """Removes obsolete files, or turns them into spares."""

    fs: FileSystem
    names: list[str]
    recycle: dict[str, str]  # from a segment's name to a spare's
    done: Callable[[list[str]], None]

    def run(self) -> None:
        """Remove the files that exist: an index may be missing."""
        present = set(self.fs.names())
        for name in self.names:
            if name in self.recycle:
                self.fs.rename(name, self.recycle[name])
            elif name in present:
                self.fs.unlink(name)

    def finish(self) -> None:
        """Report the recycled spares."""
        self.done(list(self.recycle.values()))
