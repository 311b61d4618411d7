"""The whole API of a broker, as one ASGI application."""

import time

from flotilla.serving.access_docs import describe_access
from flotilla.serving.batch_docs import describe_records
from flotilla.serving.docs import add_docs
from flotilla.serving.front import Front
from flotilla.serving.gate import Gate
from flotilla.serving.quotas import Quotas
from flotilla_broker.api.append import AppendEndpoint
from flotilla_broker.api.control import make_control
from flotilla_broker.api.fetch import FetchEndpoint
from flotilla_broker.api.lookup import Lookup
from flotilla_broker.api.metrics import Metrics
from flotilla_broker.api.rules import RULES
from flotilla_broker.server import Broker

_ORDER_BYTES_MAX = 4 << 20


def make_app(broker: Broker) -> Front:
    """Let append and fetch go straight to their endpoints, and everything else to FastAPI."""
    metrics, quotas = Metrics(broker), Quotas(time.monotonic)
    metrics.watch_quotas(quotas)
    lookup = Lookup(broker)
    control = make_control(broker, lookup, metrics)
    describe_records(control)
    add_docs(control)
    gate = Gate(broker.access, RULES)
    describe_access(control, gate)
    return Front(
        {"/v1/append": AppendEndpoint(broker, lookup, metrics), "/v1/fetch": FetchEndpoint(broker, lookup, metrics)},
        control,
        connections_max=broker.settings.connections_max,
        body_bytes_max=_ORDER_BYTES_MAX,
        gate=gate,
        quotas=quotas,
    )
