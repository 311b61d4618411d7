"""The ports: the one that people use, which must be as they wish, and those inside, which are chosen and kept.

Ports inside come from a range below those that systems hand out to outgoing connections, so that nobody takes them by
chance between two starts.
"""

import errno
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from flotilla.up.errors import PortTaken
from flotilla.up.plan import LOOPBACK, api_url

INSIDE_FIRST = 20_000
INSIDE_LAST = 29_999
_TRIES_MAX = 1000
_LISTEN = "0A"


def choose(
    wanted: Sequence[str], kept: Mapping[str, int], is_free: Callable[[int], bool], draw: Callable[[], int]
) -> dict[str, int]:
    """Choose a port for each name: the kept one if it is free, else one that is drawn. Kept ones come first."""
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
    raise PortTaken(f"found no free port for {name} between {INSIDE_FIRST} and {INSIDE_LAST} on {LOOPBACK}")


def is_free(port: int, host: str = LOOPBACK) -> bool:
    """Tell whether a port can be served."""
    try:
        _bind(host, port, shared=False).close()
    except OSError:
        return False
    return True


def hold(host: str, port: int) -> socket.socket:
    """Take the port that the readers share; raises PortTaken.

    The socket is bound and never listens: it gets no connections, and keeps others from the port while no reader is up.
    At first it must be free altogether, or readers of two systems would share it.
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
        # Connections of an earlier run that are not quite over must not count: that is what REUSEADDR is for.
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
        return f"port {port} on {host} is taken{by}. End that, or choose another port with --port"
    if error.errno == errno.EACCES:
        return f"port {port} needs rights that this user does not have. Choose one above 1023 with --port"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"this machine has no address {host}. Choose another one with --host"
    return f"{api_url(host, port)} cannot be served: {error.strerror}"


def find_owner(port: int, proc: Path = Path("/proc")) -> str | None:
    """Find out who listens on a port, as far as Linux tells; None if it does not."""
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
        return any(os.readlink(entry) in links for entry in (folder / "fd").iterdir())  # noqa: PTH115 - it is no path
    except OSError:  # somebody else's process, or one that just ended
        return False
