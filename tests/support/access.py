"""Tokens for tests, all kinds of callers, and tables of permissions, for brokers and managers."""

import itertools
import json
import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
from fastapi import APIRouter, FastAPI
from starlette.routing import BaseRoute, Route

from flotilla.access import Grant, Token, digest_of, system_token
from flotilla_server.access_table import AccessTable
from flotilla_server.authorization import Authorizer, Rule

SECRET = "the secret of all servers"  # noqa: S105 - used only in tests
ENVIRONMENT = {"FLOTILLA_AUTH": "on", "FLOTILLA_SECRET": SECRET}
_numbers = itertools.count(1)
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
_PARAMETER = re.compile(r"{[^}]+}")


@dataclass(frozen=True)
class Holder:
    """A token as its owner sends it, and as servers store it."""

    text: str
    token: Token

    @property
    def headers(self) -> dict[str, str]:
        """Return the request headers."""
        return bearer(self.text)


def bearer(text: str) -> dict[str, str]:
    """Return headers with a token."""
    return {"authorization": f"Bearer {text}"}


def system_headers(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of a server with this environment; empty without a secret."""
    secret = environment.get("FLOTILLA_SECRET")
    return {} if secret is None else bearer(system_token(secret.encode()))


SYSTEM = bearer(system_token(SECRET.encode()))


def hold(*grants: str, expires_ms: int | None = None) -> Holder:
    """Make a token with these grants."""
    token_id = f"{next(_numbers):016x}"
    text = f"flt_{token_id}_{'abcdefg' * 6}x"
    return Holder(
        text,
        Token(
            id=token_id,
            name="+".join(grants)[:100],
            digest=digest_of(text),
            grants=tuple(Grant.parse(grant) for grant in grants),
            created_ms=time.time_ns() // 1_000_000,
            expires_ms=expires_ms,
        ),
    )


def limited(
    holder: Holder,
    *,
    bytes_per_s: int | None = None,
    requests_per_s: int | None = None,
    in_flight_bytes: int | None = None,
) -> Holder:
    """Set a quota for a token."""
    return Holder(
        holder.text,
        replace(holder.token, bytes_per_s=bytes_per_s, requests_per_s=requests_per_s, in_flight_bytes=in_flight_bytes),
    )


def table_of(*holders: Holder) -> AccessTable:
    """Return the access table of servers for some tokens."""
    return AccessTable(tuple(holder.token for holder in holders))


# -- every path has a rule ---------------------------------------------------------------------------------


def missing_rules(fast: Iterable[str], app: FastAPI, rules: Sequence[Rule]) -> list[str]:
    """Name what a server serves without a rule of its own: paths of fast endpoints, and FastAPI's routes."""
    authorizer = Authorizer(None, rules)
    missing = [path for path in fast if not any(authorizer.find(method, path) for method in _METHODS)]
    for method, path in routes_of(app):
        rule = authorizer.find(method, _PARAMETER.sub("x", path))
        if rule is None or not _is_for(rule, path):
            missing.append(f"{method} {path}: {rule}")
    return missing


def idle_rules(fast: Iterable[str], app: FastAPI, rules: Sequence[Rule]) -> list[Rule]:
    """Return rules that match no path, e.g. after a path was renamed."""
    paths = {*fast, *(path for _, path in routes_of(app))}
    return [rule for rule in rules if not any(_is_for(rule, path) for path in paths)]


def routes_of(app: FastAPI) -> Iterator[tuple[str, str]]:
    """Iterate over all FastAPI routes."""
    for route in _flat(app.routes):
        assert isinstance(route, Route), f"{route} is not a route: add it to the Authorizer and to this test"
        for method in sorted(route.methods or ()):
            yield method, route.path


def _flat(routes: Iterable[BaseRoute]) -> Iterator[BaseRoute]:
    """Flatten included routers; their routes have complete paths."""
    for route in routes:
        router = getattr(route, "original_router", None)
        if isinstance(router, APIRouter):
            yield from _flat(router.routes)
        else:
            yield route


def _is_for(rule: Rule, path: str) -> bool:
    """Return whether a rule matches a path, with any parameter names."""
    if "{" in path:
        return _PARAMETER.sub("{}", rule.path) == _PARAMETER.sub("{}", path)
    return rule.path.count("/") == path.count("/") and rule.fits(path.split("/"))


# -- permissions -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """A request, and the expected status for each caller, in the order of the columns."""

    request: str  # "GET /v1/fetch?topic=orders&partition=0"
    statuses: tuple[int, ...]
    options: Mapping[str, Any]

    @property
    def method(self) -> str:
        """HTTP method."""
        return self.request.partition(" ")[0]

    @property
    def target(self) -> str:
        """Path with query."""
        return self.request.partition(" ")[2]


def row(request: str, *statuses: int, **options: Any) -> Row:  # noqa: ANN401 - as httpx has them
    """Make a row; options are the body of the request."""
    return Row(request, statuses, options)


def statuses_of(url: str, wanted: Row, callers: Mapping[str, Mapping[str, str]]) -> dict[str, int]:
    """Send the request as each caller; check the form of error responses."""
    found = {}
    with httpx.Client(base_url=url, timeout=10) as client:
        for name, headers in callers.items():
            options = {**wanted.options, "headers": {**wanted.options.get("headers", {}), **headers}}
            response = client.request(wanted.method, wanted.target, **options)
            found[name] = response.status_code
            assert (response.headers.get("www-authenticate") == "Bearer") is (response.status_code == 401)
    return found


# -- a manager that only serves access tables ----------------------------------------------------------------


class TableManager:
    """A real HTTP server that accepts heartbeats like the writer, and returns the given access table."""

    def __init__(self, port: int, table: AccessTable) -> None:
        self.table = table
        self.url = f"http://127.0.0.1:{port}"
        self.heard: list[tuple[dict[str, Any], str | None]] = []  # heartbeats with their authorization
        self.sent = 0  # number of tables
        manager = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                heartbeat = json.loads(self.rfile.read(int(self.headers["content-length"])))
                manager.heard.append((heartbeat, self.headers["authorization"]))
                body = json.dumps(manager.answer(heartbeat)).encode()
                self.send_response(200)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def answer(self, heartbeat: Mapping[str, Any]) -> dict[str, Any]:
        """Return the response to a heartbeat; with the table, if the broker has another version."""
        answer: dict[str, Any] = {"status": "ok", "writer_epoch": 1 << 40, "known": True}
        if heartbeat.get("access", self.table.version) != self.table.version:
            self.sent += 1
            answer["access"] = self.table.to_builtins()
        return answer

    def close(self) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
