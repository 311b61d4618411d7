"""Permissions on a broker: real processes with authentication, with and without a manager."""

import concurrent.futures
import json
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from flotilla.records import decode, encode, split
from flotilla_broker.access import FILE, write_table
from flotilla_broker.api.app import RULES
from flotilla_server.access_table import AccessTable
from flotilla_server.authorization import Authorizer
from flotilla_server.docs import VERSION
from support.access import ENVIRONMENT, SYSTEM, Row, TableManager, bearer, hold, row, statuses_of, table_of
from support.cluster import BrokerProcess, free_port, wait_until

TOPIC_ID, OTHER_ID = "1" * 32, "2" * 32
REVOKED_S = 5.0  # about two seconds are promised; tests run on busy machines
PRODUCER, CONSUMER = hold("produce:orders"), hold("consume:ord*")
ORDERS_ADMIN, ADMIN = hold("admin:orders"), hold("admin")
OTHER = hold("produce:other", "consume:other", "admin:other", "consume:id*", "consume:*1")
CALLERS: Mapping[str, Mapping[str, str]] = {
    "nobody": {},
    "invalid": bearer(PRODUCER.text[:-1] + "y"),
    "produce": PRODUCER.headers,
    "consume": CONSUMER.headers,
    "admin:orders": ORDERS_ADMIN.headers,
    "admin": ADMIN.headers,
    "other": OTHER.headers,
    "system": SYSTEM,
}
BATCH = bytes(encode([b"hello"]))
ORDER = {"writer_epoch": 1}
REPLICA = f"/v1/replicas/{TOPIC_ID}"
APPENDS = {"content-type": "application/vnd.flotilla.appends"}
FETCH = "partition=0&offset=earliest"

# fmt: off
TABLE = [
    # the callers, as in CALLERS                              none inv  prod cons a:or admi othe syst
    row("GET /healthz",                                       200, 200, 200, 200, 200, 200, 200, 200),
    row("GET /readyz",                                        200, 200, 200, 200, 200, 200, 200, 200),
    row("GET /metrics",                                       200, 200, 200, 200, 200, 200, 200, 200),
    row("GET /openapi.json",                                  200, 200, 200, 200, 200, 200, 200, 200),
    row("GET /docs",                                          200, 200, 200, 200, 200, 200, 200, 200),
    row(f"GET /docs/{VERSION}/init.js",                       200, 200, 200, 200, 200, 200, 200, 200),
    row("GET /favicon.ico",                                   200, 200, 200, 200, 200, 200, 200, 200),

    row("POST /v1/append?topic=orders&partition=0",           401, 401, 200, 403, 403, 403, 403, 200, content=BATCH),
    row(f"POST /v1/append?topic=id:{TOPIC_ID}&partition=0",   401, 401, 200, 403, 403, 403, 403, 200, content=BATCH),
    row("POST /v1/append?topic=other&partition=7",            401, 401, 403, 403, 403, 403, 404, 404, content=BATCH),
    row("POST /v1/append?topic=nowhere&partition=0",          401, 401, 403, 403, 403, 403, 403, 404, content=BATCH),
    row(f"POST /v1/append?topic=id:{'9' * 32}&partition=0",   401, 401, 404, 404, 404, 404, 404, 404, content=BATCH),
    row("POST /v1/append?topic=orders&partition=0",           401, 401, 400, 403, 403, 403, 403, 400, content=b"bad"),
    row("POST /v1/append",                                    401, 401, 200, 200, 200, 200, 200, 200, headers=APPENDS,
        content=msgspec.msgpack.encode([["orders", 0, BATCH]])),  # each is answered for itself: see below

    row(f"GET /v1/fetch?topic=orders&{FETCH}",                401, 401, 403, 200, 403, 403, 403, 200),
    row(f"GET /v1/fetch?topic=id:{TOPIC_ID}&{FETCH}",         401, 401, 403, 200, 403, 403, 403, 200),
    row(f"GET /v1/fetch?topic=other&{FETCH}",                 401, 401, 403, 403, 403, 403, 200, 200),
    row(f"GET /v1/fetch?topic=nowhere&{FETCH}",               401, 401, 403, 403, 403, 403, 403, 404),
    row(f"GET /v1/fetch?topic=id:{'9' * 32}&{FETCH}",         401, 401, 404, 404, 404, 404, 404, 404),

    row("POST /v1/delete-records?topic=orders&partition=0&offset=0",         401, 401, 403, 403, 200, 200, 403, 200),
    row(f"POST /v1/delete-records?topic=id:{TOPIC_ID}&partition=0&offset=0", 401, 401, 403, 403, 200, 200, 403, 200),

    row("GET /v1/broker",                                     401, 401, 403, 403, 403, 200, 403, 200),
    row("GET /v1/replicas",                                   401, 401, 403, 403, 403, 200, 403, 200),
    row(f"GET {REPLICA}/0/1",                                 401, 401, 403, 403, 403, 200, 403, 200),
    row("HEAD /v1/broker",                                    401, 401, 403, 403, 403, 405, 403, 405),

    row("PUT /v1/brokers",                                    401, 401, 403, 403, 403, 403, 403, 200,
        json={**ORDER, "brokers": {}}),
    row(f"PUT {REPLICA}/0/1",                                 401, 401, 403, 403, 403, 403, 403, 400,
        json={**ORDER, "topic": "orders", "members": ["0" * 32]}),  # this broker is not among them
    row(f"POST {REPLICA}/1/1/campaign",                       401, 401, 403, 403, 403, 403, 403, 200, json=ORDER),
    row(f"POST {REPLICA}/1/1/transfer-leadership",            401, 401, 403, 403, 403, 403, 403, 421, json=ORDER),
    row(f"POST {REPLICA}/1/1/stand",                          401, 401, 403, 403, 403, 403, 403, 200, json=ORDER),
    row(f"POST {REPLICA}/1/1/hand-over",                      401, 401, 403, 403, 403, 403, 403, 421, json=ORDER),

    row(f"DELETE {REPLICA}/2/1?writer_epoch=1",               401, 401, 403, 403, 403, 403, 403, 200),

    row("GET /v1/append",                                     401, 401, 405, 405, 405, 405, 405, 405),
    row("GET /nothing",                                       401, 401, 404, 404, 404, 404, 404, 404),
    row("GET /v1/broker/",                                    401, 401, 404, 404, 404, 404, 404, 404),
    row("GET //v1/broker",                                    401, 401, 404, 404, 404, 404, 404, 404),
    row("GET /v1%2Fbroker",                                   401, 401, 403, 403, 403, 200, 403, 200),
    row("GET /v1/%2E/broker",                                 401, 401, 404, 404, 404, 404, 404, 404),
    row("GET /docs/..%2Fv1%2Fbroker",                         401, 401, 404, 404, 404, 404, 404, 404),
]
# fmt: on


def made(folder: Path, table: AccessTable | None, *flags: str) -> BrokerProcess:
    """Make a broker with authentication and these tokens."""
    broker = BrokerProcess(folder, flags, ENVIRONMENT)
    if table is not None:
        broker.data.mkdir()
        write_table(broker.data / FILE, table)
    return broker


def start(broker: BrokerProcess) -> None:
    """Start it, and wait until it responds."""
    broker.start()
    broker.wait_alive()


def have(broker: BrokerProcess, topic: str, topic_id: str, partition: int) -> None:
    """Create a partition with one replica, which leads."""
    path = f"/v1/replicas/{topic_id}/{partition}/1"
    broker.put(path, {**ORDER, "topic": topic, "members": [broker.id]})
    wait_until("a leader", lambda: broker.get(path)["settled"])


def ask(broker: BrokerProcess, method: str, target: str, headers: Mapping[str, str], **options: Any) -> httpx.Response:  # noqa: ANN401 - as httpx has it
    """Send a request with a token, on its own connection."""
    return httpx.request(method, broker.url + target, headers={**headers, **options.pop("more", {})}, **options)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    table = table_of(PRODUCER, CONSUMER, ORDERS_ADMIN, ADMIN, OTHER)
    made_one = made(tmp_path_factory.mktemp("broker"), table)
    try:
        start(made_one)
        for partition in range(3):
            have(made_one, "orders", TOPIC_ID, partition)
        have(made_one, "other", OTHER_ID, 0)
        yield made_one
    finally:
        made_one.close()


@pytest.mark.parametrize("wanted", TABLE, ids=lambda wanted: wanted.request)
def test_scopes_decide_which_requests_are_permitted(broker: BrokerProcess, wanted: Row) -> None:
    """For every path of a broker, and every kind of caller."""
    assert statuses_of(broker.url, wanted, CALLERS) == dict(zip(CALLERS, wanted.statuses, strict=True))


def test_the_table_has_a_row_for_every_rule() -> None:
    authorizer = Authorizer(None, RULES)
    tried = [authorizer.find(wanted.method, wanted.target.partition("?")[0]) for wanted in TABLE]
    assert [rule for rule in RULES if rule not in tried] == []


def test_missing_scope_is_named(broker: BrokerProcess) -> None:
    refused = ask(broker, "POST", "/v1/append?topic=orders&partition=0", CONSUMER.headers, content=BATCH).json()
    assert (refused["code"], refused["message"]) == ("forbidden", "the scope produce on topic 'orders' is missing")
    assert refused["details"] == {"scope": "produce", "topic": "orders"}
    refused = ask(broker, "PUT", "/v1/brokers", ADMIN.headers, json={}).json()
    assert refused["message"] == "only servers of this cluster may send this request"
    refused = ask(broker, "GET", "/v1/broker", ORDERS_ADMIN.headers).json()
    assert refused["message"] == "the scope admin on all topics is missing"


def test_existence_of_a_topic_is_visible_only_with_a_scope_on_it(broker: BrokerProcess) -> None:
    """The messages for an existing and a missing topic differ only in the name."""
    there, nowhere = (
        ask(broker, "GET", f"/v1/fetch?topic={topic}&{FETCH}", PRODUCER.headers) for topic in ("orders", "nowhere")
    )
    assert there.status_code == nowhere.status_code == 403
    assert there.json()["message"].replace("orders", "nowhere") == nowhere.json()["message"]


def test_each_of_several_appends_is_authorized_separately(broker: BrokerProcess) -> None:
    """By name and by id: a forbidden append does not affect the others."""
    both = hold("produce:orders", "produce:nowhere")
    places = [("orders", 0), ("other", 0), (f"id:{TOPIC_ID}", 0), (f"id:{OTHER_ID}", 0), ("nowhere", 0), ("*", 0)]
    body = msgspec.msgpack.encode([[topic, index, BATCH] for topic, index in places])
    assert ask(broker, "POST", "/v1/append", both.headers, more=APPENDS, content=body).status_code == 401
    before = len(values(broker, "other", SYSTEM))
    answer = ask(broker, "POST", "/v1/append", PRODUCER.headers, more=APPENDS, content=body)
    found = [(result["topic"], result.get("error", {"code": "ok"})["code"]) for result in answer.json()["results"]]
    assert found == [
        ("orders", "ok"),
        ("other", "forbidden"),
        (f"id:{TOPIC_ID}", "ok"),
        (f"id:{OTHER_ID}", "forbidden"),
        ("nowhere", "forbidden"),
        ("*", "forbidden"),
    ]
    refusals = [result.get("error", {}).get("details") for result in answer.json()["results"]]
    assert refusals[1] == {"scope": "produce", "topic": "other"}
    assert refusals[3] == {"scope": "produce", "topic": f"id:{OTHER_ID}"}, "an id does not reveal the name"
    assert len(values(broker, "other", SYSTEM)) == before


def values(broker: BrokerProcess, topic: str, headers: Mapping[str, str]) -> list[bytes]:
    """Return the records of the first partition of a topic."""
    answer = ask(broker, "GET", f"/v1/fetch?topic={topic}&{FETCH}", headers)
    answer.raise_for_status()
    return [bytes(value) for batch in split(answer.content) for value in decode(batch).values]


def test_rejected_large_body_gets_a_response(broker: BrokerProcess) -> None:
    """The response is sent before the body is read, and clients that still send receive it."""
    for headers, status in (({}, 401), (CONSUMER.headers, 403)):
        answer = ask(broker, "POST", "/v1/append?topic=orders&partition=0", headers, content=bytes(20 << 20))
        assert answer.status_code == status


def test_docs_name_the_scope_of_each_operation(broker: BrokerProcess) -> None:
    paths = httpx.get(f"{broker.url}/openapi.json").json()["paths"]
    assert paths["/v1/append"]["post"]["security"] == [{"token": []}]
    assert paths["/v1/brokers"]["put"]["description"].endswith(
        "Requires the token that servers derive from their secret."
    )
    assert "security" not in paths["/healthz"]["get"]


def test_several_tokens_are_rejected(broker: BrokerProcess) -> None:
    shown = [("authorization", f"Bearer {holder.text}") for holder in (ADMIN, ADMIN)]
    assert httpx.get(f"{broker.url}/v1/broker", headers=shown).status_code == 401
    assert httpx.get(f"{broker.url}/v1/broker", headers=shown[:1]).status_code == 200


def test_logs_and_metrics_contain_no_secret(broker: BrokerProcess) -> None:
    text = broker.log() + httpx.get(f"{broker.url}/metrics").text
    for holder in (PRODUCER, CONSUMER, ORDERS_ADMIN, ADMIN, OTHER):
        assert holder.text[21:] not in text
        assert holder.token.digest not in text
    assert ENVIRONMENT["FLOTILLA_SECRET"] not in text
    assert SYSTEM["authorization"].removeprefix("Bearer ") not in text


def test_broker_without_an_access_table_accepts_only_servers(tmp_path: Path) -> None:
    broker = made(tmp_path, None)
    try:
        start(broker)
        have(broker, "orders", TOPIC_ID, 0)
        assert ask(broker, "GET", f"/v1/fetch?topic=orders&{FETCH}", CONSUMER.headers).status_code == 401
        assert values(broker, "orders", SYSTEM) == []
        assert httpx.get(f"{broker.url}/healthz").status_code == 200
    finally:
        broker.close()


@pytest.mark.parametrize("damage", [lambda data: data[:-20], lambda data: data.replace("produce:orders", "produce:*")])
def test_damaged_access_file_rejects_all_tokens_and_is_logged(tmp_path: Path, damage: Callable[[str], str]) -> None:
    broker = made(tmp_path, table_of(PRODUCER))
    file = broker.data / FILE
    file.write_text(damage(file.read_text(encoding="utf-8")), encoding="utf-8")
    try:
        start(broker)
        have(broker, "orders", TOPIC_ID, 0)
        target = "/v1/append?topic=orders&partition=0"
        assert ask(broker, "POST", target, PRODUCER.headers, content=BATCH).status_code == 401
        assert ask(broker, "POST", target, SYSTEM, content=BATCH).status_code == 200
        assert "rejecting all tokens" in broker.log()
    finally:
        broker.close()


def test_token_expires_on_an_isolated_broker(tmp_path: Path) -> None:
    short = hold("consume:*", expires_ms=time.time_ns() // 1_000_000 + 6000)
    broker = made(tmp_path, table_of(short, CONSUMER))
    try:
        start(broker)
        have(broker, "orders", TOPIC_ID, 0)
        target = f"/v1/fetch?topic=orders&{FETCH}"
        assert ask(broker, "GET", target, short.headers).status_code == 200
        wait_until("the token to expire", lambda: ask(broker, "GET", target, short.headers).status_code == 401)
        assert time.time_ns() // 1_000_000 >= (short.token.expires_ms or 0)
        assert ask(broker, "GET", target, CONSUMER.headers).status_code == 200
    finally:
        broker.close()


def test_access_table_arrives_with_heartbeats_and_survives_a_restart_without_managers(tmp_path: Path) -> None:
    """From a manager to memory to disk; revocation takes about two seconds; reads continue."""
    port = free_port()
    manager = TableManager(port, table_of(PRODUCER, CONSUMER))
    broker = made(tmp_path, None, "--managers", manager.url, "--manager-heartbeat-s", "0.5")
    fetch = f"/v1/fetch?topic=orders&{FETCH}"

    def is_in(headers: Mapping[str, str]) -> bool:
        return ask(broker, "GET", fetch, headers).status_code == 200

    try:
        start(broker)
        have(broker, "orders", TOPIC_ID, 0)
        wait_until("the table to arrive", lambda: is_in(CONSUMER.headers), REVOKED_S)
        file = broker.data / FILE
        wait_until("the table to be kept", lambda: kept(file) == manager.table.version, REVOKED_S)
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert {shown for _, shown in manager.heard} == {SYSTEM["authorization"]}
        assert manager.heard[0][0]["access"] == ""
        wait_until("the broker to say so", lambda: manager.heard[-1][0]["access"] == manager.table.version, REVOKED_S)
        assert manager.sent <= 2, "the table is sent when it has changed, not with every response"

        manager.close()
        broker.kill()
        start(broker)
        wait_until("a leader", lambda: is_in(CONSUMER.headers))
        assert not is_in(ORDERS_ADMIN.headers)

        manager = TableManager(port, table_of(PRODUCER))
        wait_until("the revocation", lambda: not is_in(CONSUMER.headers), REVOKED_S)
        wait_until("the revocation to be kept", lambda: kept(file) == manager.table.version, REVOKED_S)
        broker.kill()
        manager.close()
        start(broker)
        assert ask(broker, "GET", fetch, CONSUMER.headers).status_code == 401
        assert ask(broker, "POST", "/v1/append?topic=orders&partition=0", PRODUCER.headers).status_code != 401
    finally:
        manager.close()
        broker.close()


def kept(file: Path) -> str:
    """Return the version of the access table on disk."""
    return str(json.loads(file.read_text(encoding="utf-8"))["version"]) if file.exists() else ""


def test_waiting_fetch_returns_nothing_to_a_revoked_token(tmp_path: Path) -> None:
    manager = TableManager(free_port(), table_of(PRODUCER, CONSUMER))
    broker = made(tmp_path, table_of(PRODUCER, CONSUMER), "--managers", manager.url, "--manager-heartbeat-s", "0.2")
    waiting = "/v1/fetch?topic=orders&partition=0&offset=latest&wait_ms=20000"
    try:
        start(broker)
        have(broker, "orders", TOPIC_ID, 0)
        with concurrent.futures.ThreadPoolExecutor() as pool:
            revoked = pool.submit(ask, broker, "GET", waiting, CONSUMER.headers, timeout=30)
            allowed = pool.submit(ask, broker, "GET", waiting, SYSTEM, timeout=30)
            probe = f"/v1/fetch?topic=orders&{FETCH}"
            assert ask(broker, "GET", probe, CONSUMER.headers).status_code == 200
            manager.table = table_of(PRODUCER)
            wait_until("the revocation", lambda: ask(broker, "GET", probe, CONSUMER.headers).status_code == 401)
            append = ask(broker, "POST", "/v1/append?topic=orders&partition=0", PRODUCER.headers, content=BATCH)
            assert append.status_code == 200
            assert revoked.result().status_code == 401
            assert len(allowed.result().content) > 0
    finally:
        manager.close()
        broker.close()


def test_without_authentication_tokens_are_ignored(tmp_path: Path) -> None:
    """Also if servers share a secret, and with any token."""
    broker = BrokerProcess(tmp_path, (), {**ENVIRONMENT, "FLOTILLA_AUTH": "off"})
    try:
        start(broker)
        have(broker, "orders", TOPIC_ID, 0)
        for headers in ({}, bearer("nonsense")):
            assert ask(broker, "GET", "/v1/broker", headers).status_code == 200
            assert ask(broker, "POST", "/v1/append?topic=orders&partition=0", headers, content=BATCH).status_code == 200
            assert ask(broker, "GET", "/nothing", headers).status_code == 404
    finally:
        broker.close()


def test_broker_with_authentication_needs_a_secret(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, ("--auth", "on"))
    try:
        broker.start()
        wait_until("the broker to end", lambda: broker.exit_code is not None)
        assert "secret is required" in broker.log()
    finally:
        broker.close()
