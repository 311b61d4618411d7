"""Behaviour of all requests: request ids, limits, errors, and internal errors."""

import asyncio
import json
import logging
import sys
from collections.abc import MutableMapping
from importlib.metadata import version
from typing import Any

import pytest
from fastapi import FastAPI

from flotilla import __version__
from flotilla.protocol.asgi import JSON, parse_query
from flotilla.protocol.errors import STATUS_OF, Refusal
from flotilla_server import docs, request_ids
from flotilla_server.application import Application
from flotilla_server.asgi import ClientDisconnected, Receive, Scope, Send, read_body, respond
from flotilla_server.docs import VERSION, add_docs
from flotilla_server.handlers import add_handlers

BODY_BYTES_MAX = 100


class Answer:
    """A response as a client sees it."""

    def __init__(self, messages: list[MutableMapping[str, Any]]) -> None:
        (start, *rest) = messages
        self.status = start["status"]
        self.headers = dict(start["headers"])
        self.body = b"".join(part.get("body", b"") for part in rest)


def ask(front: Application, path: str, *, method: str = "GET", body: bytes = b"", **headers: str) -> Answer:
    """Send a request to the app without a server."""
    sent: list[MutableMapping[str, Any]] = []
    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    path, _, query = path.partition("?")
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "path": path,
        "raw_path": path.encode(), "query_string": query.encode(), "headers": pairs, "scheme": "http",
    }  # fmt: skip

    parts: list[MutableMapping[str, Any]] = [{"type": "http.request", "body": body}]

    async def receive() -> MutableMapping[str, Any]:
        if not parts:
            await asyncio.Event().wait()  # a client that sends nothing more, and stays connected
        return parts.pop()

    async def send(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start" and sent:
            raise RuntimeError("an answer has begun already")  # as uvicorn does
        sent.append(message)

    asyncio.run(asyncio.wait_for(front(scope, receive, send), 10))
    return Answer(sent)


async def fast(scope: Scope, receive: Receive, send: Send) -> None:
    """An endpoint that is controlled by the query."""
    what = parse_query(scope["query_string"]).get("what")
    if what == "refuse":
        raise Refusal("not_leader", "ask another", leader="x")
    if what == "break":
        raise KeyError("a mistake")
    if what == "gone":
        await respond(send, 200, [], [])
        raise ClientDisconnected
    if what == "late":
        await respond(send, 200, [], [])
        raise KeyError("a mistake behind the answer")
    body = await read_body(receive, BODY_BYTES_MAX, lambda _: None)
    await respond(send, 200, [JSON], [json.dumps([request_ids.current(), len(body)]).encode()])


@pytest.fixture
def front() -> Application:
    app = FastAPI(title="An <example>", docs_url=None, redoc_url=None)

    @app.post("/slow")
    async def slow(number: int, body: dict[str, int]) -> dict[str, Any]:
        return {"id": request_ids.current(), "number": number, "size": len(body)}

    @app.get("/things/{name}")
    @app.delete("/things/{name}")
    async def thing(name: str) -> str:
        return name

    @app.get("/broken")
    async def broken() -> None:
        raise KeyError("a mistake")

    add_handlers(app)
    add_docs(app)
    return Application({"/fast": fast}, app, connections_max=10, body_bytes_max=BODY_BYTES_MAX)


def test_request_id_of_the_client_is_used_everywhere(front: Application) -> None:
    for path, method, body in (("/fast", "GET", b""), ("/slow?number=1", "POST", b"{}")):
        answer = ask(front, path, method=method, body=body, x_request_id="my-id_1.2", content_type="application/json")
        assert (answer.status, answer.headers[b"x-request-id"]) == (200, b"my-id_1.2")
        assert "my-id_1.2" in answer.body.decode()


@pytest.mark.parametrize("bad", ["", "a b", "ü", "x" * 129, "a\tb", "<script>"])
def test_malformed_request_id_is_replaced(front: Application, bad: str) -> None:
    answer = ask(front, "/fast", x_request_id=bad)
    assert b"x-request-id" not in answer.headers
    assert json.loads(answer.body)[0] is None
    made = ask(front, "/nothing", x_request_id=bad).headers[b"x-request-id"].decode()
    assert len(made) == 16
    assert made != bad


def test_request_id_is_generated_for_routed_and_failed_requests(front: Application) -> None:
    """Not for a fast success, but for every error, which will be looked up in the logs."""
    assert b"x-request-id" not in ask(front, "/fast").headers
    assert len(ask(front, "/fast?what=refuse").headers[b"x-request-id"]) == 16
    assert len(ask(front, "/healthz").headers[b"x-request-id"]) == 16


def test_wrong_method_or_path_lists_the_existing_ones(front: Application) -> None:
    """All methods of a path are listed, although each may be a separate route."""
    messages = [
        json.loads(ask(front, path, method="PUT").body)["message"] for path in ("/things/x", "/slow", "/nothing")
    ]
    assert messages == [
        "'/things/x': method not allowed, use DELETE or GET",
        "'/slow': method not allowed, use POST",
        "path '/nothing' does not exist; see /docs",
    ]


@pytest.mark.parametrize("given", ["", "application/x-www-form-urlencoded", "text/json"])
def test_body_without_json_content_type_is_explained(front: Application, given: str) -> None:
    """Curl sends another content type by default."""
    answer = ask(front, "/slow?number=1", method="POST", body=b'{"a": 1}', content_type=given)
    assert json.loads(answer.body)["message"] == "body: content-type must be application/json"
    answer = ask(front, "/slow?number=1", method="POST", body=b"[]", content_type="application/json")
    assert json.loads(answer.body)["message"] == "body: Input should be a valid dictionary"


def test_all_errors_have_the_same_shape(front: Application) -> None:
    json_type = {"content_type": "application/json"}
    refused = [
        (ask(front, "/fast?what=refuse"), "not_leader"),
        (ask(front, "/fast?what=a&what=b"), "bad_request"),
        (ask(front, "/nothing"), "not_found"),
        (ask(front, "/slow"), "method_not_allowed"),
        (ask(front, "/slow?number=x", method="POST", body=b"{}", **json_type), "bad_request"),
        (ask(front, "/slow?number=1", method="POST", body=b"{" * 101, **json_type), "too_large"),
        (ask(front, "/slow?number=1", method="POST", content_length="101"), "too_large"),
        (ask(front, "/fast", body=bytes(101)), "too_large"),
    ]
    for answer, code in refused:
        found = json.loads(answer.body)
        assert (found["code"], answer.status) == (code, STATUS_OF[code])
        assert set(found) == {"code", "message", "details", "retryable"}


def test_internal_error_is_logged_and_answered(front: Application, caplog: pytest.LogCaptureFixture) -> None:
    for path in ("/fast?what=break", "/broken"):
        caplog.clear()
        answer = ask(front, path, x_request_id="which")
        assert (answer.status, json.loads(answer.body)["code"]) == (500, "internal")
        assert b"internal error" in answer.body
        assert answer.headers[b"x-request-id"] == b"which"
        assert [r.exc_info is not None for r in caplog.records if r.levelno == logging.ERROR] == [True]


def test_internal_error_after_the_response_sends_no_second_one(front: Application) -> None:
    assert ask(front, "/fast?what=late").status == 200
    assert ask(front, "/fast?what=gone").status == 200


def test_too_many_connections_are_rejected_except_health_checks(front: Application) -> None:
    front.count_connections = lambda: 11
    answer = ask(front, "/fast")
    assert (answer.status, answer.headers[b"retry-after"]) == (503, b"1")
    assert json.loads(answer.body)["code"] == "too_many_connections"
    assert ask(front, "/healthz").status == 404, "which this server does not have, but it was asked"


def test_docs_load_files_from_the_same_server_only(front: Application) -> None:
    page = ask(front, "/docs")
    text = page.body.decode()
    assert "An &lt;example&gt;" in text
    assert "//" not in text.replace("<!DOCTYPE html>", ""), "no URL names a host"
    assert b"default-src 'none'" in page.headers[b"content-security-policy"]
    for name in ("swagger-ui-bundle.js", "swagger-ui.css", "init.js", "favicon-32x32.png"):
        assert f"docs/{VERSION}/{name}" in text
        found = ask(front, f"/docs/{VERSION}/{name}")
        assert (found.status, found.headers[b"cache-control"][:20]) == (200, b"public, max-age=3153")
        assert len(found.body) == int(found.headers[b"content-length"]) > 200
    assert ask(front, "/favicon.ico").headers[b"content-type"] == b"image/png"
    assert list(json.loads(ask(front, "/openapi.json").body)["paths"]) == ["/slow", "/things/{name}", "/broken"]


def test_docs_urls_change_with_flotilla_and_with_swagger_ui() -> None:
    """Browsers cache the files for a year: an upgrade of either one must not leave a stale file in use."""
    assert VERSION.split("-", 1) == [__version__, version("fastapi-swagger")]


def test_docs_import_no_code_of_the_package_that_has_the_files() -> None:
    assert not [name for name in sys.modules if name.startswith("fastapi_swagger")]


def test_docs_name_the_package_that_is_not_installed() -> None:
    with pytest.raises(ImportError, match="package no-such-package is not installed"):
        docs._find_package("no-such-package")


def test_add_docs_rejects_an_app_with_docs_of_its_own() -> None:
    with pytest.raises(ValueError, match="docs_url=None"):
        add_docs(FastAPI())
