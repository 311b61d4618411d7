"""ASGI helpers of the fast endpoints, which avoid the overhead of a web framework for small requests."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

from flotilla.protocol.asgi import JSON, Buffer, Headers, check_size
from flotilla.protocol.errors import Refusal

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Endpoint = Callable[[Scope, Receive, Send], Awaitable[None]]

_BODY_S_MAX = 30.0


class ClientDisconnected(Exception):
    """The client disconnected."""


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


async def wait_for_disconnect(receive: Receive) -> None:
    """Return when the client has disconnected. For requests that wait, after their body was read."""
    while (await receive())["type"] != "http.disconnect":
        continue


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
