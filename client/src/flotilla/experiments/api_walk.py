"""Tries every call of the HTTP API for people, and the reads of the API for programs, with good and bad input.

It decides what to ask and what should come of it; who asks is passed in. It uses one topic of its own, which it deletes
at the end, and changes nothing else: of the calls that look after brokers it only tries what must be refused.
`/v1/tail`, which never ends, is left out.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

Body = Mapping[str, Any]
Check = Callable[[Body], bool]

_BAD_NAME = "no topic has spaces"
_NOBODY = "0" * 32
_OK, _BAD, _NOT_FOUND = 200, 400, 404
_LONG = 300
_MESSAGES = ("one", "two, zwölf", "three")


@dataclass(frozen=True)
class Answer:
    """What a server said. A body that is no JSON object counts as empty."""

    status: int
    body: Body
    text: str


@dataclass(frozen=True)
class Tried:
    """A call, what it was for, and what is wrong with the answer; nothing, if nothing is."""

    call: str
    purpose: str
    trouble: str | None = None


Ask = Callable[[str, str, Body | None], Awaitable[Answer]]


class Walk:
    """Makes calls one after the other, and tells of each."""

    def __init__(self, ask: Ask, tell: Callable[[Tried], object], topic: str) -> None:
        self._ask = ask
        self._tell = tell
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
        """Make a call that must succeed, with what is wanted in its answer; return the answer.

        Parameters of GET are in the query, unless they are to be in the body.
        """
        return await self._try(purpose, method, path, params, _OK, wanted or {}, check, in_body=in_body)

    async def bad(
        self, purpose: str, method: str, path: str, params: Body | None, message: str | None = None, status: int = _BAD
    ) -> None:
        """Make a call that must be refused; with these words, if they are promised."""
        wanted = {"status": "failure"} if message is None else {"status": "failure", "message": message}
        await self._try(purpose, method, path, params, status, wanted, lambda body: bool(body.get("message")))

    async def refused(self, purpose: str, method: str, path: str, code: str, status: int) -> None:
        """Make a call of programs that must be refused, with this code."""
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
        self._tell(Tried(f"{method} {path}", purpose, find_trouble(answer, status, wanted, check)))
        return answer.body


def find_trouble(answer: Answer, status: int, wanted: Body, check: Check) -> str | None:
    """Say what is wrong with an answer; None if it is right."""
    said = f"it answers {answer.status} {answer.text[:_LONG]}"
    if answer.status != status:
        return f"{said}, and the status should be {status}"
    for name, value in wanted.items():
        if answer.body.get(name) != value:
            return f"{said}, and {name} should be {value!r}"
    try:
        is_right = check(answer.body)
    except (KeyError, TypeError, IndexError, AttributeError):  # something is missing, or of another kind
        is_right = False
    return None if is_right else f"{said}, which is not as it should be"


async def walk(ask: Ask, tell: Callable[[Tried], object], topic: str) -> None:
    """Make all calls, telling of each. Raises what `ask` raises, when its topic is deleted as far as possible."""
    steps = Walk(ask, tell, topic)
    try:
        await _topics(steps)
        producer = await _producing(steps)
        await _consuming(steps)
        await _clients(steps, producer)
        await _system(steps)
        await _programs(steps)
    finally:
        await _deleting(steps)


async def _topics(go: Walk) -> None:
    made = {"message": f"Topic '{go.topic}' created successfully."}
    new: Body = {"name": go.topic, "number_of_partitions": 2}
    await go.good("make a topic", "POST", "/topics", new, wanted=made)
    await go.bad("make it again", "POST", "/topics", new, "Topic already exists.")
    await go.bad("a bad name", "POST", "/topics", {"name": _BAD_NAME})
    await go.bad("no name", "POST", "/topics", {})
    await go.bad("no partitions", "POST", "/topics", {"name": f"{go.topic}-none", "number_of_partitions": 0})
    await go.bad("a parameter that there is not", "POST", "/topics", {"name": f"{go.topic}-none", "colour": "red"})
    await go.good("list topics", "GET", "/topics", check=lambda body: go.topic in body["topics"])
    indexes = [0, 1]
    await go.good(
        "list partitions",
        "GET",
        f"/topics/{go.topic}/partitions",
        check=lambda body: [one["partition_index"] for one in body["partitions"]] == indexes,
    )
    await go.bad("partitions of no topic", "GET", f"/topics/{go.topic}-none/partitions", None, "Topic does not exist.")


async def _producing(go: Walk) -> str:
    path, here = "/producer/produce", {"topic": go.topic}
    answer = await go.good(
        "register a producer", "POST", "/producer/register", here, check=lambda body: bool(body["producer_id"])
    )
    me = {**here, "producer_id": str(answer.get("producer_id"))}
    await go.bad("register for nothing", "POST", "/producer/register", {})
    for message in _MESSAGES:
        params = {**me, "message": message}
        await go.good("produce, in turn", "POST", path, params, check=lambda body: body["partition_index"] in {0, 1})
    await go.good(
        "produce to a partition",
        "POST",
        path,
        {**me, "message": "four", "partition_index": 1},
        wanted={"partition_index": 1},
    )
    again: Body = {**me, "message": "five", "partition_index": 0, "sequence": 0}
    first = await go.good("produce with a sequence", "POST", path, again, wanted={"partition_index": 0})
    await go.good("send it again: it is stored once", "POST", path, again, wanted={"offset": first.get("offset")})
    await go.good("produce bytes", "POST", path, {**me, "message_base64": "/w=="})
    await go.bad(
        "to no topic", "POST", path, {**me, "topic": f"{go.topic}-none", "message": "m"}, "Topic does not exist."
    )
    await go.bad(
        "to no partition", "POST", path, {**me, "message": "m", "partition_index": 9}, "Invalid Partition Number."
    )
    await go.bad(
        "as nobody",
        "POST",
        path,
        {**here, "producer_id": _NOBODY, "message": "m"},
        "Producer not registered with topic.",
    )
    await go.bad("no message", "POST", path, me)
    await go.bad("what is no base64", "POST", path, {**me, "message_base64": "!"})
    return me["producer_id"]


async def _consuming(go: Walk) -> None:
    here: Body = {"topic": go.topic}
    there = {"topic": f"{go.topic}-none"}
    sent = len(_MESSAGES) + 3
    me = {**here, "consumer_id": await _register(go, "register a consumer", here)}
    late = {**here, "consumer_id": await _register(go, "one that starts at the latest", {**here, "start": "latest"})}
    one = {**here, "consumer_id": await _register(go, "one of a partition", {**here, "partition_index": 1})}
    await go.bad("register for no topic", "POST", "/consumer/register", there, "Topic does not exist.")
    await go.bad("start anywhere", "POST", "/consumer/register", {**here, "start": "anywhere"})
    await go.good("what is left", "GET", "/size", me, wanted={"size": sent}, check=lambda body: len(body["sizes"]) == 2)  # noqa: PLR2004 - partitions
    await go.good("what is left, asked with a body", "GET", "/size", me, wanted={"size": sent}, in_body=True)
    await go.good("what is left for the late one", "GET", "/size", late, wanted={"size": 0})
    await go.good("what is left in a partition", "GET", "/size", {**me, "partition_index": 1})
    found = [await _consume(go, me) for _ in range(sent)]
    wanted = {*_MESSAGES, "four", "five", "/w=="}
    await go.good(
        "all was consumed once", "GET", "/size", me, wanted={"size": 0}, check=lambda _: _is_same(found, wanted)
    )
    await go.bad("consume more", "GET", "/consumer/consume", me, "No logs available to consume.")
    await go.good("consume a partition", "GET", "/consumer/consume", one, wanted={"partition_index": 1})
    for path in ("/consumer/consume", "/size"):
        await go.bad("of no topic", "GET", path, {**me, **there}, "Topic does not exist.")
        await go.bad("of no partition", "GET", path, {**me, "partition_index": 9}, "Invalid partition number.")
        nobody = {**here, "consumer_id": _NOBODY}
        await go.bad("as nobody", "GET", path, nobody, "Consumer not registered with topic.")
        await go.bad("of nothing", "GET", path, {})


async def _register(go: Walk, purpose: str, params: Body) -> str:
    check: Check = lambda body: bool(body["consumer_id"])  # noqa: E731 - a name for it makes it no clearer
    return str((await go.good(purpose, "POST", "/consumer/register", params, check=check)).get("consumer_id"))


async def _consume(go: Walk, params: Body) -> str:
    body = await go.good("consume, in turn", "GET", "/consumer/consume", params, check=lambda body: body["offset"] >= 0)
    return str(body.get("message", body.get("message_base64")))


def _is_same(found: Sequence[str], wanted: set[str]) -> bool:
    return len(found) == len(wanted) and set(found) == wanted


async def _clients(go: Walk, producer: str) -> None:
    consumer = await _register(go, "register a consumer", {"topic": go.topic})
    await go.good("a producer is alive", "POST", "/producer/heartbeat", {"producer_id": producer})
    await go.good("a consumer is alive", "POST", "/consumer/heartbeat", {"consumer_id": consumer})
    strangers = ("Producer not registered with topic.", "Consumer not registered with topic.")
    await go.bad("nobody is", "POST", "/producer/heartbeat", {"producer_id": _NOBODY}, strangers[0])
    await go.bad("nobody is", "POST", "/consumer/heartbeat", {"consumer_id": _NOBODY}, strangers[1])
    await go.good("list producers", "GET", "/producers", check=lambda body: bool(body["producers"]))
    await go.good("list consumers", "GET", "/consumers", check=lambda body: bool(body["consumers"]))


async def _system(go: Walk) -> None:
    await go.good("what this is", "GET", "/", check=lambda body: bool(body["version"]))
    await go.good("list brokers", "GET", "/brokers", check=lambda body: bool(body["brokers"]))
    await go.good("list managers", "GET", "/managers", check=lambda body: bool(body["managers"]))
    for task in ("add", "remove", "activate", "deactivate"):
        await go.bad(f"{task} no broker", "POST", f"/admin/broker/{task}", {})
    await go.bad("what there is not", "GET", "/nothing", None, status=_NOT_FOUND)


async def _programs(go: Walk) -> None:
    topic, nowhere = f"/v1/topics/{go.topic}", f"{go.topic}-none"
    place = {"topic": go.topic, "partition": 0, "offset": 0}
    await go.good("is it alive", "GET", "/healthz")
    await go.good("is it ready", "GET", "/readyz")
    await go.good(
        "metadata",
        "GET",
        "/v1/metadata",
        {"topic": go.topic},
        check=lambda body: [one["name"] for one in body["topics"]] == [go.topic],
    )
    await go.good("metadata of no topic", "GET", "/v1/metadata", {"topic": nowhere}, wanted={"missing": [nowhere]})
    await go.good("topics", "GET", "/v1/topics", check=lambda body: go.topic in [one["name"] for one in body["topics"]])
    await go.good("a topic", "GET", topic, wanted={"name": go.topic})
    await go.good("where partitions end", "GET", f"{topic}/offsets", check=lambda body: _count_records(body) > 0)
    await go.good("records", "GET", "/v1/fetch", place, check=lambda body: bool(body["records"]))
    await go.refused("records yet to come", "GET", f"/v1/fetch?{urlencode({**place, 'offset': 99})}", *_OUT_OF_RANGE)
    await go.good("groups", "GET", "/v1/groups", check=lambda body: isinstance(body["groups"], list))
    await go.refused("no topic", "GET", f"/v1/topics/{nowhere}", "not_found", _NOT_FOUND)
    await go.refused("no group", "GET", f"/v1/groups/{nowhere}", "not_found", _NOT_FOUND)


_OUT_OF_RANGE = ("offset_out_of_range", _BAD)


def _count_records(body: Body) -> int:
    return sum(one["next_offset"] - one["first_offset"] for one in body["partitions"])


async def _deleting(go: Walk) -> None:
    path = f"/topics/{go.topic}"
    deleted = {"message": f"Topic '{go.topic}' deleted successfully."}
    await go.good("delete the topic", "DELETE", path, wanted=deleted)
    await go.bad("delete it again", "DELETE", path, None, "Topic does not exist.")
