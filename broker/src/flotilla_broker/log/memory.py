"""A folder in memory, for durability `memory`: a restart loses everything."""

from collections.abc import Sequence

from flotilla_broker.log.files import Buffer


class MemoryFile:
    """A file that is a bytearray."""

    __slots__ = ("data",)

    def __init__(self) -> None:
        self.data = bytearray()

    def write(self, position: int, buffers: Sequence[Buffer]) -> None:
        """Write all buffers."""
        joined = b"".join(buffers)
        if position > len(self.data):
            self.data.extend(bytes(position - len(self.data)))
        self.data[position : position + len(joined)] = joined

    def read(self, position: int, size: int) -> bytes:
        """Read up to `size` bytes."""
        return bytes(self.data[position : position + size])

    def sync(self) -> None:
        """Do nothing: memory cannot be synced."""

    def truncate(self, size: int) -> None:
        """Cut the file."""
        del self.data[size:]

    def size(self) -> int:
        """Return the length."""
        return len(self.data)


class MemoryFileSystem:
    """A folder that is a dict, up to `capacity_bytes`."""

    def __init__(self, capacity_bytes: int = 1 << 30) -> None:
        self._files: dict[str, MemoryFile] = {}
        self._capacity_bytes = capacity_bytes

    def names(self) -> list[str]:
        """List the files."""
        return sorted(self._files)

    def open(self, name: str) -> MemoryFile:
        """Open a file that exists."""
        try:
            return self._files[name]
        except KeyError:
            raise FileNotFoundError(name) from None

    def create(self, name: str) -> MemoryFile:
        """Create an empty file."""
        self._files[name] = MemoryFile()
        return self._files[name]

    def preallocate(self, name: str, size: int) -> None:  # noqa: ARG002 - memory needs no zeros in advance
        """Create the file; it uses memory as it grows."""
        self.create(name)

    def rename(self, old: str, new: str) -> None:
        """Rename a file."""
        self._files[new] = self._files.pop(old)

    def unlink(self, name: str) -> None:
        """Remove a file's name."""
        del self._files[name]

    def sync_folder(self) -> None:
        """Do nothing: memory cannot be synced."""

    def free_bytes(self) -> int:
        """Return the unused capacity."""
        return self._capacity_bytes - sum(len(file.data) for file in self._files.values())

    def total_bytes(self) -> int:
        """Return the capacity."""
        return self._capacity_bytes

    def boot_id(self) -> str:
        """Return a constant: memory lives as long as the process."""
        return "memory"

    def folder_id(self) -> str:
        """Return a constant: memory cannot be copied."""
        return "memory"

    def close(self) -> None:
        """Do nothing."""
