"""A minimal HTTP server for the fake, whose connections can be cut.

Requests of a connection are handled one at a time, in order. A request is cancelled when its client disconnects. The
server listens on the loopback interface and trusts its clients: it limits nothing but the size of a body.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import unquote

import httptools

from flotilla.protocol.asgi import Buffer, Headers

_BAD = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


@dataclass
class Request:
    """A complete request."""

    method: str = ""
    path: str = ""
    query: bytes = b""
    headers: dict[bytes, bytes] = field(default_factory=dict)  # names are in lower case
    body: bytes = b""
    keeps_alive: bool = True


@dataclass(frozen=True)
class Response:
    """A response."""

    status: int
    headers: Headers
    body: Sequence[Buffer]

    def to_bytes(self, method: str) -> bytes:
        """Encode the response to a request with this method."""
        lines = [f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}".encode()]
        lines += [name + b": " + value for name, value in self.headers]
        lines += [f"content-length: {sum(len(part) for part in self.body)}".encode(), b"", b""]
        return b"\r\n".join(lines) + b"".join(() if method == "HEAD" else self.body)


RequestHandler = Callable[[Request], Awaitable[Response | None]]  # None: cut the connection


class Connection(asyncio.Protocol):
    """A client's connection. It is in `connections` while it is open."""

    def __init__(self, handler: RequestHandler, connections: "set[Connection]") -> None:
        self._handler = handler
        self._connections = connections
        self._parser = httptools.HttpRequestParser(self)
        self._request = Request()
        self._url = b""
        self._body: list[bytes] = []
        self._waiting: deque[Request] = deque()
        self._task: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport | None = None

    def cut(self) -> None:
        """Abort the connection, also if a forked process has a copy of the socket."""
        if self._transport is not None:
            number = self._transport.get_extra_info("socket").fileno()
            with suppress(OSError), socket.fromfd(number, socket.AF_INET, socket.SOCK_STREAM) as copy:
                copy.shutdown(socket.SHUT_RDWR)
            self._transport.abort()

    # -- asyncio ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register the connection."""
        self._transport = transport  # type: ignore[assignment]  # the transport of a stream
        self._connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the request in progress."""
        del exc
        self._transport = None
        self._connections.discard(self)
        if self._task is not None:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        """Parse received data."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:  # servers may ignore the offer of another protocol
            if rest := data[offer.args[0] :]:
                self.data_received(rest)
        except httptools.HttpParserError:
            self._write(_BAD)
            if self._transport is not None:
                self._transport.close()

    # -- httptools ----------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Start a request."""
        self._request = Request()
        self._url = b""
        self._body = []

    def on_url(self, url: bytes) -> None:
        """Append to the URL, which may arrive in parts."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Store a header."""
        self._request.headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        """Parse the URL; send `100 Continue` if the client expects it."""
        parts = httptools.parse_url(self._url)
        self._request.path = unquote((parts.path or b"/").decode("latin-1"))
        self._request.query = parts.query or b""
        if self._request.headers.get(b"expect", b"").lower() == b"100-continue":
            self._write(_CONTINUE)

    def on_body(self, body: bytes) -> None:
        """Store a part of the body."""
        self._body.append(body)

    def on_message_complete(self) -> None:
        """Queue the request: requests of a connection are handled in order."""
        request = self._request
        request.method = self._parser.get_method().decode()
        request.body = b"".join(self._body)
        request.keeps_alive = self._parser.should_keep_alive()
        self._waiting.append(request)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._work())

    # -- responses ----------------------------------------------------------------------------------------

    async def _work(self) -> None:
        while self._waiting:
            request = self._waiting.popleft()
            response = await self._handler(request)
            if response is None:
                self.cut()
                return
            self._write(response.to_bytes(request.method))
            if not request.keeps_alive and self._transport is not None:
                self._transport.close()
        self._task = None

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)
