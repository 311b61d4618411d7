"""Passes calls that only the writer answers on to it, and its answers back."""

import asyncio
import contextlib
from urllib.parse import quote

from flotilla.net import Disconnected, Response
from flotilla.serving import request_ids
from flotilla.serving.asgi import JSON, Headers, Scope, header
from flotilla.serving.errors import Refusal
from flotilla_manager.manager import Manager
from flotilla_manager.metadata.errors import MetadataError

FORWARDED = b"flotilla-forwarded"
NO_WRITER = b"flotilla-no-writer"  # nothing was done: that one is not the writer yet, or any more
_METHODS = {"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}  # what can be passed on
_TAKEN = (b"content-type", b"authorization")
_RETURNED = (b"content-type", b"retry-after", b"cache-control", b"www-authenticate")
_NO_WRITER_BODY = b'{"status":"failure","message":"There is no writer at the moment; try again."}'
_PATIENCE_S = 5.0  # a writer that is being started again is back within this
_ANSWER_S = 60.0
_PAUSE_S = 0.1
_CATCH_UP_S = 1.0  # the answer is not held up for longer
_GROUPS = "/v1/groups/"


class Forward:
    """The way to the writer."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager

    async def __call__(self, scope: Scope, body: bytes) -> tuple[int, Headers, bytes]:
        """Pass a request on. Raises Refusal if there is no writer."""
        if scope["method"] not in _METHODS:
            raise Refusal("method_not_allowed", f"{scope['method'][:20]} is not taken here")
        if header(scope, FORWARDED) is not None:
            return (
                503,
                [JSON, (b"retry-after", b"1"), (NO_WRITER, b"1")],
                _NO_WRITER_BODY,
            )  # who passed it on tries again
        response = await self._ask(scope, body)
        await self._catch_up(scope["path"])
        headers = [(name, response.headers[name]) for name in _RETURNED if name in response.headers] or [JSON]
        return response.status, headers, response.body

    async def _catch_up(self, path: str) -> None:
        """Know here what the writer has done: whoever asked for it through this manager goes on with it here."""
        if path.startswith(_GROUPS):
            return  # often, and nothing of it is in the view
        with contextlib.suppress(MetadataError, TimeoutError):  # what was asked for is done all the same
            async with asyncio.timeout(_CATCH_UP_S):
                await self._manager.view.refresh()

    async def _ask(self, scope: Scope, body: bytes) -> Response:
        """Ask until the writer has taken the request. What was sent is not sent again."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _PATIENCE_S
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
                    text = "The writer went away; what was asked for may have been done or not."
                    raise Refusal("unavailable", text, in_doubt=True) from error
            if loop.time() > deadline:
                raise Refusal("unavailable", "The writer does not answer; try again.")
            self._manager.view.refresh_soon()
            await asyncio.sleep(_PAUSE_S)

    def _url(self) -> str | None:
        snapshot = self._manager.view.snapshot
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
