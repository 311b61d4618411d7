"""The data folder of `flotilla up`, used by one system at a time.

    lock               held while any process of the system runs; contains the process id of `flotilla up`
    ports.json         internal ports, kept across restarts
    secret             secret that the servers share, readable by the owner only
    metadata.sqlite    metadata, unless --database is given (created by the writer)
    broker-1/ ...      data of the brokers
    logs/              logs of the processes

The lock belongs to an open file that the children inherit: the folder is in use until all of them have ended, even if
`flotilla up` was killed. Two brokers in one data folder would damage each other's log.
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

_LEFT_OVER_S_MAX = 5.0  # children of a killed `flotilla up` end within this time
_POLL_S = 0.05
_SECRET_BYTES = 32
_PID_CHARS_MAX = 20


class DataFolder:
    """A data folder that this process has locked. Children inherit `lock_fd`."""

    def __init__(self, path: Path, lock_fd: int) -> None:
        self.path = path
        self.lock_fd = lock_fd

    @property
    def logs(self) -> Path:
        """Folder of the logs."""
        return self.path / "logs"

    @property
    def secret_path(self) -> Path:
        """File with the secret that the servers share."""
        return self.path / "secret"

    def close(self) -> None:
        """Release the folder, once no child holds it."""
        os.close(self.lock_fd)

    def count_brokers(self) -> int:
        """Count the brokers in the folder."""
        numbers = [path.name.removeprefix(BROKER_PREFIX) for path in self.path.glob(f"{BROKER_PREFIX}*")]
        return max((int(number) for number in numbers if number.isdecimal()), default=0)

    def check_brokers(self, wanted: int) -> None:
        """Check that no broker of the folder is left out; raises FolderUnusable."""
        existing = self.count_brokers()
        if wanted < existing:
            raise FolderUnusable(
                f"data folder {self.path} holds {existing} brokers, but --brokers is {wanted}: brokers cannot be "
                f"removed. Use --brokers {existing} or more, or another folder with --data-dir"
            )

    def load_ports(self) -> dict[str, int]:
        """Load the ports of the last start; empty if there are none, or if they cannot be read."""
        try:
            found = json.loads((self.path / "ports.json").read_text())
            return {str(name): int(port) for name, port in found.items()}
        except (OSError, ValueError, AttributeError, TypeError):
            return {}

    def save_ports(self, ports: Mapping[str, int]) -> None:
        """Save the ports."""
        _write(self.path / "ports.json", json.dumps(ports, indent=2) + "\n")

    def load_secret(self) -> str:
        """Load the secret; create it at the first start.

        All servers start with the same secret, so a lost one is replaced.
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


def acquire(
    path: Path, clock: Callable[[], float] = time.monotonic, pause: Callable[[float], None] = time.sleep
) -> DataFolder:
    """Create the folder if it does not exist, and lock it; raises FolderUnusable."""
    path = path.absolute()
    lock_fd = -1
    try:
        _make(path)
        (path / "logs").mkdir(exist_ok=True)
        lock_fd = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        _lock(path, lock_fd, clock, pause)
        _write_pid(lock_fd)
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
        _write(path / ".gitignore", "*\n")  # the folder may be inside a git repository


def _explain(path: Path, error: OSError) -> str:
    if error.errno in {errno.EEXIST, errno.ENOTDIR}:
        return (
            f"data folder {path} cannot be created: a file of that name exists. Choose another folder with --data-dir"
        )
    return f"data folder {path} cannot be written: {error.strerror}. Choose another folder with --data-dir"


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
        by = f"by children of process {holder}, which has ended"
    else:
        by = f"by process {holder}" if holder else "by another process"
    return f"data folder {path} is in use {by}. Stop that system, or choose another folder with --data-dir"


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _write_pid(lock_fd: int) -> None:
    os.ftruncate(lock_fd, 0)
    os.pwrite(lock_fd, f"{os.getpid()}\n".encode(), 0)


def _write(path: Path, text: str) -> None:
    """Replace a file atomically, with mode 0600."""
    part = path.with_name(path.name + ".part")
    part.unlink(missing_ok=True)
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
