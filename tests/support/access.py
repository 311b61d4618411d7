"""Tokens for tests, callers in all their kinds, and tables of who may do what, for brokers and managers alike."""

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

from flotilla.access import AccessTable, Grant, Token, digest_of, system_text
from flotilla.serving.gate import Gate, Rule

SECRET = "the secret of all servers"  # noqa: S105 - of no server but those of tests
ENVIRONMENT = {"FLOTILLA_AUTH": "on", "FLOTILLA_SECRET": SECRET}
_numbers = itertools.count(1)
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
_PARAMETER = re.compile(r"{[^}]+}")


@dataclass(frozen=True)
class Holder:
    """Somebody with a token: what they show, and what servers keep of it."""

    text: str
    token: Token

    @property
    def headers(self) -> dict[str, str]:
        """What they send."""
        return bearer(self.text)


def bearer(text: str) -> dict[str, str]:
    """Return the headers that show a token."""
    return {"authorization": f"Bearer {text}"}


def system_headers(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what a server with this environment shows to others; nothing if it has no secret."""
    secret = environment.get("FLOTILLA_SECRET")
    return {} if secret is None else bearer(system_text(secret.encode()))


SYSTEM = bearer(system_text(SECRET.encode()))


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
    """Give a token a quota."""
    return Holder(
        holder.text,
        replace(holder.token, bytes_per_s=bytes_per_s, requests_per_s=requests_per_s, in_flight_bytes=in_flight_bytes),
    )


def table_of(*holders: Holder) -> AccessTable:
    """Return what servers keep of some tokens."""
    return AccessTable(tuple(holder.token for holder in holders))


# -- every path has a rule ---------------------------------------------------------------------------------


def missing_rules(fast: Iterable[str], app: FastAPI, rules: Sequence[Rule]) -> list[str]:
    """Name what a server serves without a rule of its own: paths of fast endpoints, and FastAPI's routes."""
    gate = Gate(None, rules)
    missing = [path for path in fast if not any(gate.find(method, path) for method in _METHODS)]
    for method, path in routes_of(app):
        rule = gate.find(method, _PARAMETER.sub("x", path))
        if rule is None or not _is_for(rule, path):
            missing.append(f"{method} {path}: {rule}")
    return missing


def idle_rules(fast: Iterable[str], app: FastAPI, rules: Sequence[Rule]) -> list[Rule]:
    """Name the rules that are about nothing: somebody renamed a path, or forgot to remove them."""
    paths = {*fast, *(path for _, path in routes_of(app))}
    return [rule for rule in rules if not any(_is_for(rule, path) for path in paths)]


def routes_of(app: FastAPI) -> Iterator[tuple[str, str]]:
    """Walk over everything that FastAPI serves."""
    for route in _flat(app.routes):
        assert isinstance(route, Route), f"{route} is no route: teach the gate about it, and this test"
        for method in sorted(route.methods or ()):
            yield method, route.path


def _flat(routes: Iterable[BaseRoute]) -> Iterator[BaseRoute]:
    """Open what FastAPI includes as a whole; its routes know their prefixes."""
    for route in routes:
        router = getattr(route, "original_router", None)
        if isinstance(router, APIRouter):
            yield from _flat(router.routes)
        else:
            yield route


def _is_for(rule: Rule, path: str) -> bool:
    """Tell whether a rule is about a path, whatever its parameters are called. A fixed one may be one of a template."""
    if "{" in path:
        return _PARAMETER.sub("{}", rule.path) == _PARAMETER.sub("{}", path)
    return rule.path.count("/") == path.count("/") and rule.fits(path.split("/"))


# -- who may do what ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """A request, and the status of the answer for each caller, in the order of the columns."""

    request: str  # "GET /v1/fetch?topic=orders&partition=0"
    statuses: tuple[int, ...]
    options: Mapping[str, Any]

    @property
    def method(self) -> str:
        """The method."""
        return self.request.partition(" ")[0]

    @property
    def target(self) -> str:
        """The path with the query."""
        return self.request.partition(" ")[2]


def row(request: str, *statuses: int, **options: Any) -> Row:  # noqa: ANN401 - as httpx has them
    """Write a row; options are the request's body."""
    return Row(request, statuses, options)


def statuses_of(url: str, wanted: Row, callers: Mapping[str, Mapping[str, str]]) -> dict[str, int]:
    """Ask as each caller in turn; check the shape of refusals on the way."""
    found = {}
    with httpx.Client(base_url=url, timeout=10) as client:
        for name, headers in callers.items():
            options = {**wanted.options, "headers": {**wanted.options.get("headers", {}), **headers}}
            response = client.request(wanted.method, wanted.target, **options)
            found[name] = response.status_code
            assert (response.headers.get("www-authenticate") == "Bearer") is (response.status_code == 401)
    return found


# -- a manager that only hands out tables ------------------------------------------------------------------


class TableManager:
    """A real HTTP server that takes heartbeats as the writer does, and answers with the table it was given."""

    def __init__(self, port: int, table: AccessTable) -> None:
        self.table = table
        self.url = f"http://127.0.0.1:{port}"
        self.heard: list[tuple[dict[str, Any], str | None]] = []  # heartbeats, and what was shown with them
        self.sent = 0  # tables
        manager = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                beat = json.loads(self.rfile.read(int(self.headers["content-length"])))
                manager.heard.append((beat, self.headers["authorization"]))
                body = json.dumps(manager.answer(beat)).encode()
                self.send_response(200)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def answer(self, beat: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a heartbeat; with the table, if the broker has another one."""
        answer: dict[str, Any] = {"status": "ok", "writer_epoch": 1 << 40, "known": True}
        if beat.get("access", self.table.version) != self.table.version:
            self.sent += 1
            answer["access"] = self.table.to_builtins()
        return answer

    def close(self) -> None:
        """End it."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
