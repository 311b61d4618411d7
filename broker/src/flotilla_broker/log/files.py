"""The file system interface of the log: one flat folder of files.

The log takes a `FileSystem` as an argument: the operating system's (`osfiles.py`), one in memory (`memory.py`), or in
tests a simulated disk that loses, tears and fails writes.

An open file stays readable after it was unlinked or renamed: a read that was planned before the cleaner removed a
segment still succeeds.
"""

import errno
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Protocol

Buffer = bytes | bytearray | memoryview


class File(Protocol):
    """One open file."""

    def write(self, position: int, buffers: Sequence[Buffer]) -> None:
        """Write all buffers one after another from `position` on, or raise OSError."""

    def read(self, position: int, size: int) -> bytes:
        """Read up to `size` bytes; fewer only at the end of the file."""

    def sync(self) -> None:
        """Return when everything written so far is on stable storage."""

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes."""

    def size(self) -> int:
        """Return the length of the file."""


class FileSystem(Protocol):
    """One folder."""

    def names(self) -> list[str]:
        """List the files of the folder."""

    def open(self, name: str) -> File:
        """Open a file that exists."""

    def create(self, name: str) -> File:
        """Create an empty file; replace an existing one."""

    def preallocate(self, name: str, size: int) -> None:
        """Create a file of `size` zero bytes, written to disk and synced."""

    def rename(self, old: str, new: str) -> None:
        """Rename a file."""

    def unlink(self, name: str) -> None:
        """Remove a file's name."""

    def sync_folder(self) -> None:
        """Return when all created, renamed and removed names are on stable storage."""

    def free_bytes(self) -> int:
        """Return the free space."""

    def total_bytes(self) -> int:
        """Return the size of the file system."""

    def boot_id(self) -> str:
        """Return the id of this boot of the machine: unsynced data does not survive it."""

    def folder_id(self) -> str:
        """Return the identity of the folder on its file system: a copy of the files has another one."""

    def close(self) -> None:
        """Release the folder."""


def is_full(error: OSError) -> bool:
    """Whether an error means that the disk is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def is_unreadable(error: OSError) -> bool:
    """Whether an error means that the disk cannot read data."""
    return error.errno == errno.EIO


def discard(fs: FileSystem, name: str) -> None:
    """Remove a file if it exists."""
    if name in fs.names():
        fs.unlink(name)


class FileCache:
    """Keeps at most `limit` files open; a log of a terabyte has tens of thousands. Thread-safe."""

    def __init__(self, fs: FileSystem, limit: int) -> None:
        self._fs = fs
        self._limit = limit
        self._lock = threading.Lock()
        self._open: OrderedDict[str, File] = OrderedDict()

    def get(self, name: str) -> File:
        """Return the open file of that name."""
        with self._lock:
            if name not in self._open:
                self._open[name] = self._fs.open(name)
                if len(self._open) > self._limit:
                    self._open.popitem(last=False)
            self._open.move_to_end(name)
            return self._open[name]

    def forget(self, name: str) -> None:
        """Drop a file that was renamed or unlinked."""
        with self._lock:
            self._open.pop(name, None)

    def clear(self) -> None:
        """Drop all files; each closes as soon as no read in progress uses it."""
        with self._lock:
            self._open.clear()
