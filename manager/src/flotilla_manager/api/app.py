"""ASGI application of a manager: the simple API and batches on a fast path, all other routes with FastAPI."""

import time
from collections.abc import Callable

from fastapi import FastAPI

from flotilla import __version__
from flotilla.protocol.errors import Refusal
from flotilla.protocol.simple import failure
from flotilla_manager.api.calls import make_calls
from flotilla_manager.api.control import add_health, add_metadata_errors, is_for_writer, make_control
from flotilla_manager.api.data import AppendEndpoint, FetchEndpoint
from flotilla_manager.api.docs import describe_calls
from flotilla_manager.api.endpoint import SimpleEndpoint
from flotilla_manager.api.forward import Forward
from flotilla_manager.api.groups import make_groups
from flotilla_manager.api.metrics import Metrics
from flotilla_manager.api.rules import RULES
from flotilla_manager.api.simple import SimpleApi
from flotilla_manager.api.tail import TailEndpoint
from flotilla_manager.api.tokens import make_tokens
from flotilla_manager.api.v1 import make_v1
from flotilla_manager.manager import Manager
from flotilla_server.access_docs import describe_access
from flotilla_server.application import Application
from flotilla_server.asgi import Receive, Scope, Send, read_body, refuse, respond
from flotilla_server.authorization import Authorizer
from flotilla_server.batch_docs import describe_records
from flotilla_server.docs import add_docs
from flotilla_server.handlers import add_handlers
from flotilla_server.quotas import Quotas

_CONTROL_BYTES_MAX = 8 << 20
_ABOUT = """A partitioned, replicated message log with two HTTP APIs.

**Simple API** (`/topics`, `/producer/…`, `/consumer/…`, `/size`): one message per call. Create a topic, register a
producer and a consumer, then produce and consume. Success is `{"status": "success", …}`, an error is
`{"status": "failure", "message": "…"}`.

**v1 API** (`/v1/…`): batches, offsets, topic settings, consumer groups and tokens. An error is
`{"code": "…", "message": "…", "details": {…}, "retryable": false}`."""
_TAGS = [
    {"name": "topics", "description": "Create, list, describe, configure and delete topics"},
    {"name": "producers", "description": "Register producers and produce messages (simple API)"},
    {"name": "consumers", "description": "Register consumers and consume messages (simple API)"},
    {"name": "cluster", "description": "List and manage brokers and managers"},
    {"name": "metadata", "description": "Find partition leaders and brokers (v1 API)"},
    {"name": "records", "description": "Append, fetch and delete records (v1 API)"},
    {"name": "groups", "description": "Consumer groups: membership, committed offsets and lag (v1 API)"},
    {"name": "tokens", "description": "Create, list and revoke tokens (v1 API)"},
    {"name": "control", "description": "Used by the operator and by brokers; not served on the public port"},
    {"name": "health", "description": "Probes and metrics"},
]


def make_app(manager: Manager) -> Application:
    """Create the application."""
    metrics, quotas = Metrics(manager), Quotas(time.monotonic)
    metrics.watch_quotas(quotas)
    forward = Forward(manager)
    calls = make_calls(SimpleApi(manager))
    simple = SimpleEndpoint(manager, calls, forward, metrics)
    app = FastAPI(
        title="Flotilla",
        version=__version__,
        description=_ABOUT,
        openapi_tags=_TAGS,
        docs_url=None,
        redoc_url=None,
    )
    add_handlers(app)
    add_metadata_errors(app, manager)
    add_health(app, manager, metrics)
    app.include_router(make_v1(manager))
    app.include_router(make_groups(manager))
    app.include_router(make_control(manager))
    app.include_router(make_tokens(manager))
    add_docs(app)
    describe_records(app)
    describe_calls(app, calls)
    authorizer = Authorizer(manager.access, RULES)
    describe_access(app, authorizer)
    return Application(
        {
            **dict.fromkeys(simple.paths, simple),
            "/v1/append": metrics.counting("/v1/append", AppendEndpoint(manager)),
            "/v1/fetch": metrics.counting("/v1/fetch", FetchEndpoint(manager)),
            "/v1/tail": TailEndpoint(manager),
        },
        _Rest(manager, app, simple, forward),
        connections_max=manager.settings.connections_max,
        body_bytes_max=_CONTROL_BYTES_MAX,
        refuse=_refuse,
        authorizer=authorizer,
        quotas=quotas,
        hidden=hide_from_public(manager.settings.public_port),
    )


def hide_from_public(port: int | None) -> Callable[[Scope], bool] | None:
    """Return a filter of requests that the public port does not serve: the control API and metrics."""
    if port is None:
        return None

    def is_hidden(scope: Scope) -> bool:
        path: str = scope["path"]
        return bool(scope["server"][1] == port) and (path == "/metrics" or path.startswith("/v1/control"))

    return is_hidden


async def _refuse(send: Send, path: str, refusal: Refusal) -> None:
    """Send an error in the format of the path's API: v1 or simple."""
    if path.startswith("/v1/"):
        await refuse(send, refusal)
    else:
        status, headers, body = failure(refusal)
        await respond(send, status, headers, [body])


class _Rest:
    """Requests without a fast path: topics by name, requests for the writer, and FastAPI's routes."""

    def __init__(self, manager: Manager, app: FastAPI, simple: SimpleEndpoint, forward: Forward) -> None:
        self._manager = manager
        self.app = app
        self._simple = simple
        self._forward = forward
        known = {route.path for route in app.routes if hasattr(route, "path")}
        self._own = frozenset(path for path in known if "{" not in path)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        path = scope["path"]
        if is_for_writer(scope["method"], path) and not self._manager.writer.is_writer:
            body = await read_body(receive, _CONTROL_BYTES_MAX, lambda _: None)
            status, headers, answer = await self._forward(scope, body)
            await respond(send, status, headers, [answer])
        elif path in self._own or path.startswith("/v1/"):
            await self.app(scope, receive, send)
        else:
            await self._simple(scope, receive, send)
