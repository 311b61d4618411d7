"""The current connection of each peer, and the order of callbacks.

For each peer the order is connected, frames, disconnected, and again. A new connection of the same process replaces the
current one, which the peer has lost. A new connection of another process with the same id is closed while the current
one is open: one of the two processes may run on a copy of the other's data folder. If the first process has ended, its
connection closes at once, or after the idle timeout if its machine failed. A callback may send, change the address
book, or raise, which closes only its own connection.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from flotilla_broker.peers.connection import Connection

_logger = logging.getLogger("flotilla_broker.peers")


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerCallbacks:
    """Callbacks of the broker."""

    on_connected: Callable[[str], None]
    on_disconnected: Callable[[str], None]
    on_frame: Callable[[str, memoryview], None]
    on_writable: Callable[[str], None]


class Sessions:
    """Owner of all connections."""

    def __init__(self, callbacks: PeerCallbacks, is_known: Callable[[str], bool]) -> None:
        self._callbacks = callbacks
        self._is_known = is_known
        self.current: dict[str, Connection] = {}

    def authenticated(self, connection: Connection) -> None:
        """Make a connection the current one of its peer."""
        peer = connection.peer
        old = self.current.get(peer)
        if old is not None and is_other_process(old.peer_start, connection.peer_start):
            connection.close("another process with the id of this broker is connected")
            return
        if old is not None:
            old.close("replaced by a new connection")
        if not self._is_known(peer):  # again: a callback may have changed the book
            connection.close("not in the address book")
        if not connection.is_open:
            return
        self.current[peer] = connection
        _logger.info(
            "peer connected peer=%s address=%s protocol_version=%d", peer, connection.address, connection.version
        )
        self._call(connection, "on_connected", self._callbacks.on_connected)

    def received(self, connection: Connection, body: memoryview) -> None:
        """Pass on a frame."""
        self._call(connection, "on_frame", self._callbacks.on_frame, body)

    def drained(self, connection: Connection) -> None:
        """Pass on that the connection is writable."""
        self._call(connection, "on_writable", self._callbacks.on_writable)

    def closed(self, connection: Connection) -> None:
        """Report the disconnect of a current connection."""
        peer = connection.peer
        if self.current.get(peer) is not connection:
            return
        del self.current[peer]
        _logger.info("peer disconnected peer=%s address=%s reason=%r", peer, connection.address, connection.reason)
        self._call(connection, "on_disconnected", self._callbacks.on_disconnected)

    @staticmethod
    def _call(connection: Connection, name: str, callback: Callable[..., None], *body: memoryview) -> None:
        try:
            callback(connection.peer, *body)
        except Exception:
            _logger.exception(
                "peer callback failed peer=%s address=%s callback=%s", connection.peer, connection.address, name
            )
            connection.close(f"{name} failed")


def is_other_process(start: bytes, other: bytes) -> bool:
    """Whether two connections belong to different processes; False if a peer sent no token of its start."""
    return b"" not in {start, other} and start != other
