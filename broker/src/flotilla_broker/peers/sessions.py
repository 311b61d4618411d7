"""Which connection speaks for which peer, and the order in which the rest of the broker hears of it.

For each peer the callbacks come as: connected, frames, disconnected, and again. A new connection from a peer takes
the place of the one it has: it restarted before its old connection was missed. A callback may do anything, such as
send, or change the address book, or fail, which ends the connection that it was called for and nothing else.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from flotilla_broker.peers.connection import Connection

_logger = logging.getLogger("flotilla_broker.peers")


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerCallbacks:
    """What the rest of the broker wants to hear."""

    on_connected: Callable[[str], None]
    on_disconnected: Callable[[str], None]
    on_frame: Callable[[str, memoryview], None]
    on_writable: Callable[[str], None]


class Sessions:
    """The owner of all connections."""

    def __init__(self, callbacks: PeerCallbacks, is_known: Callable[[str], bool]) -> None:
        self._callbacks = callbacks
        self._is_known = is_known
        self.current: dict[str, Connection] = {}

    def authenticated(self, connection: Connection) -> None:
        """Let a connection speak for its peer."""
        peer = connection.peer
        old = self.current.get(peer)
        if old is not None:
            old.close("a new connection took its place")
        if not self._is_known(peer):  # any more: the callback of the old one, or the book, may have changed that
            connection.close("the broker is not in the address book")
        if not connection.is_open:
            return
        self.current[peer] = connection
        _logger.info("peer %s at %s: connected, protocol version %d", peer, connection.address, connection.version)
        self._call(connection, "on_connected", self._callbacks.on_connected)

    def received(self, connection: Connection, body: memoryview) -> None:
        """Hand on a frame."""
        self._call(connection, "on_frame", self._callbacks.on_frame, body)

    def drained(self, connection: Connection) -> None:
        """Hand on that there is room again."""
        self._call(connection, "on_writable", self._callbacks.on_writable)

    def closed(self, connection: Connection) -> None:
        """Take back what was said of the connection, if anything was."""
        peer = connection.peer
        if self.current.get(peer) is not connection:
            return
        del self.current[peer]
        _logger.info("peer %s at %s: disconnected: %s", peer, connection.address, connection.reason)
        self._call(connection, "on_disconnected", self._callbacks.on_disconnected)

    @staticmethod
    def _call(connection: Connection, name: str, callback: Callable[..., None], *body: memoryview) -> None:
        try:
            callback(connection.peer, *body)
        except Exception:
            _logger.exception("peer %s at %s: %s failed", connection.peer, connection.address, name)
            connection.close(f"{name} failed")
