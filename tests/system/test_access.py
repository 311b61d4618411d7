"""Permissions on managers: every route with every kind of caller, on a reader and on the writer.

Brokers have such a table of their own. What tokens do over time is in test_tokens.py.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import msgspec
import pytest

from flotilla.records import encode
from flotilla_manager.api.app import make_app
from flotilla_manager.api.calls import make_calls
from flotilla_manager.api.rules import RULES
from flotilla_manager.api.simple import SimpleApi
from flotilla_manager.manager import Manager
from flotilla_manager.metadata import open_store
from flotilla_manager.settings import Settings
from flotilla_server.authorization import Authorizer
from support.access import ENVIRONMENT, SECRET, SYSTEM, bearer, idle_rules, missing_rules
from support.cluster import wait_until
from support.fleet import Fleet

GRANTS = {
    "produce": ["produce:orders*"],
    "consume": ["consume:orders*"],
    "admin": ["admin:orders*"],
    "root": ["admin"],
    "others": ["produce:others", "consume:others", "admin:others"],
}
CALLERS = ("nobody", "invalid", *GRANTS, "system")
OPEN, ANY = "yyyyyyyy", "11yyyyyy"
SEES, ADMIN, PRODUCE, CONSUME = "11yyyy3y", "1133yy3y", "11y3333y", "113y333y"
ROOT, CARE, SERVERS = "11333y3y", "113y3y3y", "1133333y"


@dataclass(frozen=True)
class Row:
    """A request, and what becomes of each caller: 1 is 401, 3 is 403, y is let in, whatever the answer is then."""

    request: str
    expected: str
    body: Any = None

    @property
    def method(self) -> str:
        return self.request.partition(" ")[0]

    @property
    def target(self) -> str:
        return self.request.partition(" ")[2]


GONE = "orders-gone"  # matches the patterns, and does not exist: permitted requests destroy nothing
MEMBER = {"member_id": "nobody", "generation": 1}
PLACE = {"topic": "orders", "partition": 0}
HOST = {"broker_host": "127.0.0.1:1"}
ROWS = (
    # Public routes. The columns are those of CALLERS:
    #                                          no_token, invalid, produce, consume, admin, root, others, system
    *(Row(f"GET /{path}", OPEN) for path in ("healthz", "readyz", "metrics", "openapi.json", "favicon.ico", "docs")),
    Row("GET /docs/5/init.js", OPEN),
    # The simple API.
    Row("GET /", ANY),
    Row("GET /topics", ANY),
    Row("POST /topics", ADMIN, {"name": "orders"}),
    Row(f"DELETE /topics/{GONE}", ADMIN),
    Row("GET /topics/orders/partitions", SEES),
    Row("POST /producer/register", PRODUCE, {"topic": "orders"}),
    Row("POST /producer/produce", PRODUCE, {"topic": "orders", "producer_id": "x", "message": "m"}),
    Row("POST /producer/heartbeat", ANY, {"producer_id": "x"}),
    Row("GET /producers", ROOT),
    Row("POST /consumer/register", CONSUME, {"topic": "orders"}),
    Row("GET /consumer/consume?topic=orders&consumer_id=x", CONSUME),
    Row("POST /consumer/heartbeat", ANY, {"consumer_id": "x"}),
    Row("GET /consumers", ROOT),
    Row("GET /size?topic=orders&consumer_id=x", CONSUME),
    Row("GET /brokers", ROOT),
    Row("GET /managers", ROOT),
    *(Row(f"POST /admin/broker/{what}", ROOT, HOST) for what in ("add", "remove", "activate", "deactivate")),
    # The v1 API.
    Row("GET /v1/metadata", ANY),
    Row("GET /v1/topics", ANY),
    Row("POST /v1/topics", ADMIN, {"name": "orders"}),
    Row("GET /v1/topics/orders", SEES),
    Row(f"PATCH /v1/topics/{GONE}", ADMIN, {}),
    Row(f"DELETE /v1/topics/{GONE}", ADMIN),
    Row("GET /v1/topics/orders/offsets", CONSUME),
    Row(f"POST /v1/topics/{GONE}/delete-records", ADMIN, {"partitions": [{"partition": 0, "offset": 0}]}),
    Row("POST /v1/append?topic=orders&partition=0", PRODUCE, bytes(encode([b"x"]))),
    Row("GET /v1/fetch?topic=orders&partition=0&offset=0", CONSUME),
    Row("GET /v1/tail?topic=orders&partition=999", CONSUME),
    # Groups: administration needs the scope on their topics, or admin on all.
    Row("GET /v1/groups", ANY),
    Row("GET /v1/groups/workers", CARE),
    Row("GET /v1/groups/workers/offsets", CARE),
    Row("POST /v1/groups/workers/join", CONSUME, {"topics": ["orders"], "member_id": "w", "timeout_ms": 3_600_000}),
    Row("POST /v1/groups/workers/sync", CONSUME, {**MEMBER, "owned": [PLACE]}),
    Row("POST /v1/groups/workers/commit", CONSUME, {**MEMBER, "offsets": [{**PLACE, "offset": 0}]}),
    Row("POST /v1/groups/workers/heartbeat", CARE, MEMBER),
    Row("POST /v1/groups/workers/leave", CARE, MEMBER),
    Row("POST /v1/groups/workers/reset", CARE, {"to": {"earliest": True}, "dry_run": True}),
    Row("DELETE /v1/groups/workers", CARE),
    # Operators, brokers, tokens.
    Row("GET /v1/control/state", ROOT),
    Row(f"PUT /v1/control/topics/{GONE}", ROOT, {"partitions": 0}),
    Row(f"DELETE /v1/control/topics/{GONE}", ROOT),
    Row(f"DELETE /v1/control/topics/{GONE}/owner", ROOT),
    Row(f"PUT /v1/control/brokers/{'f' * 32}", ROOT, {}),
    Row(f"DELETE /v1/control/brokers/{'f' * 32}", ROOT),
    Row("POST /v1/control/heartbeat", SERVERS, {}),
    Row("GET /v1/tokens", ROOT),
    Row("POST /v1/tokens", ROOT, {}),
    Row(f"DELETE /v1/tokens/{'f' * 16}", ROOT),
)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = Path(tmp_path_factory.mktemp("fleet"))
    with Fleet(folder, brokers=1, readers=1, environment=ENVIRONMENT) as fleet:
        for name in ("orders", "others", "secret"):
            fleet.create(name)
        body = {"topics": ["orders"], "member_id": "w", "timeout_ms": 3_600_000}
        joined = fleet.client.post("/v1/groups/workers/join", json=body).raise_for_status().json()
        who = {"member_id": "w", "generation": joined["generation"]}
        body = {**who, "offsets": [{**PLACE, "offset": 0}]}
        fleet.client.post("/v1/groups/workers/commit", json=body).raise_for_status()
        yield fleet


@pytest.fixture(scope="module")
def callers(fleet: Fleet) -> dict[str, dict[str, str]]:
    """Return the headers of each kind of caller."""
    made = {name: make_token(fleet, name, *grants) for name, grants in GRANTS.items()}
    forged = made["root"][:-8] + "AAAAAAAA"
    return {
        "nobody": {},
        "invalid": bearer(forged),
        **{name: bearer(text) for name, text in made.items()},
        "system": SYSTEM,
    }


def make_token(fleet: Fleet, name: str, *grants: str) -> str:
    """Create a token, and wait until all managers know it."""
    response = fleet.client.post("/v1/tokens", json={"name": name, "grants": grants})
    assert response.status_code == 200, response.text
    text = str(response.json()["token"])
    for manager in fleet.managers:
        url = f"{manager.own_url}/"
        wait_until("it to be known", lambda url=url: httpx.get(url, headers=bearer(text)).status_code == 200)  # type: ignore[misc]
    return text


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.request)
def test_every_route_accepts_exactly_the_permitted_callers(
    fleet: Fleet, callers: dict[str, dict[str, str]], row: Row
) -> None:
    """Callers that must be rejected come first, so that no state of others explains their status."""
    order = sorted(zip(CALLERS, row.expected, strict=True), key=lambda pair: pair[1])
    for manager in (fleet.readers[0], fleet.writer):
        with httpx.Client(base_url=manager.own_url, timeout=40) as client:
            for name, expected in order:
                content = {"content": row.body} if isinstance(row.body, bytes) else {"json": row.body}
                response = client.request(
                    row.method, row.target, headers=callers[name], **(content if row.body is not None else {})
                )
                found = {401: "1", 403: "3"}.get(response.status_code, "y")
                assert found == expected, f"{name} on the {manager.role}: {response.status_code} {response.text}"
                assert response.status_code < 500 or row.target == "/readyz", response.text
                check_shape(row, response)


def check_shape(row: Row, response: httpx.Response) -> None:
    """Error responses have the form of the API, and a 401 names the authentication scheme."""
    assert (response.headers.get("www-authenticate") == "Bearer") is (response.status_code == 401)
    if response.status_code in {401, 403}:
        answered = response.json()
        if row.target.startswith("/v1/"):
            assert answered["code"] == {401: "unauthorized", 403: "forbidden"}[response.status_code]
        else:
            assert (set(answered), answered["status"]) == ({"status", "message"}, "failure")


def test_every_route_has_a_rule_and_every_rule_a_row(tmp_path: Path) -> None:
    """A new route needs a rule and a row here; without a rule it is closed."""

    async def walk() -> None:
        settings = Settings(auth="on", secret=SECRET.encode())
        manager = Manager(settings, open_store(f"sqlite:///{tmp_path / 'x.db'}"), lambda _: None)
        try:
            front = make_app(manager)
            app = front.rest.app  # type: ignore[attr-defined]
            simple = [(call.method, call.path) for call in make_calls(SimpleApi(manager))]
        finally:
            await manager.close()
        authorizer = Authorizer(None, RULES)
        paths = {path for _, path in simple}
        assert missing_rules(front.fast, app, RULES) == []
        assert idle_rules([*front.fast, *paths], app, RULES) == []
        for method, path in simple:
            rule = authorizer.find(method, path)
            assert rule is not None, f"{method} {path} has no rule"
            assert rule.path == path
        tried = {(authorizer.find(row.method, urlsplit(row.target).path), row.method) for row in ROWS}
        assert {(rule, method) for rule in RULES for method in rule.methods} - tried == set()

    asyncio.run(walk())


@pytest.mark.parametrize("target", ["/v1/nothing", "/nothing", "/v1/topics/", "/topics/a/b/c", "/v1/replicas"])
def test_unknown_path_is_reported_only_to_callers_with_a_token(
    fleet: Fleet, callers: dict[str, dict[str, str]], target: str
) -> None:
    found = {name: httpx.get(fleet.url + target, headers=callers[name]).status_code for name in CALLERS}
    assert found == {name: 401 if name in {"nobody", "invalid"} else 404 for name in CALLERS}


def test_lists_contain_only_visible_topics(fleet: Fleet, callers: dict[str, dict[str, str]]) -> None:
    seen = {"produce": ["orders"], "consume": ["orders"], "admin": ["orders"], "others": ["others"]}
    everything = ["orders", "others", "secret"]
    for name, topics in {**seen, "root": everything, "system": everything}.items():
        with httpx.Client(base_url=fleet.url, headers=callers[name]) as client:
            assert client.get("/topics").json()["topics"] == topics, name
            assert [one["name"] for one in client.get("/v1/topics").json()["topics"]] == topics, name
            assert [one["name"] for one in client.get("/v1/metadata").json()["topics"]] == topics, name
            named = client.get("/v1/metadata", params={"topic": [*everything, "no-such"]}).json()
            assert [one["name"] for one in named["topics"]] == topics, name
            assert named["missing"] == [one for one in [*everything, "no-such"] if one not in topics], name
            groups = [one["name"] for one in client.get("/v1/groups").json()["groups"]]
            may_see = name in {"consume", "root", "system"}
            assert groups == (["workers"] if may_see else []), name
            assert ("workers" in client.get("/v1/groups?limit=1").text) is may_see, (
                "nor is it where the next page begins"
            )


def test_forbidden_topic_looks_like_a_missing_one(fleet: Fleet, callers: dict[str, dict[str, str]]) -> None:
    """A caller without a scope on a topic does not learn whether it exists."""
    about = [row for row in ROWS if "3" in row.expected and "orders" in f"{row.target} {row.body!r}"]
    assert len(about) > 20
    for row in about:
        if row.target.startswith(("/v1/control", "/v1/groups/workers")):
            continue
        answered = []
        for topic in ("secret", "unreal"):  # of equal length, as bodies are compared
            target = row.target.replace(GONE, topic).replace("orders", topic)
            body = row.body
            if isinstance(body, dict):
                body = {key: topic if value == "orders" else value for key, value in body.items()}
            content = {"content": body} if isinstance(body, bytes) else {"json": body}
            response = httpx.request(row.method, fleet.url + target, headers=callers["others"], **content, timeout=40)
            headers = {name: value for name, value in response.headers.items() if name != "x-request-id"}
            answered.append((response.status_code, headers, response.text.replace(topic, "...")))
        assert answered[0] == answered[1], row.request
        assert answered[0][0] == 403, row.request


def test_producer_registration_creates_a_topic_only_with_the_admin_scope(fleet: Fleet) -> None:
    maker = make_token(fleet, "maker", "produce:made*", "admin:made-1")
    for topic, status in (("made-1", 200), ("made-2", 403), ("orders", 403)):
        response = httpx.post(
            f"{fleet.url}/producer/register", json={"topic": topic}, headers=bearer(maker), timeout=40
        )
        assert response.status_code == status, response.text
    assert "made-2" not in fleet.get("/topics")["topics"]
    fleet.create("made-2")
    response = httpx.post(f"{fleet.url}/producer/register", json={"topic": "made-2"}, headers=bearer(maker), timeout=40)
    assert response.status_code == 200
    for topic in ("made-1", "made-2"):
        fleet.client.delete(f"/topics/{topic}").raise_for_status()


def test_topic_by_id_needs_the_same_scopes(fleet: Fleet, callers: dict[str, dict[str, str]]) -> None:
    ids = {one["name"]: f"id:{one['id']}" for one in fleet.client.get("/v1/topics").json()["topics"]}
    for name, topic, status in (
        ("consume", ids["orders"], 200),
        ("consume", ids["secret"], 403),
        ("produce", ids["orders"], 403),
        ("consume", f"id:{'f' * 32}", 404),
        ("consume", "id:orders", 404),
    ):
        query = {"topic": topic, "partition": "0", "offset": "earliest"}
        response = httpx.get(f"{fleet.url}/v1/fetch", params=query, headers=callers[name])
        assert response.status_code == status, response.text
        assert "secret" not in response.text


def test_each_batch_of_a_request_is_authorized_separately(fleet: Fleet, callers: dict[str, dict[str, str]]) -> None:
    batch = bytes(encode([b"x"]))
    body = msgspec.msgpack.encode([["orders", 0, batch], ["secret", 0, batch], ["unreal", 0, batch]])
    headers = {**callers["produce"], "content-type": "application/vnd.flotilla.appends"}
    results = httpx.post(f"{fleet.url}/v1/append", content=body, headers=headers).json()["results"]
    assert [one["status"] for one in results] == ["ok", "failed", "failed"]
    assert [one["error"]["code"] for one in results[1:]] == ["forbidden", "forbidden"]


def test_group_hides_topics_that_the_caller_cannot_see(fleet: Fleet, callers: dict[str, dict[str, str]]) -> None:
    """Group names can be guessed; topic names must not leak through them."""
    for row in ROWS:
        if row.target.startswith("/v1/groups/workers"):
            body = {**(row.body or {}), **({"topics": ["others"]} if row.target.endswith("/join") else {})}
            if {"owned", "offsets"} & body.keys():
                continue  # these name the topic themselves
            response = httpx.request(row.method, fleet.url + row.target, headers=callers["others"], json=body)
            assert response.status_code == 403, row.request
            assert "orders" not in response.text, row.request


def test_takeover_of_a_member_needs_the_consume_scope_on_its_topics(
    fleet: Fleet, callers: dict[str, dict[str, str]]
) -> None:
    """Joining with an existing id fences the old member, so it needs the scope."""
    with httpx.Client(base_url=fleet.url, headers=callers["others"], timeout=40) as client:
        for id_ in ({"member_id": "w"}, {}):
            assert client.post("/v1/groups/workers/join", json={"topics": ["others"], **id_}).status_code == 403
        nothing = {"member_id": "w", "generation": 1, "owned": []}
        assert client.post("/v1/groups/workers/sync", json=nothing).status_code == 403
        assert (
            client.post("/v1/groups/their-own/join", json={"topics": ["others"], "member_id": "w"}).status_code == 200
        )
