"""The API of a broker, as one ASGI application, and the access rule of each path."""

import time

from flotilla_broker.api.append import AppendEndpoint
from flotilla_broker.api.control import make_control
from flotilla_broker.api.fetch import FetchEndpoint
from flotilla_broker.api.lookup import Lookup
from flotilla_broker.api.metrics import Metrics
from flotilla_broker.server import Broker
from flotilla_server.access_docs import describe_access
from flotilla_server.application import Application
from flotilla_server.authorization import OPEN_RULES, Authorizer, Need, Rule
from flotilla_server.batch_docs import describe_records
from flotilla_server.docs import add_docs
from flotilla_server.quotas import Quotas

_COMMAND_BYTES_MAX = 4 << 20
_REPLICA = "/v1/replicas/{topic_id}/{partition}/{epoch}"
_REPLICA_COMMANDS = ("campaign", "transfer-leadership", "stand", "hand-over")  # the last two: aliases until 0.4

# A path without a rule does not exist. Endpoints of records check the scope on the topic in their parameters. Commands
# need the token of servers: with any other token, its holder could control brokers.
RULES = (
    *OPEN_RULES,
    Rule(("POST",), "/v1/append", Need.BY_ENDPOINT),
    Rule(("GET",), "/v1/fetch", Need.BY_ENDPOINT),
    Rule(("POST",), "/v1/delete-records", Need.BY_ENDPOINT),
    Rule(("GET",), "/v1/broker", Need.ADMIN),
    Rule(("GET",), "/v1/replicas", Need.ADMIN),
    Rule(("GET",), _REPLICA, Need.ADMIN),
    Rule(("PUT",), "/v1/brokers", Need.SYSTEM),
    Rule(("PUT", "DELETE"), _REPLICA, Need.SYSTEM),
    *(Rule(("POST",), f"{_REPLICA}/{command}", Need.SYSTEM) for command in _REPLICA_COMMANDS),
)


def make_app(broker: Broker) -> Application:
    """Create the application: append and fetch are plain ASGI endpoints, everything else is FastAPI."""
    metrics, quotas = Metrics(broker), Quotas(time.monotonic)
    metrics.watch_quotas(quotas)
    lookup = Lookup(broker)
    control = make_control(broker, lookup, metrics)
    describe_records(control)
    add_docs(control)
    authorizer = Authorizer(broker.access, RULES)
    describe_access(control, authorizer)
    return Application(
        {"/v1/append": AppendEndpoint(broker, lookup, metrics), "/v1/fetch": FetchEndpoint(broker, lookup, metrics)},
        control,
        connections_max=broker.settings.connections_max,
        body_bytes_max=_COMMAND_BYTES_MAX,
        authorizer=authorizer,
        quotas=quotas,
    )
