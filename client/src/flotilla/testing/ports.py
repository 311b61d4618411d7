"""A port of the loopback interface that can be closed and opened again without losing it to another process.

While the server does not listen, a bound socket reserves the port: connections are refused, and no other process can
take the port. The socket is closed while the server listens, because some systems would distribute connections to both.

A forked process has a copy of every socket, which keeps it open. So sockets are shut down before they are closed: this
affects the copies, too.
"""

import asyncio
import socket
from contextlib import suppress

from flotilla.testing.http import Connection, RequestHandler

_HOST = "127.0.0.1"


class Port:
    """A port. Except for the constructor, use it on the event loop."""

    def __init__(self) -> None:
        self._placeholder: socket.socket | None = _bound(0)
        self._number: int = self._placeholder.getsockname()[1]
        self._listener: socket.socket | None = None
        self._server: asyncio.Server | None = None
        self._connections: set[Connection] = set()

    @property
    def host(self) -> str:
        """Host and port."""
        return f"{_HOST}:{self._number}"

    @property
    def url(self) -> str:
        """URL for clients."""
        return f"http://{self.host}"

    async def open(self, handler: RequestHandler) -> None:
        """Accept connections. Idempotent."""
        if self._server is None:
            self._listener = _bound(self._number)
            self._server = await asyncio.get_running_loop().create_server(
                lambda: Connection(handler, self._connections), sock=self._listener
            )
            self._release()

    async def shut(self) -> None:
        """Stop accepting connections, and cut open ones."""
        server, listener, self._server, self._listener = self._server, self._listener, None, None
        if server is None or listener is None:
            return
        self._placeholder = _bound(self._number)
        with suppress(OSError):  # some systems do not support it for a listening socket
            listener.shutdown(socket.SHUT_RDWR)
        server.close()
        for connection in list(self._connections):
            connection.cut()
        await server.wait_closed()

    async def close(self) -> None:
        """Release the port."""
        await self.shut()
        self._release()

    def _release(self) -> None:
        if self._placeholder is not None:
            self._placeholder.close()
            self._placeholder = None


def _bound(port: int) -> socket.socket:
    found = socket.socket()
    try:
        found.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEPORT, 1
        )  # the listener and the placeholder take the port over from each other
        found.bind((_HOST, port))
    except BaseException:
        found.close()
        raise
    return found
