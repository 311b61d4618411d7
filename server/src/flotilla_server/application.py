"""The ASGI application of a server: plain ASGI endpoints for hot paths, FastAPI for the rest.

It handles what all requests have in common: authorization, limits of connections and bodies, quotas, request ids, error
responses, and unexpected exceptions, which are logged and returned as `internal`.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping

from flotilla.protocol.asgi import check_size
from flotilla.protocol.errors import Refusal, internal_error, unknown_path
from flotilla_server import request_ids
from flotilla_server.asgi import ClientDisconnected, Endpoint, Receive, Scope, Send, content_length, limited, refuse
from flotilla_server.authorization import Authorizer, caller_of
from flotilla_server.callers import Caller
from flotilla_server.quotas import Quotas

logger = logging.getLogger(__name__)

Refuse = Callable[[Send, str, Refusal], Awaitable[None]]
ALWAYS = frozenset({"/healthz", "/readyz", "/metrics"})  # served even above connections_max


class Application:
    """Routes a path in `fast` to its ASGI endpoint, and all other paths to `rest`.

    `body_bytes_max` limits bodies for `rest`; fast endpoints have their own limits. `make_server` sets
    `count_connections`; paths in `always` are served above `connections_max`. `refuse` writes error responses, for
    servers with another format on some paths. `authorizer` checks every request first; without one, all are allowed.
    `quotas` enforces limits of tokens. Requests for which `hidden` is true get 404.
    """

    def __init__(
        self,
        fast: Mapping[str, Endpoint],
        rest: Endpoint,
        *,
        connections_max: int,
        body_bytes_max: int,
        always: Collection[str] = ALWAYS,
        refuse: Refuse = lambda send, _, refusal: refuse(send, refusal),
        authorizer: Authorizer | None = None,
        quotas: Quotas | None = None,
        hidden: Callable[[Scope], bool] | None = None,
    ) -> None:
        self.fast = dict(fast)
        self.rest = rest
        self._connections_max = connections_max
        self._body_bytes_max = body_bytes_max
        self._always = always
        self._refuse = refuse
        self.authorizer = authorizer if authorizer is not None else Authorizer(None, ())
        self._quotas = quotas if quotas is not None else Quotas(time.monotonic)
        self._hidden = hidden
        self.count_connections: Callable[[], int] = lambda: 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            return
        endpoint = self.fast.get(scope["path"])
        request_id = request_ids.from_request(scope)
        if request_id is None and endpoint is None:
            request_id = request_ids.generate()
        if request_id is not None:
            send = request_ids.add_to_response(send, request_id)
        began = time.perf_counter()
        try:
            await self._answer(endpoint, scope, receive, send)
        except Refusal as refusal:
            if refusal.code == "quota_exceeded":
                await asyncio.sleep(self._quotas.hold_s)
            await self._refuse(_with_request_id(send, request_id), scope["path"], refusal)
        except ClientDisconnected:
            logger.debug("client disconnected during the request")
        except Exception:
            send = _with_request_id(send, request_id)
            logger.exception("request failed method=%s path=%s", scope["method"], scope["path"][:200])
            await _send_internal_error(send)
        if logger.isEnabledFor(logging.DEBUG):
            took_ms = (time.perf_counter() - began) * 1000
            logger.debug(
                "request done method=%s path=%s duration_ms=%.1f", scope["method"], scope["path"][:200], took_ms
            )

    async def _answer(self, endpoint: Endpoint | None, scope: Scope, receive: Receive, send: Send) -> None:
        if self._hidden is not None and self._hidden(scope):
            raise unknown_path(scope["path"], ())
        try:
            self._authorize(scope)
        except Refusal as refusal:
            if refusal.code != "unauthorized" or not await self.authorizer.refresh(scope):
                raise
            self._authorize(scope)
        path = scope["path"]
        if self.count_connections() > self._connections_max and path not in self._always:
            raise Refusal(
                "too_many_connections", f"the server has more than {self._connections_max} connections; retry later"
            )
        caller = caller_of(scope)
        if caller.is_metered and caller.token is not None:
            with self._quotas.enter(caller.token, scope) as meter:
                await self._dispatch(endpoint, scope, meter.receiving(receive), meter.sending(send))
        else:
            await self._dispatch(endpoint, scope, receive, send)

    def _authorize(self, scope: Scope) -> None:
        """Authorize a request. A rejected request of a known token counts against its quota as well."""
        try:
            self.authorizer.authorize(scope)
        except Refusal:
            caller: Caller | None = scope.get("caller")
            if caller is None or caller.token is None or not caller.is_metered:
                raise
            with self._quotas.enter(caller.token, scope):
                raise

    async def _dispatch(self, endpoint: Endpoint | None, scope: Scope, receive: Receive, send: Send) -> None:
        if endpoint is not None:
            await endpoint(scope, receive, send)
        else:
            check_size(content_length(scope) or 0, self._body_bytes_max)
            await self.rest(scope, limited(receive, self._body_bytes_max), send)


def _with_request_id(send: Send, request_id: str | None) -> Send:
    """Add a request id to the response: fast endpoints get one only for errors."""
    return send if request_id is not None else request_ids.add_to_response(send, request_ids.generate())


async def _send_internal_error(send: Send) -> None:
    """Send an `internal` error, unless the response has started."""
    try:
        await refuse(send, internal_error())
    except RuntimeError as error:
        logger.debug("response already started error=%r", str(error))
