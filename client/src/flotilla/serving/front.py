"""The front of a server: one ASGI application, with fast endpoints of our own and FastAPI for the rest.

Here is what concerns every request: who makes it, too many connections, bodies that are too large, request ids,
refusals, and mistakes of ours, which are logged and answered with `internal`.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping

from flotilla.access import Caller
from flotilla.serving import request_ids
from flotilla.serving.asgi import (
    Endpoint,
    Gone,
    Receive,
    Scope,
    Send,
    check_size,
    content_length,
    limited,
    refuse,
)
from flotilla.serving.errors import Refusal, mistake, not_there
from flotilla.serving.gate import Gate, caller_of
from flotilla.serving.quotas import Quotas

logger = logging.getLogger(__name__)

Refuse = Callable[[Send, str, Refusal], Awaitable[None]]
ALWAYS = frozenset({"/healthz", "/readyz", "/metrics"})  # a server with many clients is not an ill one


class Front:
    """Requests for a path in `fast` go straight to its endpoint, everything else to `rest`.

    `body_bytes_max` limits bodies for `rest`; fast endpoints have limits of their own. `count_connections` is set
    by whoever runs the server; paths in `always` are answered however many connections there are. `refuse` writes
    refusals of the front itself, for servers that have another shape for some paths. Every request passes `gate`
    before anything else looks at it; without one, callers are not checked. `quotas` holds those who have limits to
    them. Requests that are `hidden` are answered as if there were no such path.
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
        gate: Gate | None = None,
        quotas: Quotas | None = None,
        hidden: Callable[[Scope], bool] | None = None,
    ) -> None:
        self.fast = dict(fast)
        self.rest = rest
        self._connections_max = connections_max
        self._body_bytes_max = body_bytes_max
        self._always = always
        self._refuse = refuse
        self.gate = gate if gate is not None else Gate(None, ())
        self._quotas = quotas if quotas is not None else Quotas(time.monotonic)
        self._hidden = hidden
        self.count_connections: Callable[[], int] = lambda: 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        endpoint = self.fast.get(scope["path"])
        request_id = request_ids.given(scope)
        if request_id is None and endpoint is None:
            request_id = request_ids.made()
        if request_id is not None:
            send = request_ids.returning(send, request_id)
        began = time.perf_counter()
        try:
            await self._answer(endpoint, scope, receive, send)
        except Refusal as refusal:
            if refusal.code == "quota_exceeded":
                await asyncio.sleep(self._quotas.hold_s)
            await self._refuse(_named(send, request_id), scope["path"], refusal)
        except Gone:
            logger.debug("a client left before its request was read")
        except Exception:
            send = _named(send, request_id)
            logger.exception("%s %s failed", scope["method"], scope["path"][:200])
            await _confess(send)
        if logger.isEnabledFor(logging.DEBUG):
            took_ms = (time.perf_counter() - began) * 1000
            logger.debug("%s %s took %.1f ms", scope["method"], scope["path"][:200], took_ms)

    async def _answer(self, endpoint: Endpoint | None, scope: Scope, receive: Receive, send: Send) -> None:
        if self._hidden is not None and self._hidden(scope):
            raise not_there(scope["path"], ())
        try:
            self._enter(scope)
        except Refusal as refusal:
            if refusal.code != "unauthorized" or not await self.gate.look_again(scope):
                raise
            self._enter(scope)
        path = scope["path"]
        if self.count_connections() > self._connections_max and path not in self._always:
            raise Refusal("too_many_connections", f"{self._connections_max} connections is the limit; try again later")
        caller = caller_of(scope)
        if caller.is_metered and caller.token is not None:
            with self._quotas.enter(caller.token, scope) as meter:
                await self._pass(endpoint, scope, meter.receiving(receive), meter.sending(send))
        else:
            await self._pass(endpoint, scope, receive, send)

    def _enter(self, scope: Scope) -> None:
        """Pass the gate. What it refuses to somebody whom it knows counts as a request all the same."""
        try:
            self.gate.enter(scope)
        except Refusal:
            caller: Caller | None = scope.get("caller")
            if caller is None or caller.token is None or not caller.is_metered:
                raise
            with self._quotas.enter(caller.token, scope):
                raise

    async def _pass(self, endpoint: Endpoint | None, scope: Scope, receive: Receive, send: Send) -> None:
        if endpoint is not None:
            await endpoint(scope, receive, send)
        else:
            check_size(content_length(scope) or 0, self._body_bytes_max)
            await self.rest(scope, limited(receive, self._body_bytes_max), send)


def _named(send: Send, request_id: str | None) -> Send:
    """Make sure that an answer has an id: on the fast path one is made only when something goes wrong."""
    return send if request_id is not None else request_ids.returning(send, request_ids.made())


async def _confess(send: Send) -> None:
    """Answer that we made a mistake, unless an answer has begun already."""
    try:
        await refuse(send, mistake())
    except RuntimeError as error:
        logger.debug("the answer had begun already: %s", error)
