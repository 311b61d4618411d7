"""Forwards requests that only the writer handles."""

import asyncio
import contextlib
from urllib.parse import quote

from flotilla.net import Disconnected, Response
from flotilla.net.codes import ERROR_CODE, ERROR_RESOURCE
from flotilla.protocol.asgi import JSON, Headers
from flotilla.protocol.errors import Refusal
from flotilla_manager.manager import Manager
from flotilla_manager.metadata.errors import MetadataError
from flotilla_server import request_ids
from flotilla_server.asgi import Scope, header

FORWARDED = b"flotilla-forwarded"
NO_WRITER = b"flotilla-no-writer"  # nothing was done: the receiver is not the writer
_METHODS = {"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}  # methods that are forwarded
_TAKEN = (b"content-type", b"authorization")
_RETURNED = (
    b"content-type",
    b"retry-after",
    b"cache-control",
    b"www-authenticate",
    ERROR_CODE.encode(),
    ERROR_RESOURCE.encode(),
)
_NO_WRITER_BODY = b'{"status":"failure","message":"No writer is active; try again."}'
_WRITER_WAIT_S = 5.0  # longer than a restart of the writer
_ANSWER_S = 60.0
_PAUSE_S = 0.1
_CATCH_UP_S = 1.0  # longest delay of the response
_GROUPS = "/v1/groups/"


class Forward:
    """Forwards requests to the writer."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager

    async def __call__(self, scope: Scope, body: bytes) -> tuple[int, Headers, bytes]:
        """Forward a request. Raises Refusal if no writer responds."""
        if scope["method"] not in _METHODS:
            raise Refusal("method_not_allowed", f"method {scope['method'][:20]} is not supported")
        if header(scope, FORWARDED) is not None:
            return (
                503,
                [JSON, (b"retry-after", b"1"), (NO_WRITER, b"1")],
                _NO_WRITER_BODY,
            )  # the forwarding manager retries
        response = await self._ask(scope, body)
        await self._catch_up(scope["path"])
        headers = [(name, response.headers[name]) for name in _RETURNED if name in response.headers] or [JSON]
        return response.status, headers, response.body

    async def _catch_up(self, path: str) -> None:
        """Refresh the cache, so that the client's next request to this manager sees the change."""
        if path.startswith(_GROUPS):
            return  # frequent, and groups are not cached
        with contextlib.suppress(MetadataError, TimeoutError):  # the request has succeeded anyway
            async with asyncio.timeout(_CATCH_UP_S):
                await self._manager.metadata.refresh()

    async def _ask(self, scope: Scope, body: bytes) -> Response:
        """Retry until the writer accepts the request. A request that was sent is not repeated."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _WRITER_WAIT_S
        while True:
            url = self._url()
            try:
                if url is not None:
                    response = await self._manager.control.request(
                        url, scope["method"], _target(scope), body, _headers(scope), timeout_s=_ANSWER_S
                    )
                    if NO_WRITER not in response.headers:
                        return response
            except Disconnected as error:
                if error.sent:
                    text = "The connection to the writer was lost; the request may have taken effect."
                    raise Refusal("unavailable", text, in_doubt=True) from error
            if loop.time() > deadline:
                raise Refusal("unavailable", "The writer is unavailable; try again.")
            self._manager.metadata.refresh_soon()
            await asyncio.sleep(_PAUSE_S)

    def _url(self) -> str | None:
        snapshot = self._manager.metadata.snapshot
        known = None if snapshot is None else snapshot.writer.url
        return self._manager.settings.writer or known or None


def _target(scope: Scope) -> str:
    query = scope["query_string"].decode("latin-1")
    return quote(scope["path"], safe="/:@!$&'()*+,;=~-._") + (f"?{query}" if query else "")


def _headers(scope: Scope) -> list[tuple[str, str]]:
    taken = [(name.decode(), value.decode("latin-1")) for name in _TAKEN if (value := header(scope, name)) is not None]
    request_id = request_ids.current()
    if request_id is not None:
        taken.append(("x-request-id", request_id))
    return [*taken, (FORWARDED.decode(), "1")]
