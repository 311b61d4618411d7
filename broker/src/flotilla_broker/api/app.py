"""The whole API of a broker, as one ASGI application."""

from flotilla.serving.batch_docs import describe_records
from flotilla.serving.docs import add_docs
from flotilla.serving.front import Front
from flotilla_broker.api.append import AppendEndpoint
from flotilla_broker.api.control import make_control
from flotilla_broker.api.fetch import FetchEndpoint
from flotilla_broker.api.lookup import Lookup
from flotilla_broker.api.metrics import Metrics
from flotilla_broker.server import Broker

_ORDER_BYTES_MAX = 4 << 20


def make_app(broker: Broker) -> Front:
    """Let append and fetch go straight to their endpoints, and everything else to FastAPI."""
    metrics = Metrics(broker)
    lookup = Lookup(broker)
    control = make_control(broker, lookup, metrics)
    describe_records(control)
    add_docs(control)
    return Front(
        {"/v1/append": AppendEndpoint(broker, lookup, metrics), "/v1/fetch": FetchEndpoint(broker, lookup, metrics)},
        control,
        connections_max=broker.settings.connections_max,
        body_bytes_max=_ORDER_BYTES_MAX,
    )
