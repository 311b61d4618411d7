"""ASGI helpers of the fast endpoints, which avoid the overhead of a web framework for small requests."""

import asyncio
import re
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl

from flotilla.protocol.errors import Refusal

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Endpoint = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]
Buffer = bytes | bytearray | memoryview

JSON = (b"content-type", b"application/json")
NOT_JSON = "body: it must come with the header content-type: application/json"
_JSON_TYPE = re.compile(rb"application/([^;]+\+)?json\s*(;|$)", re.IGNORECASE)
_QUERY_BYTES_MAX = 4096
_BODY_S_MAX = 30.0


class ClientDisconnected(Exception):
    """The client disconnected."""


@lru_cache(maxsize=4096)
def parse_query(query: bytes) -> dict[str, str]:
    """Parse a query string. Cached: clients repeat the same ones. Raises Refusal."""
    if len(query) > _QUERY_BYTES_MAX:
        raise Refusal("bad_request", f"the query has {len(query)} bytes; {_QUERY_BYTES_MAX} is the limit")
    try:
        pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, strict_parsing=bool(query), max_num_fields=20)
    except ValueError as error:
        raise Refusal("bad_request", f"the query cannot be read: {error}") from error
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Refusal("bad_request", f"{_doubled(pairs)[:40]!r} is in the query twice; give it once")
    return found


def _doubled(pairs: list[tuple[str, str]]) -> str:
    names = [name for name, _ in pairs]
    return next(name for name in names if names.count(name) > 1)


def is_json(content_type: bytes | None) -> bool:
    """Return whether a content type is JSON, by the rule of FastAPI."""
    return content_type is not None and _JSON_TYPE.match(content_type) is not None


def number(query: dict[str, str], name: str, default: int | None, largest: int = (1 << 63) - 1) -> int:
    """Return a number from a query; without a default it is required. Raises Refusal."""
    text = query.get(name)
    if text is None:
        if default is None:
            raise Refusal("bad_request", f"{name} is missing")
        return default
    if not text.isdecimal() or not text.isascii() or int(text) > largest:
        raise Refusal("bad_request", f"{name} is {text[:40]!r}; it must be a number from 0 to {largest}")
    return int(text)


def header(scope: Scope, name: bytes) -> bytes | None:
    """Return the value of a header."""
    for key, value in scope["headers"]:
        if key == name:
            return bytes(value)
    return None


def content_length(scope: Scope) -> int | None:
    """Return the content length, None if the header is missing. Raises Refusal."""
    text = header(scope, b"content-length")
    if text is None:
        return None
    if not text.isdigit():
        raise Refusal("bad_request", f"content-length is {text[:40]!r}, which is not a number")
    return int(text)


async def read_body(receive: Receive, bytes_max: int, count: Callable[[int], None]) -> bytes:
    """Read a body, and pass the sizes of its parts to `count`. Raises Refusal if it is too large or too slow."""
    try:
        async with asyncio.timeout(_BODY_S_MAX):
            return await _read_body(receive, bytes_max, count)
    except TimeoutError:
        raise Refusal("bad_request", f"the body did not arrive within {_BODY_S_MAX} s") from None


async def _read_body(receive: Receive, bytes_max: int, count: Callable[[int], None]) -> bytes:
    parts: list[bytes] = []
    size = 0
    refusal: Refusal | None = None
    event = await receive()
    while event["type"] == "http.request":
        part: bytes = event.get("body", b"")
        size += len(part)
        check_size(size, bytes_max)
        try:
            if refusal is None:
                count(len(part))
                parts.append(part)
        except Refusal as error:  # discard the rest: a client that still sends would not read the response
            refusal, parts = error, []
        if not event.get("more_body"):
            if refusal is not None:
                raise refusal
            return part if len(parts) == 1 else b"".join(parts)
        event = await receive()
    raise ClientDisconnected


def check_size(size: int, bytes_max: int) -> None:
    """Raise Refusal if a body is too large."""
    if size > bytes_max:
        raise Refusal("too_large", f"the request has more than {bytes_max} bytes, the limit", bytes_max=bytes_max)


def limited(receive: Receive, bytes_max: int) -> Receive:
    """Limit the size of a body that a framework reads."""
    size = 0

    async def counted() -> MutableMapping[str, Any]:
        nonlocal size
        event = await receive()
        size += len(event.get("body", b""))
        check_size(size, bytes_max)
        return event

    return counted


async def respond(send: Send, status: int, headers: Headers, body: Sequence[Buffer]) -> None:
    """Send a response. The parts of the body are sent one by one, without a copy."""
    size = sum(len(part) for part in body)
    head = [*headers, (b"content-length", str(size).encode())]
    await send({"type": "http.response.start", "status": status, "headers": head})
    for part in body[:-1]:
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": body[-1] if body else b""})


async def refuse(send: Send, refusal: Refusal) -> None:
    """Send an error response."""
    headers = [(name.encode(), value.encode()) for name, value in refusal.headers.items()]
    await respond(send, refusal.status, [JSON, *headers], [refusal.to_bytes()])
