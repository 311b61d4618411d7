"""A port of the loopback, at which somebody listens or nobody: it stays one's own in between.

While nobody listens, a socket that is bound keeps it: clients are refused, and nobody else answers there. Only then, as
some systems would pass connections to either of the two.

A process that a test forks has a copy of every socket, which keeps it open. So a socket is shut down before it is
closed: that holds for the copies, too.
"""

import asyncio
import socket
from contextlib import suppress

from flotilla.testing.http import Answering, Connection

_HOST = "127.0.0.1"


class Port:
    """A port. All but its making is for the loop."""

    def __init__(self) -> None:
        self._keeper: socket.socket | None = _bound(0)
        self._number: int = self._keeper.getsockname()[1]
        self._listener: socket.socket | None = None
        self._server: asyncio.Server | None = None
        self._connections: set[Connection] = set()

    @property
    def host(self) -> str:
        """Where it is."""
        return f"{_HOST}:{self._number}"

    @property
    def url(self) -> str:
        """Where clients find it."""
        return f"http://{self.host}"

    async def open(self, answer: Answering) -> None:
        """Take connections. To say it again changes nothing."""
        if self._server is None:
            self._listener = _bound(self._number)
            self._server = await asyncio.get_running_loop().create_server(
                lambda: Connection(answer, self._connections), sock=self._listener
            )
            self._let_go()

    async def shut(self) -> None:
        """Take no connections any more, and cut those that there are."""
        server, listener, self._server, self._listener = self._server, self._listener, None, None
        if server is None or listener is None:
            return
        self._keeper = _bound(self._number)
        with suppress(OSError):  # some systems know no such thing for a socket that listens
            listener.shutdown(socket.SHUT_RDWR)
        server.close()
        for connection in list(self._connections):
            connection.cut()
        await server.wait_closed()

    async def close(self) -> None:
        """Give the port up."""
        await self.shut()
        self._let_go()

    def _let_go(self) -> None:
        if self._keeper is not None:
            self._keeper.close()
            self._keeper = None


def _bound(port: int) -> socket.socket:
    found = socket.socket()
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)  # so that one takes it over from another
        found.bind((_HOST, port))
    except BaseException:
        found.close()
        raise
    return found
