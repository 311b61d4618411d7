"""The whole API of a broker, as one ASGI application."""

import logging
from collections.abc import Callable, MutableMapping
from typing import Any

from flotilla_broker.api.append import AppendEndpoint
from flotilla_broker.api.asgi import Endpoint, Gone, Receive, Scope, Send, check_size, content_length, refuse
from flotilla_broker.api.control import make_control
from flotilla_broker.api.docs import add_docs
from flotilla_broker.api.errors import Refusal
from flotilla_broker.api.fetch import FetchEndpoint
from flotilla_broker.api.lookup import Lookup
from flotilla_broker.api.metrics import Metrics
from flotilla_broker.server import Broker

logger = logging.getLogger(__name__)

_ORDER_BYTES_MAX = 4 << 20
_ALWAYS = {"/healthz", "/readyz", "/metrics"}  # a broker with many clients is not an ill one


class App:
    """Append and fetch go straight to their endpoints, everything else to FastAPI."""

    def __init__(self, broker: Broker) -> None:
        metrics = Metrics(broker)
        lookup = Lookup(broker)
        self._fast: dict[str, Endpoint] = {
            "/v1/append": AppendEndpoint(broker, lookup, metrics),
            "/v1/fetch": FetchEndpoint(broker, lookup, metrics),
        }
        self._connections_max = broker.settings.connections_max
        self.count_connections: Callable[[], int] = lambda: 0
        self._rest = make_control(broker, metrics)
        add_docs(self._rest)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        try:
            self._check_connections(scope["path"])
            endpoint = self._fast.get(scope["path"])
            if endpoint is None:
                check_size(content_length(scope) or 0, _ORDER_BYTES_MAX)
                await self._rest(scope, _limited(receive), send)
            else:
                await endpoint(scope, receive, send)
        except Refusal as refusal:
            await refuse(send, refusal)
        except Gone:
            logger.debug("a client left before its request was read")

    def _check_connections(self, path: str) -> None:
        if self.count_connections() > self._connections_max and path not in _ALWAYS:
            raise Refusal("too_many_connections", f"{self._connections_max} connections is the limit; try again later")


def _limited(receive: Receive) -> Receive:
    """Count the body of an order, which FastAPI would read whole, however large it is."""
    size = 0

    async def counted() -> MutableMapping[str, Any]:
        nonlocal size
        event = await receive()
        size += len(event.get("body", b""))
        check_size(size, _ORDER_BYTES_MAX)
        return event

    return counted
