"""Request ids: one id of a request in responses and logs of all servers.

A valid id of the client is used; otherwise one is generated. The current id is in a context variable, which tasks
inherit.
"""

import re
import secrets
from collections.abc import MutableMapping
from contextvars import ContextVar
from typing import Any

from flotilla_server.asgi import Scope, Send, header

HEADER = b"x-request-id"
_WELL_FORMED = re.compile(rb"[A-Za-z0-9._-]{1,128}")
_current: ContextVar[str | None] = ContextVar("request_id", default=None)


def current() -> str | None:
    """Return the id of the current request, or None."""
    return _current.get()


def set_current(request_id: str | None) -> None:
    """Set the current id, or None: for tasks that serve several requests."""
    _current.set(request_id)


def from_request(scope: Scope) -> str | None:
    """Return the valid id of a client's request, or None, and make it the current one."""
    value = header(scope, HEADER)
    if value is None or not _WELL_FORMED.fullmatch(value):
        return None
    found = value.decode()
    _current.set(found)
    return found


def generate() -> str:
    """Generate an id, and make it the current one."""
    fresh = secrets.token_hex(8)
    _current.set(fresh)
    return fresh


def add_to_response(send: Send, request_id: str) -> Send:
    """Add an id to the headers of a response."""
    pair = (HEADER, request_id.encode())

    async def named(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), pair]
        await send(message)

    return named
