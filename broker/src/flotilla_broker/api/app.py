"""The whole API of a broker, as one ASGI application."""

import logging

from flotilla_broker.api.append import AppendEndpoint
from flotilla_broker.api.asgi import Endpoint, Gone, Receive, Scope, Send, refuse
from flotilla_broker.api.control import make_control
from flotilla_broker.api.docs import add_docs
from flotilla_broker.api.errors import Refusal
from flotilla_broker.api.fetch import FetchEndpoint
from flotilla_broker.api.lookup import Lookup
from flotilla_broker.api.metrics import Metrics
from flotilla_broker.server import Broker

logger = logging.getLogger(__name__)


class App:
    """Append and fetch go straight to their endpoints, everything else to FastAPI."""

    def __init__(self, broker: Broker) -> None:
        metrics = Metrics(broker)
        lookup = Lookup(broker)
        self._fast: dict[str, Endpoint] = {
            "/v1/append": AppendEndpoint(broker, lookup, metrics),
            "/v1/fetch": FetchEndpoint(broker, lookup, metrics),
        }
        self._rest = make_control(broker, metrics)
        add_docs(self._rest)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        endpoint = self._fast.get(scope["path"]) if scope["type"] == "http" else None
        if endpoint is None:
            await self._rest(scope, receive, send)
            return
        try:
            await endpoint(scope, receive, send)
        except Refusal as refusal:
            await refuse(send, refusal)
        except Gone:
            logger.debug("a client left before its request was read")
