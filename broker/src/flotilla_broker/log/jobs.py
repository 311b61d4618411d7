"""Work in the background: everything on disk that no append waits for.

A job is made by the log, `run` in any thread (it touches files only), and then `finish`ed by the log's own
thread. A job that finds no room leaves everything as it was; the log tries again when there is more.
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
    """One piece of work in the background."""

    def run(self) -> None:
        """Do what takes time."""

    def finish(self) -> None:
        """Tell the log; in the log's own thread."""


@dataclass(slots=True)
class Preallocate:
    """Makes a spare segment."""

    fs: FileSystem
    name: str
    size: int
    done: Callable[[str | None], None]
    made: bool = False

    def run(self) -> None:
        """Write zeros; the final name says that they are whole."""
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
        """Hand the spare over."""
        self.done(self.name if self.made else None)


@dataclass(slots=True)
class WriteIndex:
    """Puts the rows of a sealed segment into a file."""

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
    """Removes files that nothing refers to any more, or makes spares of them."""

    fs: FileSystem
    names: list[str]
    recycle: dict[str, str]  # from a segment's name to a spare's
    done: Callable[[list[str]], None]

    def run(self) -> None:
        """Remove what is there: an index may never have been written."""
        present = set(self.fs.names())
        for name in self.names:
            if name in self.recycle:
                self.fs.rename(name, self.recycle[name])
            elif name in present:
                self.fs.unlink(name)

    def finish(self) -> None:
        """Tell the log that there is more room."""
        self.done(list(self.recycle.values()))
