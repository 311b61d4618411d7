"""One connection to a server: one request at a time, little work for each.

A connection that had any trouble is closed and never used again: after a timeout, a cancellation or a malformed
answer, what arrives next could be the answer to something else. An answer must say where it ends, by its length or
in chunks; one that ends with the connection counts as cut off.
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

from flotilla.net.errors import AnswerInvalid, Disconnected, TimedOut

Buffer = bytes | bytearray | memoryview

BODY_BYTES_MAX = 64 << 20
HEAD_BYTES_MAX = 320 << 10  # of status line and headers, and of what arrives together with their end
CONNECT_S = 5.0
REQUEST_S = 30.0
_PORTS = {"http": 80, "https": 443}
_TURNS = 3  # of the loop: the first reads the socket for sure, the others let it say what came
_FINAL = 200  # answers below are announcements
_BAD_TARGET = re.compile(r"[^\x21-\x7e]")
_BAD_HEADER = re.compile(r"[\r\n\0]")


class Response(NamedTuple):
    """An answer."""

    status: int
    headers: dict[bytes, bytes]  # names are in lower case
    body: bytes

    def json(self) -> Any:  # noqa: ANN401 - any JSON
        """Read the body as JSON; raises msgspec.DecodeError, a ValueError."""
        return msgspec.json.decode(self.body)


class Connection(asyncio.Protocol):
    """One connection. `open` makes one; `request` is called when the one before has ended."""

    def __init__(self, host: str, bytes_max: int = BODY_BYTES_MAX) -> None:
        self._host = host
        self._bytes_max = bytes_max
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._answer: asyncio.Future[Response] | None = None
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
        """Connect to a server, as in http://host:8080; raises Disconnected.

        With https://, its certificate must be signed by somebody whom `tls` trusts, and name the host. Without `tls`,
        whom this machine trusts.
        """
        parts = urlsplit(url)
        if parts.scheme not in _PORTS or not parts.hostname:
            raise ValueError(f"{url!r} is not a base URL; write it as in http://host:8080")
        context = (tls or _default_context()) if parts.scheme == "https" else None
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_s):
                _, connection = await loop.create_connection(
                    lambda: cls(parts.netloc.rpartition("@")[2], bytes_max),
                    parts.hostname,
                    parts.port or _PORTS[parts.scheme],
                    ssl=context,
                )
        except TimeoutError:
            raise TimedOut(f"{url} could not be connected to within {timeout_s} s", sent=False) from None
        except (OSError, ValueError) as error:  # a name that cannot be one is told as a ValueError
            raise Disconnected(f"{url} cannot be connected to: {error}", sent=False) from error
        return connection

    @property
    def is_usable(self) -> bool:
        """Tell whether a request can be sent now, as far as can be known.

        A connection that is idle has nothing to read. If there is something, the server has hung up and the loop has
        not noticed yet, or it has sent what nobody asked for.
        """
        return self.is_open and self._answer is None and not self._poll.poll(0)

    async def check(self) -> bool:
        """Tell whether a request can be sent now; with TLS, find out what it is that came unasked.

        A server may send tickets for later sessions, or new keys, at any time. That cannot be told from its hanging
        up before it is read, and only the loop can do that.
        """
        if self.is_usable or not self._is_tls:
            return self.is_usable
        try:
            for _ in range(_TURNS):
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
        """Send a request and wait for its answer; raises Disconnected. Whatever goes wrong closes the connection."""
        head = self._make_head(method, target, len(body), headers)
        if self._answer is not None:
            raise RuntimeError("a request is under way on this connection; it takes one at a time")
        if not self.is_open or self._transport is None:
            raise Disconnected("the connection is closed", sent=False)
        if timeout_s <= 0:
            raise TimedOut("there was no time left for the request", sent=False)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Response] = loop.create_future()
        self._answer = answer
        timer = loop.call_later(timeout_s, self._on_timeout, timeout_s)
        self._transport.writelines([head, body] if body else [head])
        try:
            return await answer
        except asyncio.CancelledError:
            self.close()
            raise
        finally:
            timer.cancel()
            self._answer = None

    def close(self) -> None:
        """Hang up. A request that is under way ends with Disconnected."""
        self._fail(Disconnected("the connection was closed", sent=True))

    def _make_head(self, method: str, target: str, size: int, headers: Sequence[tuple[str, str]]) -> bytes:
        if method == "HEAD" or not method.isalpha() or _BAD_TARGET.search(target) or not target.startswith("/"):
            raise ValueError(f"{method[:20]!r} {target[:200]!r} cannot be asked for; quote what is not ASCII")
        lines = ""
        for name, value in headers:
            if _BAD_HEADER.search(name) or _BAD_HEADER.search(value):
                raise ValueError(f"the header {name[:40]!r} has a line break in it")
            lines += f"{name}: {value}\r\n"
        head = f"{method} {target} HTTP/1.1\r\nHost: {self._host}\r\nContent-Length: {size}\r\n{lines}\r\n"
        return head.encode("latin-1")

    def _on_timeout(self, timeout_s: float) -> None:
        self._fail(TimedOut(f"there was no answer within {timeout_s:.3g} s", sent=True))

    def _fail(self, error: Disconnected) -> None:
        self.is_open = False
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)
        if self._transport is not None:
            self._transport.abort()

    # -- asyncio ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = transport  # type: ignore[assignment]  # uvloop's own kind of transport
        self._poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)
        self._is_tls = transport.get_extra_info("sslcontext") is not None
        self.is_open = True

    def connection_lost(self, exc: Exception | None) -> None:
        """Note the end."""
        self._transport = None
        self._fail(Disconnected(f"the connection was lost: {exc or 'the server hung up'}", sent=True))

    def eof_received(self) -> None:
        """Note the end at once: there is nothing to say to a server that does not listen."""
        self._fail(Disconnected("the connection was lost: the server hung up", sent=True))

    def data_received(self, data: bytes) -> None:
        """Take a part of an answer; what nobody asked for ends the connection."""
        if self._answer is None or self._answer.done():
            self._fail(AnswerInvalid("the server sent something that nobody had asked for"))
            return
        if not self._in_body:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MAX:
                self._fail(AnswerInvalid(f"the answer's headers have more than {HEAD_BYTES_MAX} bytes"))
                return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail(AnswerInvalid("the server wants to speak another protocol"))
        except httptools.HttpParserError as error:
            self._fail(AnswerInvalid(f"the answer cannot be read: {error}"))

    # -- httptools ----------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Notice a second answer to one request."""
        if self._answer is None or self._answer.done():
            self._fail(AnswerInvalid("the server sent a second answer to one request"))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; those that follow a body count as head, too."""
        if self._in_body:
            self._head_bytes += len(name) + len(value)
            if self._head_bytes > HEAD_BYTES_MAX:
                self._fail(AnswerInvalid(f"the answer's headers have more than {HEAD_BYTES_MAX} bytes"))
        self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        """Refuse a body that is too large before it comes."""
        self._in_body = True
        size = self._headers.get(b"content-length", b"")
        if size.isdigit() and int(size[:20]) > self._bytes_max:
            self._fail_size()

    def on_body(self, body: bytes) -> None:
        """Keep a part of the body."""
        self._body_bytes += len(body)
        if self._body_bytes > self._bytes_max:
            self._body.clear()
            self._fail_size()
        else:
            self._body.append(body)

    def _fail_size(self) -> None:
        self._fail(AnswerInvalid(f"the answer has more than {self._bytes_max} bytes, the limit"))

    def on_message_complete(self) -> None:
        """Hand the answer over."""
        status = self._parser.get_status_code()
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        response = Response(status, self._headers, body)
        self._headers, self._body = {}, []
        self._head_bytes = self._body_bytes = 0
        self._in_body = False
        if status < _FINAL or self._answer is None or self._answer.done():
            return
        self._answer.set_result(response)
        if not self._parser.should_keep_alive():
            self.is_open = False
            if self._transport is not None:
                self._transport.close()


@cache
def _default_context() -> ssl.SSLContext:
    """Trust whom this machine trusts. To read all of these takes a while, so it is done once, and only if needed."""
    return ssl.create_default_context()
