"""The little of an HTTP server that a fake needs: requests in, answers out, connections that can be cut.

One request of a connection is answered at a time, in their order. A client that hangs up is not worked for any longer.
It serves programs of one's own on the loopback, and trusts them: there are no limits but that for a body.
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

from flotilla.serving.asgi import Buffer, Headers

_BAD = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


@dataclass
class Request:
    """A request, read whole."""

    method: str = ""
    path: str = ""
    query: bytes = b""
    headers: dict[bytes, bytes] = field(default_factory=dict)  # names are in lower case
    body: bytes = b""
    keeps_alive: bool = True


@dataclass(frozen=True)
class Answer:
    """An answer."""

    status: int
    headers: Headers
    body: Sequence[Buffer]

    def to_bytes(self, method: str) -> bytes:
        """Write it down, for a request of this method."""
        lines = [f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}".encode()]
        lines += [name + b": " + value for name, value in self.headers]
        lines += [f"content-length: {sum(len(part) for part in self.body)}".encode(), b"", b""]
        return b"\r\n".join(lines) + b"".join(() if method == "HEAD" else self.body)


Answering = Callable[[Request], Awaitable[Answer | None]]  # None: the connection is cut instead


class Connection(asyncio.Protocol):
    """A client's connection. It is in `connections` as long as it is open."""

    def __init__(self, answer: Answering, connections: "set[Connection]") -> None:
        self._answer = answer
        self._connections = connections
        self._parser = httptools.HttpRequestParser(self)
        self._request = Request()
        self._url = b""
        self._body: list[bytes] = []
        self._waiting: deque[Request] = deque()
        self._task: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport | None = None

    def cut(self) -> None:
        """Hang up, without a word; also if a process that was forked has a copy of the socket."""
        if self._transport is not None:
            number = self._transport.get_extra_info("socket").fileno()
            with suppress(OSError), socket.fromfd(number, socket.AF_INET, socket.SOCK_STREAM) as copy:
                copy.shutdown(socket.SHUT_RDWR)
            self._transport.abort()

    # -- asyncio ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = transport  # type: ignore[assignment]  # of a stream, as it is
        self._connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """End; nobody waits for an answer any more."""
        del exc
        self._transport = None
        self._connections.discard(self)
        if self._task is not None:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        """Take a part of a request."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:  # to speak another protocol: servers need not take it up
            if rest := data[offer.args[0] :]:
                self.data_received(rest)
        except httptools.HttpParserError:
            self._write(_BAD)
            if self._transport is not None:
                self._transport.close()

    # -- httptools ----------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._request = Request()
        self._url = b""
        self._body = []

    def on_url(self, url: bytes) -> None:
        """Keep a part of what is asked for: it comes as it arrives."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header."""
        self._request.headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        """Read what is asked for; and ask for the body, if the client wants to be asked."""
        parts = httptools.parse_url(self._url)
        self._request.path = unquote((parts.path or b"/").decode("latin-1"))
        self._request.query = parts.query or b""
        if self._request.headers.get(b"expect", b"").lower() == b"100-continue":
            self._write(_CONTINUE)

    def on_body(self, body: bytes) -> None:
        """Keep a part of the body."""
        self._body.append(body)

    def on_message_complete(self) -> None:
        """Answer, when all before it are answered."""
        request = self._request
        request.method = self._parser.get_method().decode()
        request.body = b"".join(self._body)
        request.keeps_alive = self._parser.should_keep_alive()
        self._waiting.append(request)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._work())

    # -- answers ------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        while self._waiting:
            request = self._waiting.popleft()
            answer = await self._answer(request)
            if answer is None:
                self.cut()
                return
            self._write(answer.to_bytes(request.method))
            if not request.keeps_alive and self._transport is not None:
                self._transport.close()
        self._task = None

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)
