"""Test of the HTTP API: all calls of the simple API and the reads of the v1 API, with valid and invalid input.

This module decides what to request and which response to expect; the function that sends requests is passed in. The
test uses a topic of its own, which it deletes at the end, and changes nothing else: of the calls that administer
brokers it sends only invalid ones. `/v1/tail`, which never ends, is left out.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

Body = Mapping[str, Any]
Check = Callable[[Body], bool]

_BAD_NAME = "no topic has spaces"
_UNKNOWN_ID = "0" * 32
_OK, _BAD, _NOT_FOUND = 200, 400, 404
_LONG = 300
_PARTITIONS = 2
_MESSAGES = ("one", "two, zwölf", "three")


@dataclass(frozen=True)
class Answer:
    """A response. A body that is not a JSON object is empty."""

    status: int
    body: Body
    text: str


@dataclass(frozen=True)
class CallResult:
    """A call, its purpose, and the problem with its response; None if there is none."""

    call: str
    purpose: str
    trouble: str | None = None


Ask = Callable[[str, str, Body | None], Awaitable[Answer]]


class ApiTest:
    """Sends requests one after the other, and reports each result."""

    def __init__(self, ask: Ask, report: Callable[[CallResult], object], topic: str) -> None:
        self._ask = ask
        self._report = report
        self.topic = topic

    async def good(
        self,
        purpose: str,
        method: str,
        path: str,
        params: Body | None = None,
        *,
        wanted: Body | None = None,
        check: Check = lambda _: True,
        in_body: bool = False,
    ) -> Body:
        """Send a request that must succeed with the expected fields; return the body.

        Parameters of GET are in the query, unless `in_body` is set.
        """
        return await self._try(purpose, method, path, params, _OK, wanted or {}, check, in_body=in_body)

    async def bad(
        self, purpose: str, method: str, path: str, params: Body | None, message: str | None = None, status: int = _BAD
    ) -> None:
        """Send a request that must be rejected, with this message if one is given."""
        wanted = {"status": "failure"} if message is None else {"status": "failure", "message": message}
        await self._try(purpose, method, path, params, status, wanted, lambda body: bool(body.get("message")))

    async def refused(self, purpose: str, method: str, path: str, code: str, status: int) -> None:
        """Send a request to the v1 API that must be rejected with this code."""
        await self._try(purpose, method, path, None, status, {"code": code}, lambda body: bool(body.get("message")))

    async def _try(
        self,
        purpose: str,
        method: str,
        path: str,
        params: Body | None,
        status: int,
        wanted: Body,
        check: Check,
        *,
        in_body: bool = False,
    ) -> Body:
        is_query = method == "GET" and params is not None and not in_body
        target = f"{path}?{urlencode(params or {})}" if is_query else path
        answer = await self._ask(method, target, None if is_query else params)
        self._report(CallResult(f"{method} {path}", purpose, find_problem(answer, status, wanted, check)))
        return answer.body


def find_problem(answer: Answer, status: int, wanted: Body, check: Check) -> str | None:
    """Describe the problem with a response; None if there is none."""
    response = f"response is {answer.status} {answer.text[:_LONG]}"
    if answer.status != status:
        return f"{response}; expected status {status}"
    for name, value in wanted.items():
        if answer.body.get(name) != value:
            return f"{response}; expected {name} {value!r}"
    try:
        is_right = check(answer.body)
    except (KeyError, TypeError, IndexError, AttributeError):  # a field is missing, or of another type
        is_right = False
    return None if is_right else f"{response}, which is not the expected content"


async def run_test(ask: Ask, report: Callable[[CallResult], object], topic: str) -> None:
    """Send all requests, and report each result. Errors of `ask` are raised after an attempt to delete the topic."""
    api = ApiTest(ask, report, topic)
    try:
        await _test_topics(api)
        producer = await _test_producer(api)
        await _test_consumer(api)
        await _test_heartbeats(api, producer)
        await _test_system(api)
        await _test_v1(api)
    finally:
        await _test_deletion(api)


async def _test_topics(api: ApiTest) -> None:
    made = {"message": f"Topic '{api.topic}' created successfully."}
    new: Body = {"name": api.topic, "number_of_partitions": _PARTITIONS}
    await api.good("create a topic", "POST", "/topics", new, wanted=made)
    await api.bad("create it again", "POST", "/topics", new, "Topic already exists.")
    await api.bad("create with an invalid name", "POST", "/topics", {"name": _BAD_NAME})
    await api.bad("create without a name", "POST", "/topics", {})
    await api.bad(
        "create with 0 partitions", "POST", "/topics", {"name": f"{api.topic}-none", "number_of_partitions": 0}
    )
    await api.bad("create with an unknown parameter", "POST", "/topics", {"name": f"{api.topic}-none", "colour": "red"})
    await api.good("list topics", "GET", "/topics", check=lambda body: api.topic in body["topics"])
    indexes = [0, 1]
    await api.good(
        "list partitions",
        "GET",
        f"/topics/{api.topic}/partitions",
        check=lambda body: [one["partition_index"] for one in body["partitions"]] == indexes,
    )
    await api.bad(
        "list partitions of a missing topic",
        "GET",
        f"/topics/{api.topic}-none/partitions",
        None,
        "Topic does not exist.",
    )


async def _test_producer(api: ApiTest) -> str:
    path, here = "/producer/produce", {"topic": api.topic}
    answer = await api.good(
        "register a producer", "POST", "/producer/register", here, check=lambda body: bool(body["producer_id"])
    )
    me = {**here, "producer_id": str(answer.get("producer_id"))}
    await api.bad("register without a topic", "POST", "/producer/register", {})
    for message in _MESSAGES:
        params = {**me, "message": message}
        await api.good(
            "produce to any partition", "POST", path, params, check=lambda body: body["partition_index"] in {0, 1}
        )
    await api.good(
        "produce to a partition",
        "POST",
        path,
        {**me, "message": "four", "partition_index": 1},
        wanted={"partition_index": 1},
    )
    again: Body = {**me, "message": "five", "partition_index": 0, "sequence": 0}
    first = await api.good("produce with a sequence number", "POST", path, again, wanted={"partition_index": 0})
    await api.good("repeat it: stored once", "POST", path, again, wanted={"offset": first.get("offset")})
    await api.good("produce bytes", "POST", path, {**me, "message_base64": "/w=="})
    await api.bad(
        "produce to a missing topic",
        "POST",
        path,
        {**me, "topic": f"{api.topic}-none", "message": "m"},
        "Topic does not exist.",
    )
    await api.bad(
        "produce to a missing partition",
        "POST",
        path,
        {**me, "message": "m", "partition_index": 9},
        "Invalid Partition Number.",
    )
    await api.bad(
        "produce with an unknown producer id",
        "POST",
        path,
        {**here, "producer_id": _UNKNOWN_ID, "message": "m"},
        "Producer not registered with topic.",
    )
    await api.bad("produce without a message", "POST", path, me)
    await api.bad("produce invalid base64", "POST", path, {**me, "message_base64": "!"})
    return me["producer_id"]


async def _test_consumer(api: ApiTest) -> None:
    here: Body = {"topic": api.topic}
    missing = {"topic": f"{api.topic}-none"}
    sent = len(_MESSAGES) + 3
    me = {**here, "consumer_id": await _register(api, "register a consumer", here)}
    late = {
        **here,
        "consumer_id": await _register(api, "register a consumer that starts at latest", {**here, "start": "latest"}),
    }
    one = {
        **here,
        "consumer_id": await _register(api, "register a consumer of one partition", {**here, "partition_index": 1}),
    }
    await api.bad("register for a missing topic", "POST", "/consumer/register", missing, "Topic does not exist.")
    await api.bad("register with an invalid start", "POST", "/consumer/register", {**here, "start": "anywhere"})
    has_both: Check = lambda body: len(body["sizes"]) == _PARTITIONS  # noqa: E731 - a def would be longer
    await api.good("get the size", "GET", "/size", me, wanted={"size": sent}, check=has_both)
    await api.good("get the size, with parameters in the body", "GET", "/size", me, wanted={"size": sent}, in_body=True)
    await api.good("get the size at latest", "GET", "/size", late, wanted={"size": 0})
    await api.good("get the size of one partition", "GET", "/size", {**me, "partition_index": 1})
    found = [await _consume(api, me) for _ in range(sent)]
    wanted = {*_MESSAGES, "four", "five", "/w=="}
    await api.good(
        "all messages consumed once", "GET", "/size", me, wanted={"size": 0}, check=lambda _: _is_same(found, wanted)
    )
    await api.bad("consume at the end", "GET", "/consumer/consume", me, "No logs available to consume.")
    await api.good("consume from one partition", "GET", "/consumer/consume", one, wanted={"partition_index": 1})
    for path in ("/consumer/consume", "/size"):
        await api.bad("read a missing topic", "GET", path, {**me, **missing}, "Topic does not exist.")
        await api.bad(
            "read a missing partition", "GET", path, {**me, "partition_index": 9}, "Invalid partition number."
        )
        unknown = {**here, "consumer_id": _UNKNOWN_ID}
        await api.bad("read with an unknown consumer id", "GET", path, unknown, "Consumer not registered with topic.")
        await api.bad("read without parameters", "GET", path, {})


async def _register(api: ApiTest, purpose: str, params: Body) -> str:
    check: Check = lambda body: bool(body["consumer_id"])  # noqa: E731 - a def would be longer
    return str((await api.good(purpose, "POST", "/consumer/register", params, check=check)).get("consumer_id"))


async def _consume(api: ApiTest, params: Body) -> str:
    body = await api.good(
        "consume from any partition", "GET", "/consumer/consume", params, check=lambda body: body["offset"] >= 0
    )
    return str(body.get("message", body.get("message_base64")))


def _is_same(found: Sequence[str], wanted: set[str]) -> bool:
    return len(found) == len(wanted) and set(found) == wanted


async def _test_heartbeats(api: ApiTest, producer: str) -> None:
    consumer = await _register(api, "register a consumer", {"topic": api.topic})
    await api.good("send a producer heartbeat", "POST", "/producer/heartbeat", {"producer_id": producer})
    await api.good("send a consumer heartbeat", "POST", "/consumer/heartbeat", {"consumer_id": consumer})
    unknown = ("Producer not registered with topic.", "Consumer not registered with topic.")
    await api.bad(
        "heartbeat of an unknown producer", "POST", "/producer/heartbeat", {"producer_id": _UNKNOWN_ID}, unknown[0]
    )
    await api.bad(
        "heartbeat of an unknown consumer", "POST", "/consumer/heartbeat", {"consumer_id": _UNKNOWN_ID}, unknown[1]
    )
    await api.good("list producers", "GET", "/producers", check=lambda body: bool(body["producers"]))
    await api.good("list consumers", "GET", "/consumers", check=lambda body: bool(body["consumers"]))


async def _test_system(api: ApiTest) -> None:
    await api.good("get the version", "GET", "/", check=lambda body: bool(body["version"]))
    await api.good("list brokers", "GET", "/brokers", check=lambda body: bool(body["brokers"]))
    await api.good("list managers", "GET", "/managers", check=lambda body: bool(body["managers"]))
    for task in ("add", "remove", "activate", "deactivate"):
        await api.bad(f"{task} a broker without parameters", "POST", f"/admin/broker/{task}", {})
    await api.bad("unknown path", "GET", "/nothing", None, status=_NOT_FOUND)


async def _test_v1(api: ApiTest) -> None:
    topic, nowhere = f"/v1/topics/{api.topic}", f"{api.topic}-none"
    place = {"topic": api.topic, "partition": 0, "offset": 0}
    await api.good("check liveness", "GET", "/healthz")
    await api.good("check readiness", "GET", "/readyz")
    await api.good(
        "get metadata",
        "GET",
        "/v1/metadata",
        {"topic": api.topic},
        check=lambda body: [one["name"] for one in body["topics"]] == [api.topic],
    )
    await api.good(
        "get metadata of a missing topic", "GET", "/v1/metadata", {"topic": nowhere}, wanted={"missing": [nowhere]}
    )
    await api.good(
        "list topics", "GET", "/v1/topics", check=lambda body: api.topic in [one["name"] for one in body["topics"]]
    )
    await api.good("get a topic", "GET", topic, wanted={"name": api.topic})
    await api.good("get offsets", "GET", f"{topic}/offsets", check=lambda body: _count_records(body) > 0)
    await api.good("fetch records", "GET", "/v1/fetch", place, check=lambda body: bool(body["records"]))
    await api.refused("fetch beyond the end", "GET", f"/v1/fetch?{urlencode({**place, 'offset': 99})}", *_OUT_OF_RANGE)
    await api.good("list groups", "GET", "/v1/groups", check=lambda body: isinstance(body["groups"], list))
    await api.refused("get a missing topic", "GET", f"/v1/topics/{nowhere}", "not_found", _NOT_FOUND)
    await api.refused("get a missing group", "GET", f"/v1/groups/{nowhere}", "not_found", _NOT_FOUND)


_OUT_OF_RANGE = ("offset_out_of_range", _BAD)


def _count_records(body: Body) -> int:
    return sum(one["next_offset"] - one["first_offset"] for one in body["partitions"])


async def _test_deletion(api: ApiTest) -> None:
    path = f"/topics/{api.topic}"
    deleted = {"message": f"Topic '{api.topic}' deleted successfully."}
    await api.good("delete the topic", "DELETE", path, wanted=deleted)
    await api.bad("delete it again", "DELETE", path, None, "Topic does not exist.")
