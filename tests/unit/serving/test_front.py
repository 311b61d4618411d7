"""What concerns every request, whatever it is about: ids, limits, refusals, and mistakes of ours."""

import asyncio
import json
import logging
from collections.abc import MutableMapping
from typing import Any

import pytest
from fastapi import FastAPI

from flotilla.serving import request_ids
from flotilla.serving.asgi import JSON, Gone, Receive, Scope, Send, parse_query, read_body, respond
from flotilla.serving.docs import VERSION, add_docs
from flotilla.serving.errors import STATUS_OF, Refusal
from flotilla.serving.front import Front
from flotilla.serving.handlers import add_handlers

BODY_BYTES_MAX = 100


class Answer:
    """What a client would see."""

    def __init__(self, messages: list[MutableMapping[str, Any]]) -> None:
        (start, *rest) = messages
        self.status = start["status"]
        self.headers = dict(start["headers"])
        self.body = b"".join(part.get("body", b"") for part in rest)


def ask(front: Front, path: str, *, method: str = "GET", body: bytes = b"", **headers: str) -> Answer:
    """Make a request without a server."""
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
            await asyncio.Event().wait()  # a client that says no more, and stays
        return parts.pop()

    async def send(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start" and sent:
            raise RuntimeError("an answer has begun already")  # as uvicorn does
        sent.append(message)

    asyncio.run(asyncio.wait_for(front(scope, receive, send), 10))
    return Answer(sent)


async def fast(scope: Scope, receive: Receive, send: Send) -> None:
    """An endpoint that does what the query says."""
    what = parse_query(scope["query_string"]).get("what")
    if what == "refuse":
        raise Refusal("not_leader", "ask another", leader="x")
    if what == "break":
        raise KeyError("a mistake")
    if what == "gone":
        await respond(send, 200, [], [])
        raise Gone
    if what == "late":
        await respond(send, 200, [], [])
        raise KeyError("a mistake behind the answer")
    body = await read_body(receive, BODY_BYTES_MAX, lambda _: None)
    await respond(send, 200, [JSON], [json.dumps([request_ids.current(), len(body)]).encode()])


@pytest.fixture
def front() -> Front:
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
    return Front({"/fast": fast}, app, connections_max=10, body_bytes_max=BODY_BYTES_MAX)


def test_an_id_that_the_client_sent_goes_through_everything(front: Front) -> None:
    for path, method, body in (("/fast", "GET", b""), ("/slow?number=1", "POST", b"{}")):
        answer = ask(front, path, method=method, body=body, x_request_id="my-id_1.2", content_type="application/json")
        assert (answer.status, answer.headers[b"x-request-id"]) == (200, b"my-id_1.2")
        assert "my-id_1.2" in answer.body.decode()


@pytest.mark.parametrize("bad", ["", "a b", "ü", "x" * 129, "a\tb", "<script>"])
def test_an_id_that_is_malformed_is_not_taken_over(front: Front, bad: str) -> None:
    answer = ask(front, "/fast", x_request_id=bad)
    assert b"x-request-id" not in answer.headers
    assert json.loads(answer.body)[0] is None
    made = ask(front, "/nothing", x_request_id=bad).headers[b"x-request-id"].decode()
    assert len(made) == 16
    assert made != bad


def test_an_id_is_made_where_it_costs_little_or_helps(front: Front) -> None:
    """Not for a fast request that went well, but for every refusal, which somebody will look for in the logs."""
    assert b"x-request-id" not in ask(front, "/fast").headers
    assert len(ask(front, "/fast?what=refuse").headers[b"x-request-id"]) == 16
    assert len(ask(front, "/healthz").headers[b"x-request-id"]) == 16


def test_who_takes_a_wrong_method_or_path_is_told_what_there_is(front: Front) -> None:
    """All methods of a path are named, although each may be a route of its own."""
    messages = [
        json.loads(ask(front, path, method="PUT").body)["message"] for path in ("/things/x", "/slow", "/nothing")
    ]
    assert messages == [
        "'/things/x' takes DELETE or GET",
        "'/slow' takes POST",
        "there is no '/nothing' here; /docs tells what there is",
    ]


@pytest.mark.parametrize("given", ["", "application/x-www-form-urlencoded", "text/json"])
def test_who_does_not_say_that_a_body_is_json_is_told_so(front: Front, given: str) -> None:
    """It is what curl sends, where nobody says otherwise."""
    answer = ask(front, "/slow?number=1", method="POST", body=b'{"a": 1}', content_type=given)
    assert json.loads(answer.body)["message"] == "body: it must come with the header content-type: application/json"
    answer = ask(front, "/slow?number=1", method="POST", body=b"[]", content_type="application/json")
    assert json.loads(answer.body)["message"] == "body: Input should be a valid dictionary"


def test_a_refusal_has_one_shape_wherever_it_comes_from(front: Front) -> None:
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


def test_a_mistake_of_ours_is_logged_and_answered(front: Front, caplog: pytest.LogCaptureFixture) -> None:
    for path in ("/fast?what=break", "/broken"):
        caplog.clear()
        answer = ask(front, path, x_request_id="which")
        assert (answer.status, json.loads(answer.body)["code"]) == (500, "internal")
        assert b"mistake" in answer.body
        assert answer.headers[b"x-request-id"] == b"which"
        assert [r.exc_info is not None for r in caplog.records if r.levelno == logging.ERROR] == [True]


def test_a_mistake_behind_an_answer_does_not_make_it_two(front: Front) -> None:
    assert ask(front, "/fast?what=late").status == 200
    assert ask(front, "/fast?what=gone").status == 200


def test_too_many_connections_are_refused_but_not_health_checks(front: Front) -> None:
    front.count_connections = lambda: 11
    answer = ask(front, "/fast")
    assert (answer.status, answer.headers[b"retry-after"]) == (503, b"1")
    assert json.loads(answer.body)["code"] == "too_many_connections"
    assert ask(front, "/healthz").status == 404, "which this server does not have, but it was asked"


def test_the_docs_come_from_here_alone(front: Front) -> None:
    page = ask(front, "/docs")
    text = page.body.decode()
    assert "An &lt;example&gt;" in text
    assert "//" not in text.replace("<!DOCTYPE html>", ""), "nothing is fetched from elsewhere"
    assert b"default-src 'none'" in page.headers[b"content-security-policy"]
    for name in ("swagger-ui-bundle.js", "swagger-ui.css", "init.js", "favicon-32x32.png"):
        assert f"docs/{VERSION}/{name}" in text
        found = ask(front, f"/docs/{VERSION}/{name}")
        assert (found.status, found.headers[b"cache-control"][:20]) == (200, b"public, max-age=3153")
        assert len(found.body) == int(found.headers[b"content-length"]) > 200
    assert ask(front, "/favicon.ico").headers[b"content-type"] == b"image/png"
    assert list(json.loads(ask(front, "/openapi.json").body)["paths"]) == ["/slow", "/things/{name}", "/broken"]


def test_an_app_with_docs_from_elsewhere_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="docs_url=None"):
        add_docs(FastAPI())
