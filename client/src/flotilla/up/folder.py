"""The data folder: taken by one `flotilla up` at a time, and what is kept in it.

    lock               held while anything of it runs; the process id of `flotilla up` is inside
    ports.json         the ports inside, so that they are the same after a restart
    secret             what servers know each other by; for the owner's eyes only
    metadata.sqlite    metadata, unless --database says otherwise (made by the writer)
    broker-1/ ...      what brokers keep
    logs/              what the processes wrote

The lock belongs to an open file that the children inherit: the folder is free when all of them are gone, even if this
command was killed. Two brokers in one folder would be the end of it.
"""

import errno
import fcntl
import json
import os
import secrets
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from flotilla.up.errors import FolderUnusable
from flotilla.up.plan import BROKER_PREFIX

_LEFT_OVER_S_MAX = 5.0  # the children of one that was killed are gone within this time
_POLL_S = 0.05
_SECRET_BYTES = 32
_PID_CHARS_MAX = 20


class DataFolder:
    """A data folder that this process has taken. `lock_fd` is for children to inherit."""

    def __init__(self, path: Path, lock_fd: int) -> None:
        self.path = path
        self.lock_fd = lock_fd

    @property
    def logs(self) -> Path:
        """Where the processes' logs are."""
        return self.path / "logs"

    @property
    def secret_path(self) -> Path:
        """Where the secret is that all servers share."""
        return self.path / "secret"

    def close(self) -> None:
        """Give the folder back, as soon as no child has it."""
        os.close(self.lock_fd)

    def count_brokers(self) -> int:
        """Count the brokers that the folder was made for."""
        numbers = [path.name.removeprefix(BROKER_PREFIX) for path in self.path.glob(f"{BROKER_PREFIX}*")]
        return max((int(number) for number in numbers if number.isdecimal()), default=0)

    def check_brokers(self, wanted: int) -> None:
        """Refuse to leave brokers out; raises FolderUnusable."""
        there = self.count_brokers()
        if wanted < there:
            raise FolderUnusable(
                f"the data folder {self.path} holds {there} brokers, and --brokers says {wanted}: the replicas on the "
                f"others would be missing. Use --brokers {there} or more, or another folder with --data-dir"
            )

    def load_ports(self) -> dict[str, int]:
        """Load the ports of the last start; none if there are none, or if they cannot be read."""
        try:
            found = json.loads((self.path / "ports.json").read_text())
            return {str(name): int(port) for name, port in found.items()}
        except (OSError, ValueError, AttributeError, TypeError):
            return {}

    def save_ports(self, ports: Mapping[str, int]) -> None:
        """Keep the ports."""
        _write(self.path / "ports.json", json.dumps(ports, indent=2) + "\n")

    def load_secret(self) -> str:
        """Load what servers know each other by; make it at the first start.

        All servers are started with the same one, so one that was lost is simply replaced.
        """
        path = self.secret_path
        try:
            found = path.read_text(encoding="ascii").strip()
            path.chmod(0o600)
        except (FileNotFoundError, UnicodeError):
            found = ""
        if len(found) != 2 * _SECRET_BYTES:
            found = secrets.token_hex(_SECRET_BYTES)
            _write(path, found + "\n")
        return found


def take(
    path: Path, clock: Callable[[], float] = time.monotonic, pause: Callable[[float], None] = time.sleep
) -> DataFolder:
    """Make the folder if need be, and take it; raises FolderUnusable."""
    path = path.absolute()
    lock_fd = -1
    try:
        _make(path)
        (path / "logs").mkdir(exist_ok=True)
        lock_fd = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        _lock(path, lock_fd, clock, pause)
        _sign(lock_fd)
    except (OSError, FolderUnusable) as error:
        if lock_fd >= 0:
            os.close(lock_fd)
        if isinstance(error, FolderUnusable):
            raise
        raise FolderUnusable(_explain(path, error)) from error
    return DataFolder(path, lock_fd)


def _make(path: Path) -> None:
    try:
        path.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        if not path.is_dir():
            raise
    else:
        _write(path / ".gitignore", "*\n")  # a folder that is ours alone, maybe in the middle of a project


def _explain(path: Path, error: OSError) -> str:
    if error.errno in {errno.EEXIST, errno.ENOTDIR}:
        return f"the data folder {path} cannot be made: there is a file in its place. Choose another with --data-dir"
    return f"the data folder {path} cannot be written: {error.strerror}. Choose another with --data-dir"


def _lock(path: Path, lock_fd: int, clock: Callable[[], float], pause: Callable[[float], None]) -> None:
    deadline = clock() + _LEFT_OVER_S_MAX
    while True:
        try:
            fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(lock_fd, _PID_CHARS_MAX, 0).decode(errors="replace").strip()
            if not holder.isdecimal() or _is_alive(int(holder)) or clock() >= deadline:
                raise FolderUnusable(_in_use(path, holder)) from None
            pause(_POLL_S)
        else:
            return


def _in_use(path: Path, holder: str) -> str:
    if holder.isdecimal() and not _is_alive(int(holder)):
        by = f"by what process {holder}, which is gone, has left behind"
    else:
        by = f"by process {holder}" if holder else "by another process"
    return f"the data folder {path} is in use {by}. End that, or choose another folder with --data-dir"


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _sign(lock_fd: int) -> None:
    os.ftruncate(lock_fd, 0)
    os.pwrite(lock_fd, f"{os.getpid()}\n".encode(), 0)


def _write(path: Path, text: str) -> None:
    """Replace a file at once, for the owner's eyes only: a crash leaves the old one or the new one."""
    part = path.with_name(path.name + ".part")
    part.unlink(missing_ok=True)
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
