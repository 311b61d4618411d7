"""Simple API: exact refusals, order of checks, and refresh of an outdated cache."""

import asyncio
import json
from collections.abc import Callable, Coroutine, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from flotilla.net import Pool, Response
from flotilla.net.codes import RESOURCES, Resource
from flotilla.protocol.errors import STATUS_OF, Refusal, not_found
from flotilla.protocol.simple import failure, template
from flotilla_manager.api.calls import make_calls
from flotilla_manager.api.data import cancel_on_disconnect
from flotilla_manager.api.endpoint import SimpleEndpoint, database_refusal
from flotilla_manager.api.forward import Forward
from flotilla_manager.api.metrics import Metrics
from flotilla_manager.api.simple import SimpleApi
from flotilla_manager.clients import NotRegistered
from flotilla_manager.consumers import Consumed
from flotilla_manager.manager import Manager
from flotilla_manager.metadata.errors import DatabaseUnavailable, OutcomeUnknown
from flotilla_manager.metadata_cache import MetadataCache
from flotilla_manager.model import Snapshot, Topic
from flotilla_server.asgi import ClientDisconnected, Scope
from flotilla_server.callers import UNRESTRICTED, Caller
from flotilla_server.limits import InFlight
from support.access import hold
from unit.manager.dataplane import LOST, UNREACHABLE, Answer, make_snapshot, make_topic, on_virtual_time, scripted

NO_TOPIC = (400, "failure", "Topic does not exist.")
NO_PRODUCER = (400, "failure", "Producer not registered with topic.")
NO_CONSUMER = (400, "failure", "Consumer not registered with topic.")
OLD, NEW = make_topic(partitions=2), make_topic(partitions=3, id_="ef" * 16)


class Parts:
    """Components of a manager: a real metadata cache of a database that may be newer, and clients of one topic."""

    def __init__(self, known: Snapshot, newer: Snapshot | None = None, *answers: Answer) -> None:
        self.loads = 0
        self.heard: list[str] = []
        self.newer = newer
        self.last_error: Exception | None = None
        self.caller: Caller = UNRESTRICTED
        self.metadata = MetadataCache(self._load, asyncio.get_running_loop().time)
        self.metadata.snapshot = known
        self.clients_topic = (newer or known).topics[0].id if (newer or known).topics else ""
        self.settings = SimpleNamespace(message_bytes_max=1000, request_s_max=1.0, writer="http://writer")
        self.batchers = SimpleNamespace(in_flight=InFlight(1 << 20), append=self._append)
        self.writer = SimpleNamespace(is_writer=False)
        self.producers = SimpleNamespace(is_registered=self._is_registered, next_partition=lambda *_: 0)
        self.consumers = SimpleNamespace(consume=self._consume, lag=self._lag)
        self.liveness = SimpleNamespace(producer=lambda _: None, consumer=self.heard.append)
        self.records = SimpleNamespace(size=0)
        self.control = cast("Pool", scripted(*answers or (UNREACHABLE,)))
        self.message: Consumed | None = Consumed(0, 7, b"hello")
        manager = cast("Manager", self)
        self.endpoint = SimpleEndpoint(manager, make_calls(SimpleApi(manager)), Forward(manager), Metrics(manager))

    async def _load(self, _: int) -> Snapshot | None:
        self.loads += 1
        return self.newer

    async def _is_registered(self, _: str, topic_id: str) -> bool:
        return topic_id == self.clients_topic

    async def _append(self, topic: Topic, index: int, value: bytes) -> int:
        if self.last_error is not None:
            raise self.last_error
        assert (topic.id, index < len(topic.partitions), value) == (self.clients_topic, True, b"m")
        return 42

    async def _consume(self, topic: Topic, _: str, __: int | None) -> Consumed | None:
        if topic.id != self.clients_topic:
            raise NotRegistered(NO_CONSUMER[2])
        return self.message

    async def _lag(self, topic: Topic, _: str, __: int | None, ___: float) -> dict[int, int]:
        await self._consume(topic, "", None)
        return {0: 3, 1: 4}

    async def ask(self, method: str, path: str, **params: object) -> tuple[int, dict[str, str], dict[str, Any]]:
        """Send a request over ASGI; return status, headers and body."""
        sent: list[Any] = []
        body = json.dumps(params).encode() if params else b""

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:  # noqa: ANN401 - as ASGI has it
            sent.append(message)

        scope: Scope = {"type": "http", "method": method, "path": path, "query_string": b"", "headers": []}
        scope["caller"] = self.caller
        await self.endpoint(scope, receive, send)
        headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return sent[0]["status"], headers, json.loads(sent[1]["body"])

    async def refusal_of(self, method: str, path: str, **params: object) -> tuple[int, str, str]:
        """Send a request; return status, code and message of the refusal."""
        status, headers, answer = await self.ask(method, path, **params)
        assert headers["cache-control"] == "no-store"
        assert ("retry-after" in headers) == (status in {429, 503})
        return status, answer["status"], answer["message"]


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    on_virtual_time(test())


PRODUCE = {"topic": "t", "producer_id": "p", "message": "m"}
CONSUME = {"topic": "t", "consumer_id": "c"}


# -- order of checks, and outdated caches -------------------------------------------------------------------------


def test_topic_partition_and_client_are_checked_in_this_order() -> None:
    async def test() -> None:
        nothing, parts = Parts(make_snapshot()), Parts(make_snapshot(OLD))
        parts.clients_topic = "another"
        for index in (-1, 2, 10**30):
            assert await nothing.refusal_of("POST", "/producer/produce", **PRODUCE, partition_index=index) == NO_TOPIC
            found = await parts.refusal_of("POST", "/producer/produce", **PRODUCE, partition_index=index)
            assert found == (400, "failure", "Invalid Partition Number.")
            for path in ("/consumer/consume", "/size"):
                assert await nothing.refusal_of("GET", path, **CONSUME, partition_index=index) == NO_TOPIC
                found = await parts.refusal_of("GET", path, **CONSUME, partition_index=index)
                assert found == (400, "failure", "Invalid partition number.")
        for valid in (None, 0, 1):
            assert await parts.refusal_of("POST", "/producer/produce", **PRODUCE, partition_index=valid) == NO_PRODUCER
            for path in ("/consumer/consume", "/size"):
                assert await parts.refusal_of("GET", path, **CONSUME, partition_index=valid) == NO_CONSUMER

    run(test)


@pytest.mark.parametrize("known", [make_snapshot(), make_snapshot(OLD)], ids=["nothing", "the topic before"])
def test_cache_is_refreshed_before_a_request_is_refused(known: Snapshot) -> None:
    """A topic that was just created through another manager can be used at once."""

    async def test() -> None:
        newer = make_snapshot(NEW, version=2)
        found = await Parts(known, newer).ask("POST", "/producer/produce", **PRODUCE, partition_index=2)
        assert found[2] == {"status": "success", "partition_index": 2, "offset": 42}
        found = await Parts(known, newer).ask("POST", "/producer/produce", **PRODUCE)
        assert found[2] == {"status": "success", "partition_index": 0, "offset": 42}
        found = await Parts(known, newer).ask("GET", "/consumer/consume", **CONSUME)
        assert found[2] == {"status": "success", "message": "hello", "partition_index": 0, "offset": 7}
        assert (await Parts(known, newer).ask("GET", "/size", **CONSUME))[2]["size"] == 7

    run(test)


def test_request_that_matches_the_cache_needs_no_query() -> None:
    async def test() -> None:
        parts = Parts(make_snapshot(OLD))
        assert (await parts.ask("POST", "/producer/produce", **PRODUCE, partition_index=1))[0] == 200
        assert (await parts.ask("GET", "/consumer/consume", **CONSUME))[0] == 200
        assert parts.loads == 0

    run(test)


def test_consumer_without_new_messages_is_recorded_as_seen() -> None:
    """Polling keeps a consumer active; a consumed message updates the last-seen time itself."""

    async def test() -> None:
        parts = Parts(make_snapshot(OLD))
        parts.message = None
        found = await parts.refusal_of("GET", "/consumer/consume", **CONSUME)
        assert (found, parts.heard) == ((400, "failure", "No logs available to consume."), ["c"])

    run(test)


@pytest.mark.parametrize(
    ("method", "path", "params", "scope"),
    [
        ("POST", "/producer/produce", PRODUCE, "produce"),
        ("GET", "/consumer/consume", CONSUME, "consume"),
        ("GET", "/size", CONSUME, "consume"),
    ],
)
def test_scope_is_checked_before_the_topic(method: str, path: str, params: dict[str, str], scope: str) -> None:
    """Parameters are checked first, then the scope; the response does not depend on the existence of the topic."""

    async def test() -> None:
        for parts in (Parts(make_snapshot()), Parts(make_snapshot(OLD))):
            parts.caller = Caller("x", hold(f"{scope}:other", "admin").token)
            found = await parts.refusal_of(method, path, **params)
            assert found == (403, "failure", f"the scope {scope} on topic 't' is missing")
            assert parts.loads == 0
            assert (await parts.refusal_of(method, path, **params, nonsense=1))[0] == 400
        parts.caller = Caller("x", hold(f"{scope}:t").token)
        assert (await parts.ask(method, path, **params))[0] == 200

    run(test)


# -- format of refusals -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("last_error", "status", "word"),
    [
        (Refusal("unknown_outcome", "why"), 504, "unknown"),
        (Refusal("unavailable", "why"), 503, "failure"),
        (Refusal("busy", "why"), 429, "failure"),
        (Refusal("not_leader", "why"), 503, "failure"),
        (Refusal("sequence_gap", "why"), 400, "failure"),
        (Refusal("bad_batch", "why"), 400, "failure"),
        (DatabaseUnavailable("why"), 503, "failure"),
        (OutcomeUnknown("why"), 503, "unknown"),
        (ValueError("a mistake"), 500, "unknown"),
    ],
)
def test_only_unknown_outcomes_have_status_unknown(last_error: Exception, status: int, word: str) -> None:
    """An append has one of three outcomes: ok, failed, unknown."""

    async def test() -> None:
        parts = Parts(make_snapshot(OLD))
        parts.last_error = last_error
        found = await parts.refusal_of("POST", "/producer/produce", **PRODUCE)
        assert found[:2] == (status, word)
        assert (found[2] == "why") == isinstance(last_error, Refusal)

    run(test)


def test_internal_error_is_logged_with_its_request_id() -> None:
    async def test() -> None:
        parts = Parts(make_snapshot(OLD))
        parts.last_error = ValueError("a mistake")
        assert (await parts.ask("POST", "/producer/produce", **PRODUCE))[1]["x-request-id"]

    run(test)


@pytest.mark.parametrize("code", sorted(STATUS_OF))
def test_every_refusal_has_a_documented_status(code: str) -> None:
    status, _, body = failure(Refusal(code, "why"))
    assert status in {400, 401, 403, 404, 405, 413, 429, 500, 503, 504}
    assert set(json.loads(body)) == {"status", "message"}


@pytest.mark.parametrize("code", sorted(STATUS_OF))
def test_refusal_carries_its_code_in_a_header(code: str) -> None:
    headers = dict(failure(Refusal(code, "why"))[1])
    assert headers[b"flotilla-error-code"].decode() == ("not_found" if code == "unknown_partition" else code)


@pytest.mark.parametrize("resource", RESOURCES)
def test_status_of_what_is_missing_follows_the_resource_and_not_the_message(resource: Resource) -> None:
    status, headers, body = failure(not_found(resource, "Topic does not exist."))
    assert status == (400 if resource == "topic" else 404)
    assert dict(headers)[b"flotilla-error-resource"].decode() == resource
    assert body == b'{"status":"failure","message":"Topic does not exist."}'
    assert failure(not_found(resource, "other words"))[0] == status


@pytest.mark.parametrize("resource", ["a\r\nset-cookie: b", ["topic"], {"a": 1}, 7, None])
def test_unknown_resource_is_not_copied_to_a_header(resource: object) -> None:
    """Managers pass on details of brokers, which may contain any resource."""
    status, headers, _ = failure(Refusal("not_found", "why", resource=resource))
    assert status == 404
    assert b"flotilla-error-resource" not in dict(headers)


def test_codes_of_the_simple_api_are_those_of_its_refusals() -> None:
    async def test() -> None:
        parts = Parts(make_snapshot(OLD))
        parts.message = None
        for path, params, code, resource in (
            ("/consumer/consume", CONSUME, "no_records", None),
            ("/consumer/consume", {**CONSUME, "topic": "other"}, "not_found", "topic"),
            ("/consumer/consume", {**CONSUME, "partition_index": 9}, "bad_request", None),
            ("/consumers/consume", CONSUME, "not_found", "path"),
        ):
            _, headers, answer = await parts.ask("GET", path, **params)
            found = headers["flotilla-error-code"], headers.get("flotilla-error-resource")
            assert (found, set(answer)) == ((code, resource), {"status", "message"})

    run(test)


def test_reader_passes_on_the_code_of_the_writer() -> None:
    body = b'{"status":"failure","message":"Topic does not exist."}'
    said = {b"flotilla-error-code": b"not_found", b"flotilla-error-resource": b"topic", b"x-other": b"1"}

    async def test() -> None:
        parts = Parts(make_snapshot(OLD), None, Response(400, said, body))
        status, headers, answer = await parts.ask("DELETE", "/topics/other")
        assert (status, answer) == (400, json.loads(body))
        assert (headers["flotilla-error-code"], headers["flotilla-error-resource"]) == ("not_found", "topic")
        assert "x-other" not in headers

    run(test)


def test_outcome_unknown_of_the_database_is_reported_as_unknown() -> None:
    assert "in_doubt" in database_refusal(OutcomeUnknown("x")).details
    assert "in_doubt" not in database_refusal(DatabaseUnavailable("x")).details


# -- paths --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "row", "name"),
    [
        ("/topics", "/topics", None),
        ("/topics/a", "/topics/{name}", "a"),
        ("/topics/partitions", "/topics/{name}", "partitions"),
        ("/topics/a/partitions", "/topics/{name}/partitions", "a"),
        ("/topics/%41/partitions", "/topics/{name}/partitions", "%41"),  # already decoded once by the server
        ("/topics/", "/topics/", None),
        ("/topics//partitions", "/topics//partitions", None),
        ("/topics/a/b", "/topics/a/b", None),
        ("/topics/a/partitions/", "/topics/a/partitions/", None),
        ("/topics/../x/partitions", "/topics/../x/partitions", None),
    ],
)
def test_path_matches_one_route(path: str, row: str, name: str | None) -> None:
    assert template(path) == (row, {} if name is None else {"name": name})


def test_unknown_paths_are_404_and_unknown_methods_405() -> None:
    async def test() -> None:
        parts = Parts(make_snapshot(OLD))
        for path in ("/nowhere", "/topics/", "/topics//partitions", "/topics/a/b", "/Topics"):
            assert (await parts.refusal_of("GET", path))[0] == 404
        for method in ("HEAD", "OPTIONS", "PUT", "GET", "M-SEARCH"):
            assert await parts.refusal_of(method, "/topics/a") == (
                405,
                "failure",
                "'/topics/{name}': method not allowed, use DELETE.",
            )

    run(test)


# -- forwarding to the writer -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answers", "status", "word"),
    [
        ([Response(200, {}, b'{"status": "success"}')], 200, "success"),
        ([UNREACHABLE, Response(200, {}, b'{"status": "success"}')], 200, "success"),
        (
            [Response(503, {b"flotilla-no-writer": b"1"}, b"{}"), Response(200, {}, b'{"status": "success"}')],
            200,
            "success",
        ),
        ([LOST, Response(200, {}, b'{"status": "success"}')], 503, "unknown"),
        ([UNREACHABLE], 503, "failure"),
    ],
)
def test_request_that_may_have_reached_the_writer_is_not_repeated(
    answers: Sequence[Answer], status: int, word: str
) -> None:
    """A topic of unknown outcome is neither reported as failed nor created twice."""

    async def test() -> None:
        parts = Parts(make_snapshot(OLD), None, *answers)
        found = await parts.ask("POST", "/topics", name="x")
        assert (found[0], found[2]["status"]) == (status, word)

    run(test)


@pytest.mark.parametrize("method", ["HEAD", "M-SEARCH", "CONNECT", "TRACE"])
def test_methods_that_cannot_be_forwarded_are_rejected(method: str) -> None:
    async def test() -> None:
        parts = Parts(make_snapshot(OLD))
        scope: Scope = {"method": method, "path": "/v1/control/state", "query_string": b"", "headers": []}
        with pytest.raises(Refusal) as caught:
            await Forward(cast("Manager", parts))(scope, b"")
        assert caught.value.code == "method_not_allowed"

    run(test)


# -- disconnected clients -----------------------------------------------------------------------------------------


def test_wait_ends_when_the_client_disconnects() -> None:
    async def test() -> None:
        is_over = False

        async def wait() -> int:
            nonlocal is_over
            try:
                await asyncio.sleep(30)
            finally:
                is_over = True
            return 1

        async def leave() -> dict[str, Any]:
            await asyncio.sleep(1)
            return {"type": "http.disconnect"}

        async def stay() -> dict[str, Any]:
            await asyncio.sleep(100)
            return {"type": "http.disconnect"}

        with pytest.raises(ClientDisconnected):
            await cancel_on_disconnect(wait(), leave)
        await asyncio.sleep(0)
        assert is_over
        assert await cancel_on_disconnect(wait(), stay) == 1

    run(test)
