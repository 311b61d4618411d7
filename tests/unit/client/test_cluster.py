"""How managers are asked: again while that may help, never twice what must not be; and what is known of topics."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import msgspec
import pytest

from flotilla.client.cluster import BrokerInfo, Cluster, Managers, PartitionInfo, TopicInfo, read_as
from flotilla.client.config import load_client
from flotilla.client.errors import (
    MemberGone,
    NotAllowed,
    NotFound,
    OffsetOutOfRange,
    OutcomeUnknown,
    Refused,
    ServerUnreachable,
    TopicExists,
    TopicMissing,
)
from flotilla.net import Disconnected, Response
from support.fakemanager import Answering, Asked, FakePool, Said, no, ok

T = TypeVar("T")

AWAY = Disconnected("cannot connect", sent=False)
LOST = Disconnected("the connection ended", sent=True)
LATER = no(503, "unavailable", "the writer does not answer")
ORDERS: dict[str, Any] = {
    "name": "orders",
    "id": "a" * 32,
    "partitions": [{"index": 0, "epoch": 1, "replicas": ["one", "two"], "leader": "one", "later": "field"}],
    "replication": 2,
}
METADATA: dict[str, Any] = {
    "version": 7,
    "cluster_id": "c",
    "topics": [ORDERS],
    "brokers": [{"id": "one", "url": "http://b:1", "rack": "r", "active": True, "cordoned": True}],
    "missing": [],
    "limits": {},
}


class Clock:
    """Time that passes when somebody says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def taking(self, seconds: float, said: Said) -> Answering:
        """Let an answer take some time."""

        def answer(_: Asked) -> Said:
            self.now += seconds
            return said

        return answer


def managers(
    pool: FakePool, url: str = "http://a:1", again_s: float | None = None, clock: Clock | None = None
) -> Managers:
    return Managers(load_client(url, token="flt_x", environment={}), pool, clock or Clock(), again_s)  # noqa: S106 - no secret


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


# -- asking -------------------------------------------------------------------------------------------------------


def test_a_question_carries_the_token_and_json_and_brings_json() -> None:
    pool = FakePool(ok({"well": [1]}))
    assert run(managers(pool).ask("POST", "/v1/topics", {"name": "x"})) == {"well": [1]}
    (asked,) = pool.asked
    assert asked[:4] == ("http://a:1", "POST", "/v1/topics", {"name": "x"})
    assert asked.headers == {"content-type": "application/json", "authorization": "Bearer flt_x"}
    run(managers(pool).ask("GET", "/v1/topics"))
    assert (pool.asked[-1].body, "content-type" in pool.asked[-1].headers) == (None, False)


@pytest.mark.parametrize("trouble", [AWAY, LOST, LATER, no(500, "internal"), no(429, "busy"), Response(502, {}, b"<")])
def test_what_may_pass_is_asked_again(trouble: Said) -> None:
    pool = FakePool(trouble, trouble, ok(1))
    assert run(managers(pool).ask("GET", "/x")) == 1
    assert len(pool.asked) == 3


def test_who_does_not_answer_is_asked_last() -> None:
    pool = FakePool(AWAY, ok(1), ok(2), LATER, ok(3))
    asking = managers(pool, "http://a:1,http://b:2")
    assert [run(asking.ask("GET", "/x")) for _ in range(3)] == [1, 2, 3]
    assert [one.url for one in pool.asked] == ["http://a:1", *["http://b:2"] * 4]
    asking.pass_over("http://a:1")  # somebody else found out late, and is not followed
    assert asking.url == "http://b:2"


def test_one_that_hangs_does_not_use_up_all_the_time() -> None:
    """There is time left to ask another one."""
    clock = Clock()
    pool = FakePool(lambda asked: clock.taking(asked.timeout_s, LOST)(asked), ok(1))
    assert run(managers(pool, "http://a:1,http://b:2", clock=clock).ask("GET", "/x", seconds=10)) == 1
    assert [one.timeout_s for one in pool.asked] == pytest.approx([6.0, 2.4])


def test_what_must_not_be_asked_twice_is_asked_again_only_if_nothing_of_it_was_sent() -> None:
    pool = FakePool(AWAY, LATER, ok(1))
    assert run(managers(pool).ask("POST", "/x", repeatable=False)) == 1
    assert len(pool.asked) == 3
    assert pool.asked[0].timeout_s == 30.0, "it has all the time: it cannot be given up for another one"


@pytest.mark.parametrize("trouble", [LOST, no(504, "unknown_outcome"), no(500, "internal"), Response(502, {}, b"<")])
def test_whether_it_was_done_is_unknown_if_its_answer_is_lost(trouble: Said) -> None:
    pool = FakePool(trouble, ok(1))
    with pytest.raises(OutcomeUnknown, match="may have been done or not"):
        run(managers(pool).ask("POST", "/x", repeatable=False))
    assert len(pool.asked) == 1


@pytest.mark.parametrize(
    ("answer", "kind", "code"),
    [
        (no(403, "forbidden"), NotAllowed, "forbidden"),
        (no(404, "not_found"), TopicMissing, "not_found"),
        (no(404, "unknown_partition"), NotFound, "unknown_partition"),
        (no(409, "exists"), TopicExists, "exists"),
        (no(409, "unknown_member"), MemberGone, "unknown_member"),
        (no(409, "conflict"), Refused, "conflict"),
        (no(400, "bad_request"), Refused, "bad_request"),
        (Response(400, {}, b'{"status": "failure", "message": "no"}'), Refused, "unknown"),
    ],
)
def test_a_refusal_ends_it_and_says_why(answer: Response, kind: type[Refused], code: str) -> None:
    pool = FakePool(answer)
    with pytest.raises(kind, match=r"^no$") as caught:
        run(managers(pool).ask("GET", "/x"))
    assert caught.value.code == code
    assert len(pool.asked) == 1


def test_a_token_that_was_made_a_moment_ago_is_shown_again() -> None:
    """Not every manager has heard of it yet."""
    pool = FakePool(no(401, "unauthorized"), no(401, "unauthorized"), ok(1))
    assert run(managers(pool).ask("POST", "/x", {}, repeatable=False)) == 1


@pytest.mark.parametrize(("again_s", "asked"), [(None, 2), (0.0, 1)])
def test_a_token_that_is_not_valid_is_refused_after_a_moment_or_at_once(again_s: float | None, asked: int) -> None:
    clock = Clock()
    pool = FakePool(clock.taking(1.5, no(401, "unauthorized")), clock.taking(1.5, no(401, "unauthorized")))
    with pytest.raises(NotAllowed):
        run(managers(pool, again_s=again_s, clock=clock).ask("GET", "/x"))
    assert len(pool.asked) == asked


def test_a_refusal_keeps_its_details() -> None:
    pool = FakePool(no(400, "offset_out_of_range", first_offset=5, next_offset=9))
    with pytest.raises(OffsetOutOfRange) as caught:
        run(managers(pool).ask("GET", "/x"))
    assert (caught.value.first_offset, caught.value.next_offset) == (5, 9)


@pytest.mark.parametrize(
    ("trouble", "text"),
    [
        (AWAY, r"^no manager answers: cannot connect\. Is it running\? `flotilla up`"),
        (LATER, "^http://a:1 cannot help for now: the writer does not answer$"),
        (no(500, "internal", "a mistake"), "^http://a:1 answers with status 500: a mistake$"),
        (Response(503, {}, b""), "^http://a:1 answers with status 503$"),
    ],
)
def test_when_the_time_is_over_the_last_trouble_is_told(trouble: Said, text: str) -> None:
    clock = Clock()
    pool = FakePool(clock.taking(20.0, trouble))
    with pytest.raises(ServerUnreachable, match=text) as caught:
        run(managers(pool, clock=clock).ask("GET", "/x"))
    assert len(pool.asked) == 2
    assert caught.value.__cause__ is (trouble if isinstance(trouble, Disconnected) else None)


def test_who_does_not_wait_hears_at_once_when_all_were_asked() -> None:
    pool = FakePool(AWAY)
    with pytest.raises(ServerUnreachable, match=r"\(asked: http://a:1, http://b:2\)"):
        run(managers(pool, "http://a:1,http://b:2", again_s=0.0).ask("GET", "/x"))
    assert [(one.url, one.timeout_s) for one in pool.asked] == [("http://a:1", 30.0), ("http://b:2", 30.0)]


@pytest.mark.parametrize("answer", [Response(200, {}, b"<html>"), Response(404, {}, b"<html>"), Response(405, {}, b"")])
def test_what_is_no_manager_is_said_to_be_none(answer: Response) -> None:
    pool = FakePool(answer)
    with pytest.raises(ServerUnreachable, match=f"what answers at http://a:1 is no manager: status {answer.status}"):
        run(managers(pool).ask("GET", "/x"))
    assert len(pool.asked) == 1


def test_an_answer_of_another_shape_is_said_to_be_one() -> None:
    with pytest.raises(ServerUnreachable, match=r"not as expected: Object missing required field `id`"):
        read_as(TopicInfo, {"name": "x"})


# -- what is known ------------------------------------------------------------------------------------------------


def test_a_topic_is_asked_for_once_and_known_from_then_on() -> None:
    pool = FakePool(ok(METADATA))

    async def find() -> None:
        cluster = Cluster(managers(pool))
        assert cluster.topic("orders") is None
        found = await cluster.find("orders")
        assert found.partitions == (PartitionInfo(0, 1, ("one", "two"), "one"),)
        assert await cluster.find("orders") is found
        assert cluster.topic("orders") is found
        broker = BrokerInfo("one", "http://b:1", "r", True, True)
        assert (cluster.broker("one"), cluster.broker("two"), cluster.brokers) == (broker, None, [broker])

    run(find())
    assert pool.requests == ["GET /v1/metadata?topic=orders"]


def test_those_who_ask_at_the_same_time_share_an_answer() -> None:
    pool = FakePool(ok(METADATA))

    async def find() -> None:
        cluster = Cluster(managers(pool))
        given_up = asyncio.ensure_future(cluster.refresh("orders"))
        others = [asyncio.ensure_future(cluster.refresh("orders")) for _ in range(3)]
        await asyncio.sleep(0)
        given_up.cancel()  # which is no reason for the others to be
        assert len(set(await asyncio.gather(*others))) == 1
        assert len(pool.asked) == 1
        await cluster.refresh("orders")
        assert len(pool.asked) == 2

    run(find())


def test_a_topic_that_is_gone_is_forgotten() -> None:
    pool = FakePool(ok(METADATA), ok({**METADATA, "topics": [], "missing": ["orders"]}))

    async def find() -> None:
        cluster = Cluster(managers(pool))
        await cluster.find("orders")
        with pytest.raises(TopicMissing, match="there is no topic 'orders'"):
            await cluster.refresh("orders")
        assert cluster.topic("orders") is None

    run(find())


def test_what_somebody_did_to_a_topic_is_known_at_once() -> None:
    pool = FakePool(ok(METADATA))

    async def change() -> None:
        cluster = Cluster(managers(pool))
        grown = read_as(TopicInfo, {**ORDERS, "partitions": ORDERS["partitions"] * 2})
        cluster.learn_topic(grown)
        assert await cluster.find("orders") is grown
        assert not pool.asked
        cluster.forget_topic("orders")
        cluster.forget_topic("orders")
        assert len((await cluster.find("orders")).partitions) == 1

    run(change())


def test_a_name_cannot_ask_for_something_else() -> None:
    pool = FakePool(ok({**METADATA, "topics": []}))
    with pytest.raises(TopicMissing):
        run(Cluster(managers(pool)).find("a&topic=b/../é"))
    assert pool.requests == ["GET /v1/metadata?topic=a%26topic%3Db%2F..%2F%C3%A9"]


def test_what_is_known_can_be_compared_and_not_changed() -> None:
    topic = msgspec.convert(ORDERS, TopicInfo)
    assert topic == msgspec.convert(ORDERS, TopicInfo)
    with pytest.raises(AttributeError):
        topic.name = "other"  # type: ignore[misc]
