"""Authorization: which token may call which path, and that no path bypasses the check."""

import itertools
import json
import timeit
from collections.abc import MutableMapping
from typing import Any

import pytest

from flotilla.access import Grant, Token, digest_of, system_token
from flotilla.access import Scope as Permission
from flotilla.protocol.asgi import JSON
from flotilla.protocol.errors import Refusal
from flotilla_server.access_table import AccessTable
from flotilla_server.application import Application
from flotilla_server.asgi import Receive, Scope, Send, respond
from flotilla_server.authorization import OPEN_RULES, Authorizer, Need, OnTopic, Rule, caller_of, recheck, require
from flotilla_server.callers import ANONYMOUS, SYSTEM, UNRESTRICTED, Access
from unit.server.test_application import ask

SECRET = b"a secret of all servers"
RULES = (
    *OPEN_RULES,
    Rule(("GET",), "/", Need.TOKEN),
    Rule(("GET", "POST"), "/v1/fetch", Need.BY_ENDPOINT),
    Rule(("GET",), "/brokers", Need.ADMIN),
    Rule(("PUT",), "/v1/brokers", Need.SYSTEM),
    Rule(("DELETE",), "/topics/{name}", OnTopic(Permission.ADMIN)),
    Rule(("GET",), "/topics/{name}/partitions", OnTopic()),
    Rule(("GET",), "/v1/{kind}/special", Need.ADMIN),
)


def holder(number: int, *grants: str) -> tuple[str, Token]:
    """Create a token: its text, and the entry that servers store."""
    text = f"flt_{number:016x}_" + "x" * 43
    parsed = tuple(Grant.parse(grant) for grant in grants)
    return text, Token(id=f"{number:016x}", name=str(number), digest=digest_of(text), grants=parsed, created_ms=1)


PRODUCER, CONSUMER, ORDERS_ADMIN, ADMIN = (
    holder(1, "produce:orders.*"),
    holder(2, "consume:orders.*"),
    holder(3, "admin:orders.*"),
    holder(4, "admin"),
)
SYSTEM_TEXT = system_token(SECRET)


@pytest.fixture
def authorizer() -> Authorizer:
    table = AccessTable(tuple(token for _, token in (PRODUCER, CONSUMER, ORDERS_ADMIN, ADMIN)))
    return Authorizer(Access(SECRET, table, lambda: 1), RULES)


def scope_of(method: str, path: str, *shown: str) -> dict[str, Any]:
    """Return a request as an ASGI scope."""
    headers = [(b"host", b"x"), *((b"authorization", f"Bearer {text}".encode()) for text in shown)]
    return {"type": "http", "method": method, "path": path, "headers": headers}


def outcome(authorizer: Authorizer, method: str, path: str, *shown: str) -> str:
    """Return the error code of a request, or `in`."""
    scope = scope_of(method, path, *shown)
    try:
        authorizer.authorize(scope)
    except Refusal as refusal:
        return refusal.code
    assert caller_of(scope) is not None
    return "in"


IN, NO, WHO, GONE, METHOD = "in", "forbidden", "unauthorized", "not_found", "method_not_allowed"
# fmt: off
TABLE = [
    # method and path                      none    wrong  producer consumer o.admin admin system
    ("GET /healthz",                       IN,     IN,    IN,      IN,      IN,     IN,   IN),
    ("HEAD /healthz",                      IN,     IN,    IN,      IN,      IN,     IN,   IN),
    ("GET /docs/5.1/init.js",              IN,     IN,    IN,      IN,      IN,     IN,   IN),
    ("POST /healthz",                      WHO,    WHO,   METHOD,  METHOD,  METHOD, METHOD, METHOD),
    ("GET /",                              WHO,    WHO,   IN,      IN,      IN,     IN,   IN),
    ("GET /v1/fetch",                      WHO,    WHO,   IN,      IN,      IN,     IN,   IN),
    ("POST /v1/fetch",                     WHO,    WHO,   IN,      IN,      IN,     IN,   IN),
    ("PUT /v1/fetch",                      WHO,    WHO,   METHOD,  METHOD,  METHOD, METHOD, METHOD),
    ("GET /brokers",                       WHO,    WHO,   NO,      NO,      NO,     IN,   IN),
    ("HEAD /brokers",                      WHO,    WHO,   NO,      NO,      NO,     IN,   IN),
    ("PUT /v1/brokers",                    WHO,    WHO,   NO,      NO,      NO,     NO,   IN),
    ("DELETE /topics/orders.eu",           WHO,    WHO,   NO,      NO,      IN,     IN,   IN),
    ("DELETE /topics/payments",            WHO,    WHO,   NO,      NO,      NO,     IN,   IN),
    ("GET /topics/orders.eu/partitions",   WHO,    WHO,   IN,      IN,      IN,     IN,   IN),
    ("GET /topics/payments/partitions",    WHO,    WHO,   NO,      NO,      NO,     IN,   IN),
    ("GET /v1/any/special",                WHO,    WHO,   NO,      NO,      NO,     IN,   IN),
    ("GET /nothing",                       WHO,    WHO,   GONE,    GONE,    GONE,   GONE, GONE),
    ("GET /brokers/",                      WHO,    WHO,   GONE,    GONE,    GONE,   GONE, GONE),
    ("GET //brokers",                      WHO,    WHO,   GONE,    GONE,    GONE,   GONE, GONE),
    ("GET /brokers\n",                     WHO,    WHO,   GONE,    GONE,    GONE,   GONE, GONE),
    ("GET /Brokers",                       WHO,    WHO,   GONE,    GONE,    GONE,   GONE, GONE),
    ("GET /healthz/../brokers",            WHO,    WHO,   GONE,    GONE,    GONE,   GONE, GONE),
    ("GET /docs/../brokers",               IN,     IN,    IN,      IN,      IN,     IN,   IN),  # not /brokers
    ("DELETE /topics/",                    WHO,    WHO,   GONE,    GONE,    GONE,   GONE, GONE),
    ("DELETE /topics/a/b",                 WHO,    WHO,   GONE,    GONE,    GONE,   GONE, GONE),
    ("get /healthz",                       WHO,    WHO,   METHOD,  METHOD,  METHOD, METHOD, METHOD),
    ("OPTIONS /brokers",                   WHO,    WHO,   METHOD,  METHOD,  METHOD, METHOD, METHOD),
]
# fmt: on
SHOWN = [(), ("flt_nonsense",), *((text,) for text, _ in (PRODUCER, CONSUMER, ORDERS_ADMIN, ADMIN)), (SYSTEM_TEXT,)]


@pytest.mark.parametrize(("what", "expected"), [(what, list(expected)) for what, *expected in TABLE])
def test_rules_decide_which_token_may_call_a_path(authorizer: Authorizer, what: str, expected: list[str]) -> None:
    """A path without a rule does not exist, which only callers with a valid token learn."""
    method, path = what.split(" ", 1)
    assert [outcome(authorizer, method, path, *shown) for shown in SHOWN] == expected


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("PUT /v1/fetch", "'/v1/fetch': method not allowed, use GET or POST"),
        ("GET /topics/orders.eu", "'/topics/orders.eu': method not allowed, use DELETE"),
        ("GET /" + "x" * 999, "path '/" + "x" * 199 + "' does not exist; see /docs"),
    ],
)
def test_unknown_path_lists_the_existing_ones(authorizer: Authorizer, what: str, said: str) -> None:
    with pytest.raises(Refusal) as caught:
        authorizer.authorize(scope_of(*what.split(" ", 1), SYSTEM_TEXT))
    assert str(caught.value) == said


@pytest.mark.parametrize("shown", [(ADMIN[0], ADMIN[0]), (ADMIN[0], "x"), ("x", ADMIN[0]), (SYSTEM_TEXT,) * 3])
def test_several_tokens_in_a_request_are_rejected(authorizer: Authorizer, shown: tuple[str, ...]) -> None:
    """A proxy and this server could use different ones."""
    assert outcome(authorizer, "GET", "/", *shown) == WHO


def test_caller_is_stored_in_the_scope(authorizer: Authorizer) -> None:
    found = []
    for path, shown in (("/healthz", ()), ("/", (PRODUCER[0],)), ("/", (SYSTEM_TEXT,))):
        scope = scope_of("GET", path, *shown)
        authorizer.authorize(scope)
        found.append(caller_of(scope))
    assert found[0] is ANONYMOUS
    assert found[1].token is PRODUCER[1]
    assert found[2] is SYSTEM


def test_long_request_ends_when_the_token_expires(authorizer: Authorizer) -> None:
    scope = scope_of("GET", "/v1/fetch", PRODUCER[0])
    authorizer.authorize(scope)
    recheck(scope)
    assert authorizer.access is not None
    authorizer.access.replace(AccessTable())
    with pytest.raises(Refusal, match="token rejected: it is unknown, revoked or expired") as caught:
        recheck(scope)
    assert caught.value.status == 401
    system = scope_of("GET", "/v1/fetch", SYSTEM_TEXT)
    authorizer.authorize(system)
    recheck(system)
    anybody = scope_of("GET", "/v1/fetch")
    Authorizer(None, RULES).authorize(anybody)
    recheck(anybody)


def test_request_without_authorization_is_an_internal_error() -> None:
    with pytest.raises(KeyError):
        caller_of({"type": "http"})


def test_without_authentication_all_calls_are_allowed() -> None:
    authorizer = Authorizer(None, RULES)
    for method, path in (("PUT", "/v1/brokers"), ("GET", "/nothing"), ("GET", "/healthz")):
        scope = scope_of(method, path)
        authorizer.authorize(scope)
        assert caller_of(scope) is UNRESTRICTED


@pytest.mark.parametrize(("what", "topic", "message", "details"), [
    (Permission.CONSUME, "orders.eu", "the scope consume on topic 'orders.eu' is missing",
     {"scope": "consume", "topic": "orders.eu"}),
    (Permission.PRODUCE, "pay'\n", "the scope produce on topic \"pay'\\n\" is missing",
     {"scope": "produce", "topic": "pay'\n"}),
    (None, "payments", "a scope on topic 'payments' is missing", {"topic": "payments"}),
    (Permission.ADMIN, "x" * 9999, f"the scope admin on topic {'x' * 200!r} is missing",
     {"scope": "admin", "topic": "x" * 200}),
])  # fmt: skip
def test_missing_scope_is_named(
    authorizer: Authorizer, what: Permission | None, topic: str, message: str, details: dict[str, str]
) -> None:
    scope = scope_of("GET", "/v1/fetch", PRODUCER[0])
    authorizer.authorize(scope)
    require(scope, Permission.PRODUCE, "orders.eu")
    require(scope, None, "orders.eu")
    with pytest.raises(Refusal) as caught:
        require(scope, what, topic)
    assert (caught.value.code, str(caught.value), caught.value.details) == ("forbidden", message, details)


def test_rule_for_a_topic_needs_a_topic_in_its_path() -> None:
    with pytest.raises(ValueError, match=r"requires \{name\} in the path"):
        Rule(("GET",), "/topics/{topic}", OnTopic())


def test_two_rules_for_one_path_are_rejected() -> None:
    with pytest.raises(ValueError, match="duplicate rule for GET /a"):
        Authorizer(None, [Rule(("GET",), "/a", Need.TOKEN), Rule(("GET", "POST"), "/a", Need.OPEN)])


def test_authorization_runs_before_everything_else(authorizer: Authorizer) -> None:
    """Before fast endpoints, the app and the connection limit: a caller without a token reaches and learns nothing."""
    reached = []

    async def endpoint(scope: Scope, _: Receive, send: Send) -> None:
        reached.append(scope["path"])
        await respond(send, 200, [JSON], [json.dumps(caller_of(scope).name).encode()])

    front = Application(
        {"/v1/fetch": endpoint}, endpoint, connections_max=10, body_bytes_max=100, authorizer=authorizer
    )
    front.count_connections = lambda: 11
    for path, shown in itertools.product(("/v1/fetch", "/brokers", "/nothing"), ("", "Bearer x")):
        answer = ask(front, path, authorization=shown) if shown else ask(front, path)
        assert (answer.status, answer.headers[b"www-authenticate"]) == (401, b"Bearer")
        assert json.loads(answer.body)["code"] == "unauthorized"
        assert len(answer.headers[b"x-request-id"]) == 16
    assert ask(front, "/v1/fetch", authorization=f"Bearer {PRODUCER[0]}").status == 503
    front.count_connections = lambda: 1
    assert reached == []
    assert ask(front, "/v1/fetch", authorization=f"bearer {PRODUCER[0]}").body == b'"1"'
    assert ask(front, "/brokers", authorization=f"Bearer {PRODUCER[0]}").status == 403
    assert ask(front, "/brokers", authorization=f"Bearer {ADMIN[0]}").body == b'"4"'
    assert reached == ["/v1/fetch", "/brokers"]


def test_front_without_authorization_accepts_all_callers() -> None:
    seen: list[MutableMapping[str, Any]] = []

    async def endpoint(scope: Scope, _: Receive, send: Send) -> None:
        seen.append(scope)
        await respond(send, 200, [JSON], [b"{}"])

    assert ask(Application({}, endpoint, connections_max=1, body_bytes_max=1), "/x").status == 200
    assert caller_of(seen[0]) is UNRESTRICTED


def test_authorization_is_fast(authorizer: Authorizer) -> None:
    """A fast path takes about 50 µs, so the check must take far less. Measured: 2 to 4 µs."""
    scope = scope_of("POST", "/v1/fetch", PRODUCER[0])

    def once() -> None:
        authorizer.authorize(scope)
        require(scope, Permission.PRODUCE, "orders.eu")

    best_s = min(timeit.repeat(once, number=1000, repeat=5)) / 1000
    assert best_s < 50e-6, "ten times the usual time, for a busy machine"
