"""Calls for people: refusals word for word and in their order; nobody is refused for what is only old here."""

import asyncio
import json
from collections.abc import Callable, Coroutine, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from flotilla.access import ANYBODY, Caller
from flotilla.net import Pool, Response
from flotilla.serving.asgi import Gone, Scope
from flotilla.serving.errors import STATUS_OF, Refusal
from flotilla.serving.limits import InFlight
from flotilla.serving.people import failure, template
from flotilla_manager.api.calls import make_calls
from flotilla_manager.api.data import while_there
from flotilla_manager.api.endpoint import PeopleEndpoint, away
from flotilla_manager.api.forward import Forward
from flotilla_manager.api.metrics import Metrics
from flotilla_manager.api.people import People
from flotilla_manager.clients import NotRegistered
from flotilla_manager.consuming import Consumed
from flotilla_manager.manager import Manager
from flotilla_manager.metadata.errors import DatabaseAway, OutcomeUnknown
from flotilla_manager.model import Snapshot, Topic
from flotilla_manager.view import View
from support.access import hold
from unit.manager.dataplane import LOST, UNREACHABLE, Answer, make_snapshot, make_topic, on_virtual_time, scripted

NO_TOPIC = (400, "failure", "Topic does not exist.")
NO_PRODUCER = (400, "failure", "Producer not registered with topic.")
NO_CONSUMER = (400, "failure", "Consumer not registered with topic.")
OLD, NEW = make_topic(partitions=2), make_topic(partitions=3, id_="ef" * 16)


class Parts:
    """A manager's parts: a real view over a database that may know more, and clients of one topic."""

    def __init__(self, known: Snapshot, newer: Snapshot | None = None, *answers: Answer) -> None:
        self.loads = 0
        self.heard: list[str] = []
        self.newer = newer
        self.trouble: Exception | None = None
        self.caller: Caller = ANYBODY
        self.view = View(self._load, asyncio.get_running_loop().time)
        self.view.snapshot = known
        self.clients_topic = (newer or known).topics[0].id if (newer or known).topics else ""
        self.settings = SimpleNamespace(message_bytes_max=1000, request_s_max=1.0, writer="http://writer")
        self.lanes = SimpleNamespace(in_flight=InFlight(1 << 20), append=self._append)
        self.writer = SimpleNamespace(is_writer=False)
        self.producers = SimpleNamespace(is_registered=self._is_registered, next_turn=lambda *_: 0)
        self.consuming = SimpleNamespace(consume=self._consume, left=self._left)
        self.signs = SimpleNamespace(producer=lambda _: None, consumer=self.heard.append)
        self.records = SimpleNamespace(size=0)
        self.control = cast("Pool", scripted(*answers or (UNREACHABLE,)))
        self.message: Consumed | None = Consumed(0, 7, b"hello")
        manager = cast("Manager", self)
        self.endpoint = PeopleEndpoint(manager, make_calls(People(manager)), Forward(manager), Metrics(manager))

    async def _load(self, _: int) -> Snapshot | None:
        self.loads += 1
        return self.newer

    async def _is_registered(self, _: str, topic_id: str) -> bool:
        return topic_id == self.clients_topic

    async def _append(self, topic: Topic, index: int, value: bytes) -> int:
        if self.trouble is not None:
            raise self.trouble
        assert (topic.id, index < len(topic.partitions), value) == (self.clients_topic, True, b"m")
        return 42

    async def _consume(self, topic: Topic, _: str, __: int | None) -> Consumed | None:
        if topic.id != self.clients_topic:
            raise NotRegistered(NO_CONSUMER[2])
        return self.message

    async def _left(self, topic: Topic, _: str, __: int | None, ___: float) -> dict[int, int]:
        await self._consume(topic, "", None)
        return {0: 3, 1: 4}

    async def ask(self, method: str, path: str, **params: object) -> tuple[int, dict[str, str], dict[str, Any]]:
        """Ask over ASGI; return status, headers and answer."""
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

    async def told(self, method: str, path: str, **params: object) -> tuple[int, str, str]:
        """Ask, and return status, word and message of a refusal."""
        status, headers, answer = await self.ask(method, path, **params)
        assert headers["cache-control"] == "no-store"
        assert ("retry-after" in headers) == (status in {429, 503})
        return status, answer["status"], answer["message"]


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    on_virtual_time(test())


PRODUCE = {"topic": "t", "producer_id": "p", "message": "m"}
CONSUME = {"topic": "t", "consumer_id": "c"}


# -- the order of checks, and what is old here --------------------------------------------------------------------


def test_the_topic_the_partition_and_the_client_are_checked_in_this_order() -> None:
    async def test() -> None:
        nothing, parts = Parts(make_snapshot()), Parts(make_snapshot(OLD))
        parts.clients_topic = "another"
        for index in (-1, 2, 10**30):
            assert await nothing.told("POST", "/producer/produce", **PRODUCE, partition_index=index) == NO_TOPIC
            found = await parts.told("POST", "/producer/produce", **PRODUCE, partition_index=index)
            assert found == (400, "failure", "Invalid Partition Number.")
            for path in ("/consumer/consume", "/size"):
                assert await nothing.told("GET", path, **CONSUME, partition_index=index) == NO_TOPIC
                found = await parts.told("GET", path, **CONSUME, partition_index=index)
                assert found == (400, "failure", "Invalid partition number.")
        for valid in (None, 0, 1):
            assert await parts.told("POST", "/producer/produce", **PRODUCE, partition_index=valid) == NO_PRODUCER
            for path in ("/consumer/consume", "/size"):
                assert await parts.told("GET", path, **CONSUME, partition_index=valid) == NO_CONSUMER

    run(test)


@pytest.mark.parametrize("known", [make_snapshot(), make_snapshot(OLD)], ids=["nothing", "the topic before"])
def test_nobody_is_refused_for_what_is_old_here(known: Snapshot) -> None:
    """A topic that was made, or made again, through another manager a moment ago can be used through this one."""

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


def test_what_fits_costs_no_question_to_the_database() -> None:
    async def test() -> None:
        parts = Parts(make_snapshot(OLD))
        assert (await parts.ask("POST", "/producer/produce", **PRODUCE, partition_index=1))[0] == 200
        assert (await parts.ask("GET", "/consumer/consume", **CONSUME))[0] == 200
        assert parts.loads == 0

    run(test)


def test_a_consumer_that_finds_nothing_lives() -> None:
    """Whoever asks again and again is not silent; a message that is handed out is noted as it is."""

    async def test() -> None:
        parts = Parts(make_snapshot(OLD))
        parts.message = None
        found = await parts.told("GET", "/consumer/consume", **CONSUME)
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
def test_who_lacks_the_scope_is_refused_before_anybody_looks_for_the_topic(
    method: str, path: str, params: dict[str, str], scope: str
) -> None:
    """Parameters are read first, then the scope is asked for; whether the topic is there makes no difference."""

    async def test() -> None:
        for parts in (Parts(make_snapshot()), Parts(make_snapshot(OLD))):
            parts.caller = Caller("x", hold(f"{scope}:other", "admin").token)
            found = await parts.told(method, path, **params)
            assert found == (403, "failure", f"the scope {scope} on topic 't' is missing")
            assert parts.loads == 0
            assert (await parts.told(method, path, **params, nonsense=1))[0] == 400
        parts.caller = Caller("x", hold(f"{scope}:t").token)
        assert (await parts.ask(method, path, **params))[0] == 200

    run(test)


# -- the shape of refusals ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trouble", "status", "word"),
    [
        (Refusal("unknown_outcome", "why"), 504, "unknown"),
        (Refusal("unavailable", "why"), 503, "failure"),
        (Refusal("busy", "why"), 429, "failure"),
        (Refusal("not_leader", "why"), 503, "failure"),
        (Refusal("sequence_gap", "why"), 400, "failure"),
        (Refusal("bad_batch", "why"), 400, "failure"),
        (DatabaseAway("why"), 503, "failure"),
        (OutcomeUnknown("why"), 503, "unknown"),
        (ValueError("a mistake"), 500, "unknown"),
    ],
)
def test_what_is_in_doubt_is_called_unknown_and_nothing_else(trouble: Exception, status: int, word: str) -> None:
    """An append ends in one of three ways: ok, failed, unknown."""

    async def test() -> None:
        parts = Parts(make_snapshot(OLD))
        parts.trouble = trouble
        found = await parts.told("POST", "/producer/produce", **PRODUCE)
        assert found[:2] == (status, word)
        assert (found[2] == "why") == isinstance(trouble, Refusal)

    run(test)


def test_a_mistake_can_be_found_in_the_log_by_its_id() -> None:
    async def test() -> None:
        parts = Parts(make_snapshot(OLD))
        parts.trouble = ValueError("a mistake")
        assert (await parts.ask("POST", "/producer/produce", **PRODUCE))[1]["x-request-id"]

    run(test)


@pytest.mark.parametrize("code", sorted(STATUS_OF))
def test_every_refusal_has_a_status_that_people_are_promised(code: str) -> None:
    status, _, body = failure(Refusal(code, "why"))
    assert status in {400, 401, 403, 404, 405, 413, 429, 500, 503, 504}
    assert set(json.loads(body)) == {"status", "message"}


def test_a_database_that_is_away_in_doubt_says_so() -> None:
    assert "in_doubt" in away(OutcomeUnknown("x")).details
    assert "in_doubt" not in away(DatabaseAway("x")).details


# -- paths --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "row", "name"),
    [
        ("/topics", "/topics", None),
        ("/topics/a", "/topics/{name}", "a"),
        ("/topics/partitions", "/topics/{name}", "partitions"),
        ("/topics/a/partitions", "/topics/{name}/partitions", "a"),
        ("/topics/%41/partitions", "/topics/{name}/partitions", "%41"),  # it was decoded before, once is enough
        ("/topics/", "/topics/", None),
        ("/topics//partitions", "/topics//partitions", None),
        ("/topics/a/b", "/topics/a/b", None),
        ("/topics/a/partitions/", "/topics/a/partitions/", None),
        ("/topics/../x/partitions", "/topics/../x/partitions", None),
    ],
)
def test_a_path_belongs_to_one_row(path: str, row: str, name: str | None) -> None:
    assert template(path) == (row, {} if name is None else {"name": name})


def test_unknown_paths_are_404_and_unknown_methods_405() -> None:
    async def test() -> None:
        parts = Parts(make_snapshot(OLD))
        for path in ("/nowhere", "/topics/", "/topics//partitions", "/topics/a/b", "/Topics"):
            assert (await parts.told("GET", path))[0] == 404
        for method in ("HEAD", "OPTIONS", "PUT", "GET", "M-SEARCH"):
            assert await parts.told(method, "/topics/a") == (405, "failure", "'/topics/{name}' takes DELETE.")

    run(test)


# -- the way to the writer ----------------------------------------------------------------------------------------


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
def test_what_was_sent_to_the_writer_is_not_sent_again(answers: Sequence[Answer], status: int, word: str) -> None:
    """A topic that may have been made is neither told as failed nor made twice."""

    async def test() -> None:
        parts = Parts(make_snapshot(OLD), None, *answers)
        found = await parts.ask("POST", "/topics", name="x")
        assert (found[0], found[2]["status"]) == (status, word)

    run(test)


@pytest.mark.parametrize("method", ["HEAD", "M-SEARCH", "CONNECT", "TRACE"])
def test_methods_that_cannot_be_passed_on_are_refused(method: str) -> None:
    async def test() -> None:
        parts = Parts(make_snapshot(OLD))
        scope: Scope = {"method": method, "path": "/v1/control/state", "query_string": b"", "headers": []}
        with pytest.raises(Refusal) as caught:
            await Forward(cast("Manager", parts))(scope, b"")
        assert caught.value.code == "method_not_allowed"

    run(test)


# -- clients that leave -------------------------------------------------------------------------------------------


def test_nobody_waits_on_behalf_of_a_client_that_left() -> None:
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

        with pytest.raises(Gone):
            await while_there(wait(), leave)
        await asyncio.sleep(0)
        assert is_over
        assert await while_there(wait(), stay) == 1

    run(test)
