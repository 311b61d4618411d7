"""Ports: the API port, which the user chooses, and internal ports, which are chosen once and kept.

Internal ports are below the ephemeral range of the system, so that outgoing connections do not take them between two
starts.
"""

import errno
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from flotilla.up.errors import PortTaken
from flotilla.up.plan import LOOPBACK, api_url

INTERNAL_FIRST = 20_000
INTERNAL_LAST = 29_999
_TRIES_MAX = 1000
_LISTEN = "0A"


def choose(
    wanted: Sequence[str], kept: Mapping[str, int], is_free: Callable[[int], bool], draw: Callable[[], int]
) -> dict[str, int]:
    """Choose a port for each name: the saved one if it is free, else a random one. Saved ports are assigned first."""
    chosen: dict[str, int] = {}
    for name in wanted:
        port = kept.get(name)
        if port is not None and port not in chosen.values() and is_free(port):
            chosen[name] = port
    for name in wanted:
        if name not in chosen:
            chosen[name] = _draw_free(name, set(chosen.values()), is_free, draw)
    return {name: chosen[name] for name in wanted}


def _draw_free(name: str, used: set[int], is_free: Callable[[int], bool], draw: Callable[[], int]) -> int:
    for _ in range(_TRIES_MAX):
        port = draw()
        if port not in used and is_free(port):
            return port
    raise PortTaken(f"no free port for {name} between {INTERNAL_FIRST} and {INTERNAL_LAST} on {LOOPBACK}")


def is_free(port: int, host: str = LOOPBACK) -> bool:
    """Return whether a port is free."""
    try:
        _bind(host, port, shared=False).close()
    except OSError:
        return False
    return True


def reserve(host: str, port: int) -> socket.socket:
    """Reserve the API port; raises PortTaken.

    The socket is bound but never listens: it gets no connections, and keeps other programs from using the port while no
    reader runs. First the port must be free, or readers of two systems would share it.
    """
    try:
        if port != 0:
            _bind(host, port, shared=False).close()
        return _bind(host, port, shared=True)
    except OSError as error:
        raise PortTaken(_explain(error, host, port)) from error


def _bind(host: str, port: int, *, shared: bool) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        # REUSEADDR ignores connections of an earlier run in TIME_WAIT.
        option = socket.SO_REUSEPORT if shared else socket.SO_REUSEADDR
        sock.setsockopt(socket.SOL_SOCKET, option, 1)
        sock.bind((host, port))
    except OSError:
        sock.close()
        raise
    return sock


def _explain(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        owner = find_owner(port)
        by = f" by {owner}" if owner else ""
        return f"port {port} on {host} is in use{by}. Stop that process, or choose another port with --port"
    if error.errno == errno.EACCES:
        return f"no permission to use port {port}. Choose a port above 1023 with --port"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"this machine has no address {host}. Choose another one with --host"
    return f"{api_url(host, port)} cannot be served: {error.strerror}"


def find_owner(port: int, proc: Path = Path("/proc")) -> str | None:
    """Find the process that listens on a port, on Linux; None if it is not found."""
    try:
        inodes = set(_listening(port, proc))
        for folder in proc.iterdir() if inodes else ():
            if folder.name.isdecimal() and _has_open(folder, inodes):
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                return f"process {folder.name} ({command[:100]})"
    except OSError:
        return None
    return None


def _listening(port: int, proc: Path) -> Iterator[str]:
    for table in ("tcp", "tcp6"):
        path = proc / "net" / table
        for line in path.read_text().splitlines()[1:] if path.exists() else ():
            columns = line.split()
            if columns[3] == _LISTEN and int(columns[1].rpartition(":")[2], 16) == port:
                yield columns[9]


def _has_open(folder: Path, inodes: set[str]) -> bool:
    links = {f"socket:[{inode}]" for inode in inodes}
    try:
        return any(os.readlink(entry) in links for entry in (folder / "fd").iterdir())  # noqa: PTH115 - not a path
    except OSError:  # no permission, or the process has ended
        return False
