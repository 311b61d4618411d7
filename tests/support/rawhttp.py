"""A small HTTP client on asyncio: one request at a time per connection, little work for each."""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

import httptools
import msgspec

Buffer = bytes | bytearray | memoryview


class Response(NamedTuple):
    """An answer."""

    status: int
    headers: dict[bytes, bytes]
    body: bytes

    def json(self) -> dict[str, object]:
        """The body as JSON."""
        found: dict[str, object] = msgspec.json.decode(self.body)
        return found


class Disconnected(ConnectionError):
    """The connection ended before the answer was there: whether the request was carried out is unknown."""


class Connection(asyncio.Protocol):
    """One connection to a server."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._answer: asyncio.Future[Response] | None = None
        self._headers: dict[bytes, bytes] = {}
        self._body: list[bytes] = []
        self.is_open = False

    @classmethod
    async def open(cls, url: str) -> "Connection":
        """Connect to a server."""
        parts = urlsplit(url)
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(cls, parts.hostname or "", parts.port or 80)
        return connection

    async def request(
        self, method: str, target: str, body: Buffer = b"", headers: Sequence[tuple[str, str]] = ()
    ) -> Response:
        """Send a request and wait for its answer."""
        if not self.is_open or self._transport is None:
            raise Disconnected("the connection is closed")
        self._answer = asyncio.get_running_loop().create_future()
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
        head = f"{method} {target} HTTP/1.1\r\nHost: broker\r\nContent-Length: {len(body)}\r\n{lines}\r\n".encode()
        self._transport.writelines([head, body] if body else [head])
        return await self._answer

    def close(self) -> None:
        """Hang up."""
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()

    # -- asyncio ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # uvloop's own kind of transport
        self.is_open = True

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(Disconnected(f"the connection was lost: {exc}"))

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    # -- httptools ----------------------------------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        response = Response(self._parser.get_status_code(), self._headers, b"".join(self._body))
        self._headers, self._body = {}, []
        self._parser = httptools.HttpResponseParser(self)
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(response)
