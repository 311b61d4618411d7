"""Files and folders of the operating system."""

import contextlib
import errno
import fcntl
import mmap
import os
from collections.abc import Sequence
from pathlib import Path

from flotilla_broker.log.errors import LogInUse
from flotilla_broker.log.files import Buffer

_BUFFERS_PER_WRITE_MAX = 1024  # IOV_MAX on Linux
_ZEROS_BYTES = 4 << 20
_GET_GENERATION = 0x80087601  # ioctl FS_IOC_GETVERSION
_GENERATION_BYTES = 8


class OsFile:
    """A file of the operating system. It is closed when the last reference is dropped."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def write(self, position: int, buffers: Sequence[Buffer]) -> None:
        """Write all buffers, in as few calls as possible."""
        for start in range(0, len(buffers), _BUFFERS_PER_WRITE_MAX):
            part = buffers[start : start + _BUFFERS_PER_WRITE_MAX]
            total = sum(map(len, part))
            written = os.pwritev(self._fd, part, position)
            if written != total:
                self._write_rest(position + written, memoryview(b"".join(part))[written:])
            position += total

    def _write_rest(self, position: int, rest: memoryview) -> None:
        while rest:
            written = os.pwrite(self._fd, rest, position)
            position, rest = position + written, rest[written:]

    def read(self, position: int, size: int) -> bytes:
        """Read up to `size` bytes."""
        data = os.pread(self._fd, size, position)
        if len(data) == size or not data:
            return data
        parts = [data]  # one read returns at most 2 GiB, and may return less
        while data and (got := sum(map(len, parts))) < size:
            data = os.pread(self._fd, size - got, position + got)
            parts.append(data)
        return b"".join(parts)

    def sync(self) -> None:
        """Sync data, and the metadata that is needed to read it."""
        os.fdatasync(self._fd)

    def truncate(self, size: int) -> None:
        """Cut the file."""
        os.ftruncate(self._fd, size)

    def size(self) -> int:
        """Return the length."""
        return os.fstat(self._fd).st_size

    def __del__(self) -> None:
        os.close(self._fd)


class OsFileSystem:
    """A folder of the operating system, locked by this process."""

    def __init__(self, folder: Path) -> None:
        if not folder.exists():
            folder.mkdir(parents=True)
            _sync_entries(folder.parent)
        self._folder = folder
        self._lock = os.open(folder / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise LogInUse(
                f"log {folder} is locked by another process: stop that process, or choose another data folder"
            ) from None

    def names(self) -> list[str]:
        """List the files, without the lock."""
        return sorted(path.name for path in self._folder.iterdir() if path.name != "lock")

    def open(self, name: str) -> OsFile:
        """Open for reading and writing."""
        return OsFile(os.open(self._folder / name, os.O_RDWR | os.O_CLOEXEC))

    def create(self, name: str) -> OsFile:
        """Create an empty file."""
        return OsFile(os.open(self._folder / name, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600))

    def preallocate(self, name: str, size: int) -> None:
        """Write zeros.

        With fallocate, each later fdatasync would commit metadata as well, which costs three quarters of the
        throughput. O_DIRECT takes a fifth of the CPU.
        """
        try:
            self._write_zeros(name, size, os.O_DIRECT)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            self._write_zeros(name, size, 0)  # a file system without O_DIRECT, or an odd size

    def _write_zeros(self, name: str, size: int, flags: int) -> None:
        fd = os.open(self._folder / name, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | flags, 0o600)
        try:
            with mmap.mmap(-1, min(_ZEROS_BYTES, size)) as zeros:  # page aligned, as O_DIRECT demands
                position = 0
                while position < size:
                    with memoryview(zeros)[: size - position] as part:
                        position += os.pwrite(fd, part, position)
            os.fsync(fd)
        finally:
            os.close(fd)

    def rename(self, old: str, new: str) -> None:
        """Rename a file."""
        (self._folder / old).rename(self._folder / new)

    def unlink(self, name: str) -> None:
        """Remove a file's name."""
        (self._folder / name).unlink()

    def sync_folder(self) -> None:
        """Sync the folder's entries."""
        _sync_entries(self._folder)

    def free_bytes(self) -> int:
        """Return the free space for unprivileged processes."""
        stat = os.statvfs(self._folder)
        return stat.f_bavail * stat.f_frsize

    def total_bytes(self) -> int:
        """Return the size of the file system, without the space that is reserved for root."""
        stat = os.statvfs(self._folder)
        return (stat.f_blocks - stat.f_bfree + stat.f_bavail) * stat.f_frsize

    def boot_id(self) -> str:
        """Read the kernel's boot id."""
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()

    def folder_id(self) -> str:
        """Return the inode number of the lock file, which is never replaced, and its generation.

        The generation is random, so that a file that reuses the inode number has another. File systems without
        generations, such as NFS and tmpfs, do not reuse inode numbers soon.
        """
        generation = bytearray(_GENERATION_BYTES)
        with contextlib.suppress(OSError):
            fcntl.ioctl(self._lock, _GET_GENERATION, generation)
        return f"{os.fstat(self._lock).st_ino:x}-{generation.hex()}"

    def close(self) -> None:
        """Release the lock."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _sync_entries(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
