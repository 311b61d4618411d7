"""Quotas of tokens: they are enforced, do not affect other tokens, and debts are always paid off."""

import asyncio
from collections.abc import Iterable, MutableMapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flotilla.access import Token
from flotilla.protocol.errors import Refusal
from flotilla_server.access_table import AccessTable
from flotilla_server.application import Application
from flotilla_server.asgi import Endpoint, Receive, Scope, Send, content_length, read_body, respond
from flotilla_server.authorization import Authorizer, Need, Rule
from flotilla_server.callers import Access
from flotilla_server.quotas import ACCOUNTS_MAX, BYTES, IN_FLIGHT, REQUESTS, Bucket, Quotas
from support.access import Holder, hold, limited

PATHS = ("/v1/append", "/v1/fetch", "/v1/tail", "/producer/produce", "/consumer/consume", "/other")
RATES = st.integers(1, 1 << 40)
STEPS = st.lists(st.tuples(st.floats(0, 100), st.integers(0, 1 << 26)), max_size=60)


class Clock:
    """A clock that a test advances."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


# -- the bucket --------------------------------------------------------------------------------------------


@given(RATES, STEPS)
def test_bucket_admits_at_most_its_rate_its_burst_and_one_request(rate: int, steps: list[tuple[float, int]]) -> None:
    """Over any interval: from the start, and from each request on."""
    bucket, now, taken = Bucket(rate, 0.0), 0.0, []
    for wait_s, amount in steps:
        now += wait_s
        if not bucket.debt_s(now):
            bucket.take(amount, now)
            taken.append((now, amount))
    for first, (began, _) in enumerate(taken):
        total = sum(amount for _, amount in taken[first:])
        most = rate + rate * (taken[-1][0] - began) + taken[-1][1]
        assert total <= most * (1 + 1e-9)


@given(RATES, STEPS)
def test_request_after_the_requested_wait_is_admitted(rate: int, steps: list[tuple[float, int]]) -> None:
    bucket, now = Bucket(rate, 0.0), 0.0
    for wait_s, amount in steps:
        now += wait_s
        bucket.take(amount, now)  # also for a caller that was not rejected
    now += bucket.debt_s(now) * (1 + 1e-9) + 1e-6
    assert bucket.debt_s(now) == 0
    assert bucket.level(now + 2) == rate, "and a second later, everything is as at the beginning"


@given(RATES, st.floats(0, 1000))
def test_clock_that_goes_back_adds_no_tokens_to_the_bucket(rate: int, back_s: float) -> None:
    bucket = Bucket(rate, 2000.0)
    bucket.take(2 * rate, 2000.0)
    assert bucket.level(2000.0 - back_s) == -rate
    assert bucket.level(2000.0) == -rate


# -- the meter, before endpoints -----------------------------------------------------------------------------


class Server:
    """An app with authorization, and endpoints that read bodies and send a requested number of bytes."""

    def __init__(self, *holders: Holder) -> None:
        self.clock = Clock()
        self.quotas = Quotas(self.clock, hold_s=0)
        self.reached = asyncio.Event()
        self.go_on = asyncio.Event()
        self.go_on.set()
        access = Access(b"the secret of all servers", AccessTable(tuple(one.token for one in holders)), lambda: 0)
        rules = [Rule(("GET", "POST"), path, Need.TOKEN) for path in PATHS] + [Rule(("GET",), "/healthz", Need.OPEN)]
        fast: dict[str, Endpoint] = dict.fromkeys((*PATHS, "/healthz"), self._endpoint)
        self._front = Application(
            fast,
            self._endpoint,
            connections_max=1,
            body_bytes_max=1,
            authorizer=Authorizer(access, rules),
            quotas=self.quotas,
        )

    async def _endpoint(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await read_body(receive, 1 << 30, lambda _: None) if scope["method"] == "POST" else b""
        self.reached.set()
        await self.go_on.wait()
        if scope["path"] == "/v1/tail":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": bytes(1000), "more_body": True})
            assert scope.get("meter") is None or scope["meter"].debt_s >= 0
            await send({"type": "http.response.body", "body": b""})
            return
        size = int(scope["query_string"] or len(body))
        await respond(send, 200, [], [bytes(size)])

    async def ask(
        self,
        holder: Holder | None,
        path: str,
        *,
        body: bytes | None = None,
        answer: int | None = None,
        chunks: Iterable[bytes] | None = None,
        disconnect: bool = False,
    ) -> tuple[int, dict[str, str]]:
        """Send a request; return the status and the headers of the response."""
        headers = [] if holder is None else [(b"authorization", f"Bearer {holder.text}".encode())]
        pieces = [body or b""] if chunks is None else list(chunks)
        if chunks is None:
            headers.append((b"content-length", str(len(pieces[0])).encode()))
        events: list[MutableMapping[str, Any]] = [
            {"type": "http.request", "body": piece, "more_body": disconnect or at < len(pieces) - 1}
            for at, piece in enumerate(pieces)
        ]
        events.append({"type": "http.disconnect"})
        sent: list[MutableMapping[str, Any]] = []

        async def receive() -> MutableMapping[str, Any]:
            await asyncio.sleep(0)
            return events.pop(0)

        async def send(message: MutableMapping[str, Any]) -> None:
            sent.append(message)

        scope: Scope = {
            "type": "http",
            "method": "GET" if body is None and chunks is None else "POST",
            "path": path,
            "query_string": b"" if answer is None else str(answer).encode(),
            "headers": headers,
        }
        await self._front(scope, receive, send)
        if not sent:
            return 0, {}
        return sent[0]["status"], {name.decode(): value.decode() for name, value in sent[0]["headers"]}


def test_unauthorized_request_counts() -> None:
    """A token is limited to its rate whatever it requests, also without permission."""

    async def body() -> None:
        holder = limited(hold("produce"), requests_per_s=2)
        server = Server(holder)
        found = [(await server.ask(holder, "/nowhere"))[0] for _ in range(5)]
        assert found == [404, 404, 404, 429, 429]
        assert (await server.ask(holder, "/v1/append", body=b"x"))[0] == 429
        assert server.quotas.refused == {BYTES: 0, REQUESTS: 3, IN_FLIGHT: 0}

    asyncio.run(body())


def test_bytes_of_request_bodies_are_limited() -> None:
    """A body larger than one second's worth is admitted, and paid off before the next one is."""

    async def body() -> None:
        holder = limited(hold("produce"), bytes_per_s=1000)
        server = Server(holder)
        assert (await server.ask(holder, "/v1/append", body=bytes(4500)))[0] == 200
        status, headers = await server.ask(holder, "/v1/append", body=b"x")
        assert (status, headers["retry-after"]) == (429, "4")
        server.clock.now += 3.4
        assert (await server.ask(holder, "/producer/produce", body=b"x"))[1]["retry-after"] == "1"
        server.clock.now += 0.2
        assert (await server.ask(holder, "/v1/append", body=b"x"))[0] == 200
        assert server.quotas.refused == {BYTES: 2, REQUESTS: 0, IN_FLIGHT: 0}

    asyncio.run(body())


@pytest.mark.parametrize("path", ["/v1/fetch", "/consumer/consume"])
def test_bytes_of_responses_count_toward_the_same_rate(path: str) -> None:
    async def body() -> None:
        holder = limited(hold("consume"), bytes_per_s=1000)
        server = Server(holder)
        assert (await server.ask(holder, path, answer=3000))[0] == 200
        assert (await server.ask(holder, path, answer=0))[0] == 429
        assert (await server.ask(holder, "/v1/append", body=b"x"))[0] == 429, "one rate for both directions"
        server.clock.now += 2.1
        assert (await server.ask(holder, path, answer=0))[0] == 200

    asyncio.run(body())


def test_concurrent_fetches_get_no_more_than_sequential_ones() -> None:
    """The first response uses up the quota, and the others are rejected; their offsets do not move."""

    async def body() -> None:
        holder = limited(hold("consume"), bytes_per_s=1000)
        server = Server(holder)
        server.go_on.clear()
        asking = [asyncio.create_task(server.ask(holder, "/v1/fetch", answer=5000)) for _ in range(10)]
        await server.reached.wait()
        server.go_on.set()
        found = [status for status, _ in await asyncio.gather(*asking)]
        assert sorted(found) == [200] + [429] * 9

    asyncio.run(body())


def test_message_taken_for_a_consumer_is_never_rejected() -> None:
    """The position of the consumer has moved already, so a rejection would lose the message. It is paid off later."""

    async def body() -> None:
        holder = limited(hold("consume"), bytes_per_s=1000)
        server = Server(holder)
        server.go_on.clear()
        asking = [asyncio.create_task(server.ask(holder, "/consumer/consume", answer=5000)) for _ in range(3)]
        await asyncio.sleep(0)
        server.go_on.set()
        assert {status for status, _ in await asyncio.gather(*asking)} == {200}
        assert (await server.ask(holder, "/consumer/consume"))[1]["retry-after"] == "14"

    asyncio.run(body())


def test_stream_is_counted_and_throttled_as_it_is_sent() -> None:
    async def body() -> None:
        holder = limited(hold("consume"), bytes_per_s=100)
        server = Server(holder)
        assert (await server.ask(holder, "/v1/tail"))[0] == 200
        assert (await server.ask(holder, "/v1/tail"))[1]["retry-after"] == "9"

    asyncio.run(body())


def test_body_of_unknown_size_is_counted_as_it_arrives() -> None:
    async def body() -> None:
        holder = limited(hold("produce"), bytes_per_s=1000)
        server = Server(holder)
        assert (await server.ask(holder, "/v1/append", chunks=[bytes(1000)] * 4))[0] == 200
        assert (await server.ask(holder, "/v1/append", chunks=[b"x"]))[1]["retry-after"] == "3"

    asyncio.run(body())


def test_request_rate_is_limited_for_all_requests() -> None:
    async def body() -> None:
        holder = limited(hold("consume"), requests_per_s=5)
        server = Server(holder)
        found = [(await server.ask(holder, "/other"))[0] for _ in range(20)]
        assert found == [200] * 6 + [429] * 14, "one second's worth, and one into debt"
        server.clock.now += 0.2
        assert (await server.ask(holder, "/v1/fetch"))[0] == 200
        assert (await server.ask(holder, "/healthz"))[0] == 200, "open connections stay usable"
        assert (await server.ask(holder, "/v1/fetch"))[0] == 429
        server.clock.now += 1000
        assert [(await server.ask(holder, "/other"))[0] for _ in range(7)] == [200] * 6 + [429]

    asyncio.run(body())


def test_requests_without_bytes_are_admitted_while_bytes_are_in_debt() -> None:
    """A consumer in debt can still send heartbeats: otherwise its group would remove it."""

    async def body() -> None:
        holder = limited(hold("consume"), bytes_per_s=10)
        server = Server(holder)
        assert (await server.ask(holder, "/v1/fetch", answer=10_000))[0] == 200
        assert (await server.ask(holder, "/v1/fetch"))[1]["retry-after"] == "60", "the maximum"
        assert (await server.ask(holder, "/other", body=b"x"))[0] == 200

    asyncio.run(body())


def test_bytes_in_flight_are_limited_and_one_request_always_passes() -> None:
    async def body() -> None:
        holder = limited(hold("produce"), in_flight_bytes=1000)
        server = Server(holder)
        server.go_on.clear()
        first = asyncio.create_task(server.ask(holder, "/v1/append", body=bytes(5000), answer=0))
        await server.reached.wait()
        for chunks in (None, [b"x"]):
            status, headers = await server.ask(holder, "/v1/append", body=b"x", chunks=chunks)
            assert (status, headers["retry-after"]) == (429, "1")
        server.go_on.set()
        assert (await first)[0] == 200
        assert (await server.ask(holder, "/v1/append", body=b"x"))[0] == 200
        assert server.quotas.refused[IN_FLIGHT] == 2

    asyncio.run(body())


@pytest.mark.parametrize("chunked", [True, False])
def test_client_that_disconnects_during_a_body_holds_nothing(chunked: bool) -> None:
    async def body() -> None:
        holder = limited(hold("produce"), in_flight_bytes=1000)
        server = Server(holder)
        for _ in range(20):
            chunks = [bytes(300)] * 3 if chunked else None
            status, _ = await server.ask(holder, "/v1/append", body=bytes(900), chunks=chunks, disconnect=True)
            assert status == 0
        account = server.quotas._accounts[holder.token.id]
        assert (account.in_flight, account.requests) == (0, 0)
        server.go_on.clear()
        asking = [asyncio.create_task(server.ask(holder, "/v1/append", body=bytes(500))) for _ in range(2)]
        await server.reached.wait()
        server.go_on.set()
        assert [status for status, _ in await asyncio.gather(*asking)] == [200, 200]

    asyncio.run(body())


def test_unread_body_costs_nothing() -> None:
    """A body with an absurd length that is rejected at once does not put its sender into debt."""

    async def body() -> None:
        holder = limited(hold("produce"), bytes_per_s=1000)
        quotas = Quotas(Clock())
        scope: Scope = {"path": "/v1/append", "headers": [(b"content-length", b"9" * 18)]}
        for _ in range(3):
            with quotas.enter(holder.token, scope) as meter:
                meter.receiving(_never)
                assert content_length(scope)
        assert meter.debt_s == 0

    asyncio.run(body())


async def _never() -> MutableMapping[str, Any]:
    raise AssertionError("the body is not read")


def test_other_tokens_are_not_affected() -> None:
    """Another token with a quota, one without, another server: each has its own account."""

    async def body() -> None:
        greedy, polite = (limited(hold("produce"), bytes_per_s=1000) for _ in range(2))
        free = hold("produce")
        server = Server(greedy, polite, free)
        await server.ask(greedy, "/v1/append", body=bytes(100_000))
        assert (await server.ask(greedy, "/v1/append", body=b"x"))[0] == 429
        assert (await server.ask(polite, "/v1/append", body=b"x"))[0] == 200
        for _ in range(100):
            assert (await server.ask(free, "/v1/append", body=bytes(10_000)))[0] == 200
        assert len(server.quotas) == 2, "clients without limits have no quota state"

    asyncio.run(body())


def test_only_rejections_are_delayed() -> None:
    """A client that retries at once on each connection is not served faster than one that waits."""

    async def body() -> None:
        holder = limited(hold("produce"), bytes_per_s=1000)
        server = Server(holder)
        server.quotas.hold_s = 0.1
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert (await server.ask(holder, "/v1/append", body=bytes(5000)))[0] == 200
        assert loop.time() - began < 0.1
        began = loop.time()
        assert (await server.ask(holder, "/v1/append", body=b"x"))[0] == 429
        assert loop.time() - began >= 0.1

    asyncio.run(body())


def test_rejection_names_the_quota_and_the_time_to_wait() -> None:
    quotas, token = Quotas(Clock()), limited(hold("produce"), requests_per_s=1).token
    for _ in range(2):
        with quotas.enter(token, scope_of("/other")):
            pass
    with pytest.raises(Refusal) as caught, quotas.enter(token, scope_of("/other")):
        pass
    refusal = caught.value
    assert refusal.to_dict() == {
        "code": "quota_exceeded",
        "message": "the token's quota of 1 requests_per_s is used up; try again in 1 s",
        "details": {"quota": "requests_per_s", "limit": 1, "retry_after_s": 1},
        "retryable": True,
    }
    assert (refusal.status, refusal.headers) == (429, {"retry-after": "1"})


def test_idle_accounts_are_removed() -> None:
    """Debts and requests in flight are kept; memory is bounded nevertheless."""
    clock = Clock()
    quotas = Quotas(clock)
    indebted = limited(hold("produce"), requests_per_s=1).token
    for _ in range(2):
        with quotas.enter(indebted, scope_of("/other")):
            pass
    busy = limited(hold("produce"), in_flight_bytes=1).token
    with quotas.enter(busy, scope_of("/other")):
        clock.now += 0.5
        for _ in range(2000):
            with quotas.enter(limited(hold("produce"), in_flight_bytes=1).token, scope_of("/other")):
                pass
        assert len(quotas) < 600
        assert {indebted.id, busy.id} <= quotas._accounts.keys()
        with pytest.raises(Refusal), quotas.enter(indebted, scope_of("/other")):
            pass


def test_number_of_accounts_is_limited_even_if_all_are_in_debt() -> None:
    quotas = Quotas(Clock())
    template = limited(hold("produce"), requests_per_s=1).token
    for number in range(ACCOUNTS_MAX + 500):
        token = Token(
            id=f"{number:016x}",
            name="t",
            digest=template.digest,
            grants=template.grants,
            created_ms=0,
            requests_per_s=1,
        )
        for _ in range(2):
            with quotas.enter(token, scope_of("/other")):
                pass
    assert len(quotas) <= ACCOUNTS_MAX


def test_token_with_changed_limits_gets_a_new_account() -> None:
    quotas, holder = Quotas(Clock()), limited(hold("produce"), requests_per_s=1)
    for _ in range(2):
        with quotas.enter(holder.token, scope_of("/other")):
            pass
    with quotas.enter(limited(holder, requests_per_s=100).token, scope_of("/other")):
        pass


def scope_of(path: str) -> Scope:
    return {"path": path, "headers": []}
