"""A connection pool: connections are opened on demand, limited in number, reused, and closed when idle.

The pool does not retry failed requests: only the caller knows whether a retry is safe.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from flotilla.net.connection import BODY_BYTES_MAX, CONNECT_S, REQUEST_S, Buffer, Connection, Response
from flotilla.net.errors import Disconnected, TimedOut


class _Idle(NamedTuple):
    connection: Connection
    since: float


class _Server:
    """Idle and busy connections to one server."""

    def __init__(self, open_max: int) -> None:
        self.slots = asyncio.Semaphore(open_max)
        self.idle: list[_Idle] = []  # the most recently used one is taken first, so that the others expire
        self.users = 0  # requests with a connection, or waiting for one
        self.busy: set[Connection] = set()


class Pool:
    """Connections by base URL, as in http://host:8080.

    There are at most `open_max` connections to one server; more requests wait in order. At most `idle_max` idle
    connections are kept for `idle_s`, which must be shorter than the idle timeout of servers. `tls` has the CAs for
    https:// URLs (default: system CAs).
    """

    def __init__(
        self,
        *,
        open_max: int = 64,
        idle_max: int = 16,
        idle_s: float = 20.0,
        connect_s: float = CONNECT_S,
        bytes_max: int = BODY_BYTES_MAX,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._open_max = open_max
        self._idle_max = idle_max
        self._idle_s = idle_s
        self._connect_s = connect_s
        self._bytes_max = bytes_max
        self._tls = tls
        self._servers: dict[str, _Server] = {}
        self._sweeper: asyncio.TimerHandle | None = None
        self._is_closed = False

    async def request(
        self,
        url: str,
        method: str,
        target: str,
        body: Buffer = b"",
        headers: Sequence[tuple[str, str]] = (),
        timeout_s: float = REQUEST_S,
    ) -> Response:
        """Send a request and wait for the response. Waiting for a connection counts as time.

        Raises Disconnected, and ValueError if the URL or the request is invalid.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        async with self._slot(url, timeout_s) as server:
            connection = await self._take(url, server, deadline - loop.time())
            server.busy.add(connection)
            try:
                return await connection.request(method, target, body, headers, deadline - loop.time())
            finally:
                server.busy.discard(connection)
                self._give_back(server, connection)

    def count_open(self, url: str) -> int:
        """Return the number of connections to a server."""
        server = self._servers.get(url)
        return 0 if server is None else len(server.busy) + len(server.idle)

    def close(self) -> None:
        """Close all connections; requests in flight fail with Disconnected."""
        self._is_closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        for server in self._servers.values():
            for idle in server.idle:
                idle.connection.close()
            server.idle.clear()
            for connection in list(server.busy):
                connection.close()

    @asynccontextmanager
    async def _slot(self, url: str, timeout_s: float) -> AsyncIterator[_Server]:
        """Wait until a connection to the server may be used."""
        server = self._servers.get(url)
        if server is None:
            server = self._servers[url] = _Server(self._open_max)
        server.users += 1
        try:
            await _acquire(server.slots, timeout_s)
            try:
                yield server
            finally:
                server.slots.release()
        finally:
            server.users -= 1

    async def _take(self, url: str, server: _Server, timeout_s: float) -> Connection:
        if self._is_closed:
            raise Disconnected("the pool is closed", sent=False)
        while server.idle:
            connection = server.idle.pop().connection
            if connection.is_usable or await connection.check():
                return connection
            connection.close()
        connect_s = max(0.0, min(self._connect_s, timeout_s))
        return await Connection.open(url, timeout_s=connect_s, bytes_max=self._bytes_max, tls=self._tls)

    def _give_back(self, server: _Server, connection: Connection) -> None:
        if self._is_closed or not connection.is_open or len(server.idle) >= self._idle_max:
            connection.close()
            return
        loop = asyncio.get_running_loop()
        server.idle.append(_Idle(connection, loop.time()))
        if self._sweeper is None:
            self._sweeper = loop.call_later(self._idle_s, self._sweep)

    def _sweep(self) -> None:
        """Close expired idle connections, and remove servers without connections and requests."""
        loop = asyncio.get_running_loop()
        oldest = loop.time() - self._idle_s
        for url, server in list(self._servers.items()):
            for idle in server.idle:
                if idle.since <= oldest:
                    idle.connection.close()
            server.idle = [idle for idle in server.idle if idle.connection.is_open]
            if not server.idle and not server.users:
                del self._servers[url]
        again = any(server.idle for server in self._servers.values())
        self._sweeper = loop.call_later(self._idle_s / 2, self._sweep) if again else None


async def _acquire(slots: asyncio.Semaphore, timeout_s: float) -> None:
    if not slots.locked():
        await slots.acquire()
        return
    try:
        async with asyncio.timeout(timeout_s):
            await slots.acquire()
    except TimeoutError:
        raise TimedOut(f"all connections were busy for {timeout_s} s", sent=False) from None
