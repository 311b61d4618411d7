"""A simulated disk that loses, tears and fails writes on command, for tests of the log.

A crash can lose everything that was not synced: each write can survive, be lost, or be torn at any byte. Of the renames
since the last sync of the folder, a prefix survives (file systems journal them in order). `crash_in` counts down with
every change and then raises `Crash`; nothing works until `reboot`. `fail` returns an errno for an operation, and can
block to delay it. There is no time here: a slow sync is a flush that runs later.
"""

import errno
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from flotilla_broker.log.files import Buffer

_SECTOR_BYTES = 512


class Crash(BaseException):
    """The machine lost power. The product must not catch it."""


@dataclass
class SimFile:
    """One file: durable content, pending changes, and the content that a reader sees."""

    disk: "SimDisk"
    stable: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, bytes] | int] = field(default_factory=list)  # a write, or a truncation to a size
    data: bytearray = field(default_factory=bytearray)

    def write(self, position: int, buffers: Sequence[Buffer]) -> None:
        joined = b"".join(buffers)
        grown = max(0, position + len(joined) - len(self.data))
        if grown > max(0, self.disk.free_bytes()):
            raise OSError(errno.ENOSPC, "the simulated disk is full")
        self.disk.step("write", before=lambda: self._write(position, joined))
        self._write(position, joined)

    def _write(self, position: int, joined: bytes) -> None:
        self.pending.append((position, joined))
        _apply(self.data, position, joined)

    def read(self, position: int, size: int) -> bytes:
        self.disk.check("read")
        return bytes(self.data[position : position + size])

    def sync(self) -> None:
        self.disk.step("sync")
        self.stable = bytearray(self.data)
        self.pending = []

    def truncate(self, size: int) -> None:
        self.disk.step("truncate")
        self.pending.append(size)
        del self.data[size:]

    def size(self) -> int:
        return len(self.data)

    def lose(self, rng: random.Random, survive: float) -> None:
        """Keep what was synced, and a random part of the rest."""
        for change in self.pending:
            draw = rng.random()
            if isinstance(change, int):
                if draw < survive:
                    del self.stable[change:]
            elif draw < survive / 2:
                _apply(self.stable, *change)
            elif draw < survive:
                _tear(self.stable, *change, rng)
        self.pending = []
        self.data = bytearray(self.stable)


def _apply(data: bytearray, position: int, joined: bytes) -> None:
    if position > len(data):
        data.extend(bytes(position - len(data)))
    data[position : position + len(joined)] = joined


def _tear(data: bytearray, position: int, joined: bytes, rng: random.Random) -> None:
    """Apply a prefix that ends at any byte, or any set of sectors."""
    if rng.random() < 0.5:
        _apply(data, position, joined[: rng.randrange(len(joined) + 1)])
        return
    for start in range(0, len(joined), _SECTOR_BYTES):
        if rng.random() < 0.5:
            _apply(data, position + start, joined[start : start + _SECTOR_BYTES])


class SimDisk:
    """A folder on a simulated disk."""

    def __init__(self, capacity_bytes: int = 1 << 40) -> None:
        self.capacity_bytes = capacity_bytes
        self.boot = 1
        self.volume = "device"
        self.steps = 0
        self.crash_in: int | None = None
        self.fail: Callable[[str], int | None] = lambda _: None  # kind of operation -> errno
        self._dead = False
        self._names: dict[str, SimFile] = {}
        self._stable_names: dict[str, SimFile] = {}
        self._pending_names: list[dict[str, SimFile | None]] = []  # one change each, atomic

    # -- faults -------------------------------------------------------------------------------------------

    def check(self, kind: str) -> None:
        """Raise the configured error."""
        if self._dead:
            raise Crash
        code = self.fail(kind)
        if code is not None:
            raise OSError(code, f"simulated failure of {kind}")

    def step(self, kind: str, before: Callable[[], None] | None = None) -> None:
        """Count a change; crash when the countdown ends, possibly in the middle of the change."""
        self.check(kind)
        self.steps += 1
        if self.crash_in is not None:
            self.crash_in -= 1
            if self.crash_in < 0:
                if before is not None:
                    before()
                self._dead = True
                raise Crash

    def reboot(self, rng: random.Random, survive: float = 0.6) -> None:
        """Lose a random part of what was not synced, and run again."""
        kept = self._pending_names[: rng.randrange(len(self._pending_names) + 1)] if survive else []
        if survive >= 1:
            kept = self._pending_names
        for change in kept:
            _set_names(self._stable_names, change)
        self._names = dict(self._stable_names)
        self._pending_names = []
        for file in {id(file): file for file in self._names.values()}.values():
            file.lose(rng, survive)
        self.boot += 1
        self._dead, self.crash_in = False, None

    # -- FileSystem ---------------------------------------------------------------------------------------

    def names(self) -> list[str]:
        self.check("names")
        return sorted(self._names)

    def open(self, name: str) -> SimFile:
        self.check("open")
        try:
            return self._names[name]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, name) from None

    def create(self, name: str) -> SimFile:
        self.step("create")
        file = SimFile(self)
        self._set({name: file})
        return file

    def preallocate(self, name: str, size: int) -> None:
        file = self.create(name)
        if size > self.free_bytes():
            raise OSError(errno.ENOSPC, "the simulated disk is full")
        self.step("preallocate")
        file.stable, file.data = bytearray(size), bytearray(size)

    def rename(self, old: str, new: str) -> None:
        self.step("rename")
        self._set({old: None, new: self._names[old]})

    def unlink(self, name: str) -> None:
        self.step("unlink")
        if name not in self._names:
            raise FileNotFoundError(errno.ENOENT, name)
        self._set({name: None})

    def sync_folder(self) -> None:
        self.step("sync_folder")
        self._stable_names = dict(self._names)
        self._pending_names = []

    def free_bytes(self) -> int:
        return self.capacity_bytes - sum(len(file.data) for file in self._names.values())

    def total_bytes(self) -> int:
        return self.capacity_bytes

    def boot_id(self) -> str:
        return f"boot-{self.boot}"

    def folder_id(self) -> str:
        return self.volume

    def close(self) -> None:
        pass

    def _set(self, change: dict[str, SimFile | None]) -> None:
        self._pending_names.append(change)
        _set_names(self._names, change)


def _set_names(names: dict[str, SimFile], change: dict[str, SimFile | None]) -> None:
    for name, file in change.items():
        if file is None:
            names.pop(name, None)
        else:
            names[name] = file
