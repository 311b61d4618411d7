"""Fake managers with configured responses: one on a real socket, and one instead of a client's connection pool."""

import contextlib
import json
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import msgspec

from flotilla.net import Disconnected, Pool, Response
from flotilla.net.connection import Buffer


class FakeManager(ThreadingHTTPServer):
    """Returns configured responses, and records requests: method, target, authorization, JSON."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = 200
        self.statuses: list[int] = []  # of the next responses; then `status`
        self.answer: bytes = b"{}"
        self.headers: dict[str, str] = {}
        self.answers: dict[str, object] = {}  # by prefix of "METHOD target"; the longest takes precedence over `answer`
        self.asked: list[tuple[str, str, str | None, Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def find(self, request: str) -> bytes:
        """Return the response to a request."""
        fitting = [start for start in self.answers if request.startswith(start)]
        return json.dumps(self.answers[max(fitting, key=len)]).encode() if fitting else self.answer


class _Handler(BaseHTTPRequestHandler):
    """Handles any request."""

    server: FakeManager
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        asked = (self.command, self.path, self.headers["authorization"], json.loads(body) if body else None)
        self.server.asked.append(asked)
        answer = self.server.find(f"{self.command} {self.path}")
        self.send_response(self.server.statuses.pop(0) if self.server.statuses else self.server.status)
        self.send_header("content-length", str(len(answer)))
        for name, value in self.server.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer)

    do_POST = do_PATCH = do_DELETE = do_GET  # noqa: N815 - names of the standard library

    def log_message(self, *_: object) -> None:
        return

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError, ssl.SSLError):  # an untrusting client closes it
            super().handle()


@contextlib.contextmanager
def serving() -> Iterator[FakeManager]:
    """Run a fake manager."""
    with FakeManager() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class Asked(NamedTuple):
    """A received request."""

    url: str
    method: str
    target: str
    body: Any
    headers: dict[str, str]
    timeout_s: float


Said = Response | Disconnected
Answering = Callable[[Asked], Said]


class FakePool(Pool):
    """Replaces all connections of a client: each request gets the next response, and the last one repeats."""

    def __init__(self, *answers: Said | Answering) -> None:
        super().__init__()
        self._answers = list(answers)
        self.asked: list[Asked] = []

    async def request(
        self,
        url: str,
        method: str,
        target: str,
        body: Buffer = b"",
        headers: Sequence[tuple[str, str]] = (),
        timeout_s: float = 0.0,
    ) -> Response:
        """Return the next response."""
        asked = Asked(url, method, target, msgspec.json.decode(body) if body else None, dict(headers), timeout_s)
        self.asked.append(asked)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        said = answer(asked) if callable(answer) else answer
        if isinstance(said, Disconnected):
            raise said
        return said

    @property
    def requests(self) -> list[str]:
        """Received requests as `METHOD target`."""
        return [f"{one.method} {one.target}" for one in self.asked]


def ok(body: object) -> Response:
    """Make a success response."""
    return Response(200, {}, msgspec.json.encode(body))


def no(status: int, code: str, message: str = "no", **details: object) -> Response:
    """Make an error response."""
    return Response(status, {}, msgspec.json.encode({"code": code, "message": message, "details": details}))
