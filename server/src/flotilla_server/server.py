"""Runs an ASGI application until a signal: sockets, uvicorn with limits, graceful shutdown."""

import asyncio
import signal
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import uvicorn

from flotilla_server.application import Application
from flotilla_server.protocol import REFUSED_CONNECTIONS_MAX, LimitedProtocol
from flotilla_server.tls import Tls
from flotilla_server.tls_acceptor import TlsAcceptor

EXIT_SETTINGS = 2
EXIT_PORT = 4
_BACKLOG = 2048
_KEEP_ALIVE_S = 75
_SHUTDOWN_S = 5


class Stop:
    """Requests to stop a server: the first exit code counts. Create it on the event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._code: asyncio.Future[int] = self._loop.create_future()

    def __call__(self, code: int) -> None:
        """Ask the server to stop."""
        if not self._code.done():
            self._code.set_result(code)

    def on_signals(self) -> None:
        """Stop with 0 on SIGTERM and SIGINT."""
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self, 0)

    @property
    def code(self) -> int | None:
        """The exit code, if a stop was requested."""
        return self._code.result() if self._code.done() else None

    async def wait(self) -> int:
        """Wait for a request to stop; return the exit code."""
        return await asyncio.shield(self._code)


def listen(host: str, port: int, *, reuse_port: bool = False) -> socket.socket:
    """Bind a port and listen; raises OSError. With `reuse_port`, several processes may share it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=_BACKLOG, reuse_port=reuse_port)


class _Server(uvicorn.Server):
    """uvicorn with a given TLS context, and a limit on connections during the TLS handshake."""

    def __init__(self, config: uvicorn.Config, tls: ssl.SSLContext | None, handshakes_max: int) -> None:
        super().__init__(config)
        self._tls = tls
        self._handshakes_max = handshakes_max

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections."""
        self.servers = [await self._listen(sock) for sock in sockets or ()]  # type: ignore[misc]  # close, wait_closed
        self.started = True

    async def _listen(self, sock: socket.socket) -> asyncio.Server | TlsAcceptor:
        if self._tls is not None:
            return TlsAcceptor(sock, self._make_protocol, self._tls, handshakes_max=self._handshakes_max)
        loop = asyncio.get_running_loop()
        return await loop.create_server(self._make_protocol, sock=sock, backlog=_BACKLOG)

    def _make_protocol(self) -> asyncio.Protocol:
        config = self.config
        return config.http_protocol_class(config=config, server_state=self.server_state, app_state={})  # type: ignore[call-arg]


def make_server(app: Application, *, connections_max: int, tls: ssl.SSLContext | None = None) -> uvicorn.Server:
    """Create the HTTP server of an application. With `tls`, all sockets accept only TLS."""
    config = uvicorn.Config(
        app,
        http=partial(LimitedProtocol, connections_max=connections_max + REFUSED_CONNECTIONS_MAX),  # type: ignore[arg-type]
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_SHUTDOWN_S,
        server_header=False,
        date_header=False,
    )
    server = _Server(config, tls, handshakes_max=connections_max)
    app.count_connections = lambda: len(server.server_state.connections)
    return server


async def run(
    server: uvicorn.Server,
    socks: Sequence[socket.socket],
    stop: Stop,
    before_close: Callable[[int], Awaitable[None]] | None = None,
    tls: Tls | None = None,
) -> int:
    """Serve until `stop` is called; return the exit code.

    `before_close` is awaited with that code before connections are closed; requests are served meanwhile. Changed
    files of `tls` are reloaded.
    """
    watching = None if tls is None else asyncio.create_task(tls.watch())
    serving = asyncio.create_task(server._serve([*socks]))  # noqa: SLF001 - `serve` would install signal handlers
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait((stopping, serving), return_when=asyncio.FIRST_COMPLETED)
    stop(1)  # no effect after another request: a server that stopped by itself has failed
    code = await stopping
    if before_close is not None:
        await before_close(code)
    server.should_exit = True
    await serving
    if watching is not None:
        watching.cancel()
    return code
