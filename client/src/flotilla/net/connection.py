"""A connection to a server, with one request at a time and little overhead per request.

A connection is closed after any error, and not used again: after a timeout, a cancellation or an invalid response, the
next data could be the response to another request. A response must declare its end, by its length or in chunks; a
response that ends with the connection counts as truncated.
"""

import asyncio
import re
import select
import ssl
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httptools
import msgspec

from flotilla.net.errors import Disconnected, InvalidResponse, TimedOut

Buffer = bytes | bytearray | memoryview

BODY_BYTES_MAX = 64 << 20
HEAD_BYTES_MAX = 320 << 10  # status line and headers, and data that arrives together with their end
CONNECT_S = 5.0
REQUEST_S = 30.0
_PORTS = {"http": 80, "https": 443}
_LOOP_ITERATIONS = 3  # the first one reads the socket, the others run the callbacks
_FINAL = 200  # lower statuses are informational
_BAD_TARGET = re.compile(r"[^\x21-\x7e]")
_BAD_HEADER = re.compile(r"[\r\n\0]")


class Response(NamedTuple):
    """A response."""

    status: int
    headers: dict[bytes, bytes]  # names are in lower case
    body: bytes

    def json(self) -> Any:  # noqa: ANN401 - any JSON
        """Decode the body as JSON. Raises msgspec.DecodeError, a ValueError."""
        return msgspec.json.decode(self.body)


class Connection(asyncio.Protocol):
    """A connection. `open` creates one; call `request` after the previous request has ended."""

    def __init__(self, host: str, bytes_max: int = BODY_BYTES_MAX) -> None:
        self._host = host
        self._bytes_max = bytes_max
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._response: asyncio.Future[Response] | None = None
        self._poll = select.poll()
        self._is_tls = False
        self._headers: dict[bytes, bytes] = {}
        self._body: list[bytes] = []
        self._head_bytes = self._body_bytes = 0
        self._in_body = False
        self.is_open = False

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        timeout_s: float = CONNECT_S,
        bytes_max: int = BODY_BYTES_MAX,
        tls: ssl.SSLContext | None = None,
    ) -> "Connection":
        """Connect to a server, as in http://host:8080. Raises Disconnected, and ValueError if it is not a base URL.

        With https://, a CA of `tls` must have signed the certificate of the server, and it must match the host name.
        Without `tls`, the system CAs are used.
        """
        parts = urlsplit(url)
        if parts.scheme not in _PORTS or not parts.hostname:
            raise ValueError(f"{url!r} is not a base URL such as http://host:8080")
        host = parts.netloc.rpartition("@")[2]
        context = (tls or _default_context()) if parts.scheme == "https" else None
        loop = asyncio.get_running_loop()
        try:
            host.encode("latin-1")  # as in the header of each request
            async with asyncio.timeout(timeout_s):
                _, connection = await loop.create_connection(
                    lambda: cls(host, bytes_max),
                    parts.hostname,
                    parts.port or _PORTS[parts.scheme],
                    ssl=context,
                )
        except TimeoutError:
            raise TimedOut(f"connecting to {url} timed out after {timeout_s} s", sent=False) from None
        except (OSError, ValueError) as error:  # an invalid host name raises ValueError
            raise Disconnected(f"cannot connect to {url}: {error}", sent=False) from error
        return connection

    @property
    def is_usable(self) -> bool:
        """Whether a request can be sent now, as far as is known.

        An idle connection has no data to read. If it has, the server closed the connection and the event loop has not
        processed it yet, or the server sent unsolicited data.
        """
        return self.is_open and self._response is None and not self._poll.poll(0)

    async def check(self) -> bool:
        """Return whether a request can be sent now; with TLS, read pending data first.

        A server may send session tickets or new keys at any time. Before they are read, they look like the end of the
        connection, and only the event loop can read them.
        """
        if self.is_usable or not self._is_tls:
            return self.is_usable
        try:
            for _ in range(_LOOP_ITERATIONS):
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.close()
            raise
        return self.is_usable

    async def request(
        self,
        method: str,
        target: str,
        body: Buffer = b"",
        headers: Sequence[tuple[str, str]] = (),
        timeout_s: float = REQUEST_S,
    ) -> Response:
        """Send a request and wait for the response. Raises Disconnected. Any error closes the connection."""
        head = self._make_head(method, target, len(body), headers)
        if self._response is not None:
            raise RuntimeError("a request is already in flight on this connection")
        if not self.is_open or self._transport is None:
            raise Disconnected("the connection is closed", sent=False)
        if timeout_s <= 0:
            raise TimedOut("the time limit expired before the request was sent", sent=False)
        loop = asyncio.get_running_loop()
        response: asyncio.Future[Response] = loop.create_future()
        self._response = response
        timer = loop.call_later(timeout_s, self._on_timeout, timeout_s)
        self._transport.writelines([head, body] if body else [head])
        try:
            return await response
        except asyncio.CancelledError:
            self.close()
            raise
        finally:
            timer.cancel()
            self._response = None

    def close(self) -> None:
        """Close the connection. A request in flight fails with Disconnected."""
        self._fail(Disconnected("the connection was closed", sent=True))

    def _make_head(self, method: str, target: str, size: int, headers: Sequence[tuple[str, str]]) -> bytes:
        if method == "HEAD" or not method.isalpha() or _BAD_TARGET.search(target) or not target.startswith("/"):
            raise ValueError(f"invalid request {method[:20]!r} {target[:200]!r}: quote characters that are not ASCII")
        lines = ""
        for name, value in headers:
            if _BAD_HEADER.search(name) or _BAD_HEADER.search(value):
                raise ValueError(f"header {name[:40]!r} contains a line break")
            lines += f"{name}: {value}\r\n"
        head = f"{method} {target} HTTP/1.1\r\nHost: {self._host}\r\nContent-Length: {size}\r\n{lines}\r\n"
        return head.encode("latin-1")

    def _on_timeout(self, timeout_s: float) -> None:
        self._fail(TimedOut(f"there was no answer within {timeout_s:.3g} s", sent=True))

    def _fail(self, error: Disconnected) -> None:
        self.is_open = False
        if self._response is not None and not self._response.done():
            self._response.set_exception(error)
        if self._transport is not None:
            self._transport.abort()

    # -- asyncio ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        self._transport = transport  # type: ignore[assignment]  # uvloop has a transport type of its own
        self._poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)
        self._is_tls = transport.get_extra_info("sslcontext") is not None
        self.is_open = True

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the request in flight."""
        self._transport = None
        self._fail(Disconnected(f"the connection was lost: {exc or 'the server hung up'}", sent=True))

    def eof_received(self) -> None:
        """Close at once: half-closed connections are not used."""
        self._fail(Disconnected("the connection was lost: the server hung up", sent=True))

    def data_received(self, data: bytes) -> None:
        """Parse a part of a response; unsolicited data closes the connection."""
        if self._response is None or self._response.done():
            self._fail(InvalidResponse("the server sent data without a request"))
            return
        if not self._in_body:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MAX:
                self._fail(InvalidResponse(f"the response headers exceed {HEAD_BYTES_MAX} bytes"))
                return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail(InvalidResponse("the server tried to switch protocols"))
        except httptools.HttpParserError as error:
            self._fail(InvalidResponse(f"invalid HTTP response: {error}"))

    # -- httptools ----------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Detect a second response to one request."""
        if self._response is None or self._response.done():
            self._fail(InvalidResponse("the server sent two responses to one request"))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Store a header; trailers count towards the limit of headers."""
        if self._in_body:
            self._head_bytes += len(name) + len(value)
            if self._head_bytes > HEAD_BYTES_MAX:
                self._fail(InvalidResponse(f"the response headers exceed {HEAD_BYTES_MAX} bytes"))
        self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        """Reject a body that is too large before it arrives."""
        self._in_body = True
        size = self._headers.get(b"content-length", b"")
        if size.isdigit() and int(size[:20]) > self._bytes_max:
            self._fail_size()

    def on_body(self, body: bytes) -> None:
        """Store a part of the body."""
        self._body_bytes += len(body)
        if self._body_bytes > self._bytes_max:
            self._body.clear()
            self._fail_size()
        else:
            self._body.append(body)

    def _fail_size(self) -> None:
        self._fail(InvalidResponse(f"the response exceeds {self._bytes_max} bytes"))

    def on_message_complete(self) -> None:
        """Complete the request."""
        status = self._parser.get_status_code()
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        response = Response(status, self._headers, body)
        self._headers, self._body = {}, []
        self._head_bytes = self._body_bytes = 0
        self._in_body = False
        if status < _FINAL or self._response is None or self._response.done():
            return
        self._response.set_result(response)
        if not self._parser.should_keep_alive():
            self.is_open = False
            if self._transport is not None:
                self._transport.close()


@cache
def _default_context() -> ssl.SSLContext:
    """Return a context with the system CAs. Loading them is slow, so it is done once, and only if needed."""
    return ssl.create_default_context()
