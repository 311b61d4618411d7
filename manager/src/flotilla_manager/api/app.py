"""The manager's application: calls for people and batches on a fast path, everything else with FastAPI."""

import time
from collections.abc import Callable

from fastapi import FastAPI

from flotilla import __version__
from flotilla.serving.access_docs import describe_access
from flotilla.serving.asgi import Receive, Scope, Send, read_body, refuse, respond
from flotilla.serving.batch_docs import describe_records
from flotilla.serving.docs import add_docs
from flotilla.serving.errors import Refusal
from flotilla.serving.front import Front
from flotilla.serving.gate import Gate
from flotilla.serving.handlers import add_handlers
from flotilla.serving.people import failure
from flotilla.serving.quotas import Quotas
from flotilla_manager.api.calls import make_calls
from flotilla_manager.api.control import add_health, add_metadata_errors, is_for_writer, make_control
from flotilla_manager.api.data import AppendEndpoint, FetchEndpoint
from flotilla_manager.api.docs import describe_calls
from flotilla_manager.api.endpoint import PeopleEndpoint
from flotilla_manager.api.forward import Forward
from flotilla_manager.api.groups import make_groups
from flotilla_manager.api.metrics import Metrics
from flotilla_manager.api.people import People
from flotilla_manager.api.programs import make_programs
from flotilla_manager.api.rules import RULES
from flotilla_manager.api.tail import TailEndpoint
from flotilla_manager.api.tokens import make_tokens
from flotilla_manager.manager import Manager

_CONTROL_BYTES_MAX = 8 << 20
_ABOUT = """A partitioned, replicated log queue. Make a topic, register a producer and a consumer, and off you go.
Success is 200 with `{"status": "success", …}`; a refusal is `{"status": "failure", "message": "…"}`."""


def make_app(manager: Manager) -> Front:
    """Make the application."""
    metrics, quotas = Metrics(manager), Quotas(time.monotonic)
    metrics.watch_quotas(quotas)
    forward = Forward(manager)
    calls = make_calls(People(manager))
    people = PeopleEndpoint(manager, calls, forward, metrics)
    app = FastAPI(title="Flotilla", version=__version__, description=_ABOUT, docs_url=None, redoc_url=None)
    add_handlers(app)
    add_metadata_errors(app, manager)
    add_health(app, manager, metrics)
    app.include_router(make_programs(manager))
    app.include_router(make_groups(manager))
    app.include_router(make_control(manager))
    app.include_router(make_tokens(manager))
    add_docs(app)
    describe_records(app)
    describe_calls(app, calls)
    gate = Gate(manager.access, RULES)
    describe_access(app, gate)
    return Front(
        {
            **dict.fromkeys(people.paths, people),
            "/v1/append": metrics.counting("/v1/append", AppendEndpoint(manager)),
            "/v1/fetch": metrics.counting("/v1/fetch", FetchEndpoint(manager)),
            "/v1/tail": TailEndpoint(manager),
        },
        _Rest(manager, app, people, forward),
        connections_max=manager.settings.connections_max,
        body_bytes_max=_CONTROL_BYTES_MAX,
        refuse=_refuse,
        gate=gate,
        quotas=quotas,
        hidden=hide_from_public(manager.settings.public_port),
    )


def hide_from_public(port: int | None) -> Callable[[Scope], bool] | None:
    """Say which requests are not for the world: those for the operator and for Prometheus that come to its port."""
    if port is None:
        return None

    def is_hidden(scope: Scope) -> bool:
        path: str = scope["path"]
        return bool(scope["server"][1] == port) and (path == "/metrics" or path.startswith("/v1/control"))

    return is_hidden


async def _refuse(send: Send, path: str, refusal: Refusal) -> None:
    """Write a refusal in the shape that a path has: that for programs, or that for people."""
    if path.startswith("/v1/"):
        await refuse(send, refusal)
    else:
        status, headers, body = failure(refusal)
        await respond(send, status, headers, [body])


class _Rest:
    """What has no fixed path: topics by name, what the writer alone answers, and FastAPI's routes."""

    def __init__(self, manager: Manager, app: FastAPI, people: PeopleEndpoint, forward: Forward) -> None:
        self._manager = manager
        self.app = app
        self._people = people
        self._forward = forward
        known = {route.path for route in app.routes if hasattr(route, "path")}
        self._own = frozenset(path for path in known if "{" not in path)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        path = scope["path"]
        if is_for_writer(scope["method"], path) and not self._manager.writer.is_writer:
            body = await read_body(receive, _CONTROL_BYTES_MAX, lambda _: None)
            status, headers, answer = await self._forward(scope, body)
            await respond(send, status, headers, [answer])
        elif path in self._own or path.startswith("/v1/"):
            await self.app(scope, receive, send)
        else:
            await self._people(scope, receive, send)
