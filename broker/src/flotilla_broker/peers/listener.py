"""Accepts connections of other brokers.

The port is open to any client, so unauthenticated connections are limited in number, time, message size
(`handshake.py`) and log lines. The limits apply from the accept on, including the TLS handshake, which
`loop.create_server` does not allow.
"""

import asyncio
import logging
import socket
from collections.abc import Callable

from flotilla_broker.peers.addresses import Address
from flotilla_broker.peers.config import PeerConfig, PeerTls
from flotilla_broker.peers.connection import Connection, describe, establish
from flotilla_broker.peers.pacing import Throttle

_BACKLOG = 128
_ACCEPT_PAUSE_S = 0.1  # when no file descriptor is available
_LOG_EVERY_S = 1.0

_logger = logging.getLogger("flotilla_broker.peers")


class Listener:
    """Accepts connections until it is closed."""

    def __init__(
        self, make_connection: Callable[[str], Connection], *, config: PeerConfig, tls: PeerTls | None
    ) -> None:
        self._make_connection = make_connection
        self._config = config
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._socket: socket.socket | None = None
        self._pause: asyncio.TimerHandle | None = None
        self._accepted: set[Connection] = set()
        self._unauthenticated: set[asyncio.Task[None]] = set()
        self._throttle = Throttle(_LOG_EVERY_S)

    async def start(self, host: str, port: int) -> int:
        """Listen, and return the port; raises OSError."""
        found = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
        self._socket = socket.create_server(address[:2], family=family, backlog=_BACKLOG, dualstack_ipv6=both)
        self._socket.setblocking(False)
        self._resume()
        return int(self._socket.getsockname()[1])

    async def close(self) -> None:
        """Stop accepting, and close unauthenticated connections."""
        if self._socket is None:
            return
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._socket)
        self._socket.close()
        self._socket = None
        await asyncio.sleep(0)  # let new tasks start: a task cancelled before would never close its socket
        for task in self._unauthenticated:
            task.cancel()
        if self._unauthenticated:
            await asyncio.wait(self._unauthenticated)

    def _resume(self) -> None:
        if self._socket is not None:
            self._loop.add_reader(self._socket, self._accept, self._socket)

    def _accept(self, listening: socket.socket) -> None:
        """Accept one connection per iteration, so that many dials do not block the event loop."""
        try:
            sock, address = listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            self._warn(f"accept failed error={describe(error)!r}")
            self._loop.remove_reader(listening)
            self._pause = self._loop.call_later(_ACCEPT_PAUSE_S, self._resume)
            return
        self._admit(sock, str(Address(*address[:2])))

    def _admit(self, sock: socket.socket, address: str) -> None:
        if len(self._accepted) >= self._config.connections_max:
            sock.close()
            self._warn(f"peer connection rejected address={address} connections_max={self._config.connections_max}")
        elif len(self._unauthenticated) >= self._config.unauthenticated_max:
            sock.close()
            limit = self._config.unauthenticated_max
            self._warn(f"peer connection rejected address={address} unauthenticated_max={limit}")
        else:
            sock.setblocking(False)
            self._start(sock, address)

    def _start(self, sock: socket.socket, address: str) -> None:
        connection = self._make_connection(address)
        self._accepted.add(connection)
        connection.lost.add_done_callback(lambda _: self._accepted.discard(connection))
        task = self._loop.create_task(self._authenticate(connection, sock))
        self._unauthenticated.add(task)
        task.add_done_callback(self._unauthenticated.discard)

    async def _authenticate(self, connection: Connection, sock: socket.socket) -> None:
        """Run the handshake of a connection."""
        await establish(connection, self._attach(connection, sock), self._config.handshake_s)
        if not connection.is_open:
            self._warn(f"peer connection rejected address={connection.address} error={connection.reason!r}")

    async def _attach(self, connection: Connection, sock: socket.socket) -> None:
        ssl = self._tls.server if self._tls else None
        handshake_s = self._config.handshake_s if ssl else None
        await self._loop.connect_accepted_socket(lambda: connection, sock, ssl=ssl, ssl_handshake_timeout=handshake_s)

    def _warn(self, text: str) -> None:
        held = self._throttle.pass_at(self._loop.time())
        if held is not None:
            more = f" suppressed={held}" if held else ""
            _logger.warning("%s%s", text, more)
