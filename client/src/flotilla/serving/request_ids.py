"""Request ids: one name for a request on its way through all servers, in their answers and in their logs.

A client's own id is taken over if it is well-formed, so that what it logged can be found again; otherwise one is made.
The current one is kept in a context variable, which tasks inherit.
"""

import re
import secrets
from collections.abc import MutableMapping
from contextvars import ContextVar
from typing import Any

from flotilla.serving.asgi import Scope, Send, header

HEADER = b"x-request-id"
_WELL_FORMED = re.compile(rb"[A-Za-z0-9._-]{1,128}")
_current: ContextVar[str | None] = ContextVar("request_id", default=None)


def current() -> str | None:
    """Return the id of the request that is being answered, if there is one."""
    return _current.get()


def use(request_id: str | None) -> None:
    """Work for a request from now on, or for none: for tasks that work for one request after the other."""
    _current.set(request_id)


def given(scope: Scope) -> str | None:
    """Return the id that the client sent, if it sent one that can be used, and make it the current one."""
    value = header(scope, HEADER)
    if value is None or not _WELL_FORMED.fullmatch(value):
        return None
    found = value.decode()
    _current.set(found)
    return found


def made() -> str:
    """Make an id for a request that came without one, and make it the current one."""
    fresh = secrets.token_hex(8)
    _current.set(fresh)
    return fresh


def returning(send: Send, request_id: str) -> Send:
    """Put an id into an answer."""
    pair = (HEADER, request_id.encode())

    async def named(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), pair]
        await send(message)

    return named
