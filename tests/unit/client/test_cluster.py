"""Requests to managers with their retries, and the metadata cache."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import msgspec
import pytest

from flotilla.client.cluster import BrokerInfo, Cluster, ManagerClient, PartitionInfo, TopicInfo, read_as
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
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def taking(self, seconds: float, said: Said) -> Answering:
        """Delay a response."""

        def answer(_: Asked) -> Said:
            self.now += seconds
            return said

        return answer


def managers(
    pool: FakePool, url: str = "http://a:1", retry_s: float | None = None, clock: Clock | None = None
) -> ManagerClient:
    return ManagerClient(load_client(url, token="flt_x", environment={}), pool, clock or Clock(), retry_s)  # noqa: S106 - no secret


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


# -- calls --------------------------------------------------------------------------------------------------------


def test_call_sends_token_and_json_and_returns_json() -> None:
    pool = FakePool(ok({"well": [1]}))
    assert run(managers(pool).call("POST", "/v1/topics", {"name": "x"})) == {"well": [1]}
    (asked,) = pool.asked
    assert asked[:4] == ("http://a:1", "POST", "/v1/topics", {"name": "x"})
    assert asked.headers == {"content-type": "application/json", "authorization": "Bearer flt_x"}
    run(managers(pool).call("GET", "/v1/topics"))
    assert (pool.asked[-1].body, "content-type" in pool.asked[-1].headers) == (None, False)


@pytest.mark.parametrize("trouble", [AWAY, LOST, LATER, no(500, "internal"), no(429, "busy"), Response(502, {}, b"<")])
def test_call_retries_after_transient_errors(trouble: Said) -> None:
    pool = FakePool(trouble, trouble, ok(1))
    assert run(managers(pool).call("GET", "/x")) == 1
    assert len(pool.asked) == 3


def test_manager_without_response_is_tried_last() -> None:
    pool = FakePool(AWAY, ok(1), ok(2), LATER, ok(3))
    client = managers(pool, "http://a:1,http://b:2")
    assert [run(client.call("GET", "/x")) for _ in range(3)] == [1, 2, 3]
    assert [one.url for one in pool.asked] == ["http://a:1", *["http://b:2"] * 4]
    client.demote("http://a:1")  # a late report of another request has no effect
    assert client.url == "http://b:2"


def test_hanging_manager_leaves_time_for_another() -> None:
    clock = Clock()
    pool = FakePool(lambda asked: clock.taking(asked.timeout_s, LOST)(asked), ok(1))
    assert run(managers(pool, "http://a:1,http://b:2", clock=clock).call("GET", "/x", timeout_s=10)) == 1
    assert [one.timeout_s for one in pool.asked] == pytest.approx([6.0, 2.4])


def test_unrepeatable_call_is_retried_only_if_it_was_not_sent() -> None:
    pool = FakePool(AWAY, LATER, ok(1))
    assert run(managers(pool).call("POST", "/x", repeatable=False)) == 1
    assert len(pool.asked) == 3
    assert pool.asked[0].timeout_s == 30.0, "a single manager gets the whole timeout"


@pytest.mark.parametrize("trouble", [LOST, no(504, "unknown_outcome"), no(500, "internal"), Response(502, {}, b"<")])
def test_unrepeatable_call_with_lost_response_has_unknown_outcome(trouble: Said) -> None:
    pool = FakePool(trouble, ok(1))
    with pytest.raises(OutcomeUnknown, match="may have taken effect"):
        run(managers(pool).call("POST", "/x", repeatable=False))
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
def test_rejected_call_raises_the_exception_of_its_code(answer: Response, kind: type[Refused], code: str) -> None:
    pool = FakePool(answer)
    with pytest.raises(kind, match=r"^no$") as caught:
        run(managers(pool).call("GET", "/x"))
    assert caught.value.code == code
    assert len(pool.asked) == 1


def test_call_with_a_new_token_is_retried() -> None:
    """Managers may not know it yet."""
    pool = FakePool(no(401, "unauthorized"), no(401, "unauthorized"), ok(1))
    assert run(managers(pool).call("POST", "/x", {}, repeatable=False)) == 1


@pytest.mark.parametrize(("retry_s", "asked"), [(None, 2), (0.0, 1)])
def test_invalid_token_is_rejected_after_retries_or_at_once_without_retries(retry_s: float | None, asked: int) -> None:
    clock = Clock()
    pool = FakePool(clock.taking(1.5, no(401, "unauthorized")), clock.taking(1.5, no(401, "unauthorized")))
    with pytest.raises(NotAllowed):
        run(managers(pool, retry_s=retry_s, clock=clock).call("GET", "/x"))
    assert len(pool.asked) == asked


def test_rejection_keeps_its_details() -> None:
    pool = FakePool(no(400, "offset_out_of_range", first_offset=5, next_offset=9))
    with pytest.raises(OffsetOutOfRange) as caught:
        run(managers(pool).call("GET", "/x"))
    assert (caught.value.first_offset, caught.value.next_offset) == (5, 9)


@pytest.mark.parametrize(
    ("trouble", "text"),
    [
        (AWAY, r"^no manager responded: cannot connect\. Is it running\? `flotilla up`"),
        (LATER, "^http://a:1 is unavailable: the writer does not answer$"),
        (no(500, "internal", "a mistake"), "^http://a:1 responded with status 500: a mistake$"),
        (Response(503, {}, b""), "^http://a:1 responded with status 503$"),
    ],
)
def test_call_raises_the_last_error_after_the_deadline(trouble: Said, text: str) -> None:
    clock = Clock()
    pool = FakePool(clock.taking(20.0, trouble))
    with pytest.raises(ServerUnreachable, match=text) as caught:
        run(managers(pool, clock=clock).call("GET", "/x"))
    assert len(pool.asked) == 2
    assert caught.value.__cause__ is (trouble if isinstance(trouble, Disconnected) else None)


def test_call_without_retries_fails_after_all_managers_were_tried() -> None:
    pool = FakePool(AWAY)
    with pytest.raises(ServerUnreachable, match=r"\(asked: http://a:1, http://b:2\)"):
        run(managers(pool, "http://a:1,http://b:2", retry_s=0.0).call("GET", "/x"))
    assert [(one.url, one.timeout_s) for one in pool.asked] == [("http://a:1", 30.0), ("http://b:2", 30.0)]


@pytest.mark.parametrize("answer", [Response(200, {}, b"<html>"), Response(404, {}, b"<html>"), Response(405, {}, b"")])
def test_response_of_another_server_is_reported_as_not_a_manager(answer: Response) -> None:
    pool = FakePool(answer)
    with pytest.raises(ServerUnreachable, match=f"http://a:1 is not a manager: status {answer.status}"):
        run(managers(pool).call("GET", "/x"))
    assert len(pool.asked) == 1


def test_read_as_reports_a_response_of_unexpected_shape() -> None:
    with pytest.raises(
        ServerUnreachable, match=r"unexpected response of a manager: Object missing required field `id`"
    ):
        read_as(TopicInfo, {"name": "x"})


# -- what is known ------------------------------------------------------------------------------------------------


def test_topic_metadata_is_fetched_once_and_cached() -> None:
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


def test_concurrent_refreshes_share_one_request() -> None:
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


def test_deleted_topic_is_removed_from_the_cache() -> None:
    pool = FakePool(ok(METADATA), ok({**METADATA, "topics": [], "missing": ["orders"]}))

    async def find() -> None:
        cluster = Cluster(managers(pool))
        await cluster.find("orders")
        with pytest.raises(TopicMissing, match="topic 'orders' does not exist"):
            await cluster.refresh("orders")
        assert cluster.topic("orders") is None

    run(find())


def test_updated_and_forgotten_topics_change_the_cache() -> None:
    pool = FakePool(ok(METADATA))

    async def change() -> None:
        cluster = Cluster(managers(pool))
        grown = read_as(TopicInfo, {**ORDERS, "partitions": ORDERS["partitions"] * 2})
        cluster.update_topic(grown)
        assert await cluster.find("orders") is grown
        assert not pool.asked
        cluster.forget_topic("orders")
        cluster.forget_topic("orders")
        assert len((await cluster.find("orders")).partitions) == 1

    run(change())


def test_topic_name_is_quoted_in_the_metadata_query() -> None:
    pool = FakePool(ok({**METADATA, "topics": []}))
    with pytest.raises(TopicMissing):
        run(Cluster(managers(pool)).find("a&topic=b/../é"))
    assert pool.requests == ["GET /v1/metadata?topic=a%26topic%3Db%2F..%2F%C3%A9"]


def test_metadata_is_comparable_and_immutable() -> None:
    topic = msgspec.convert(ORDERS, TopicInfo)
    assert topic == msgspec.convert(ORDERS, TopicInfo)
    with pytest.raises(AttributeError):
        topic.name = "other"  # type: ignore[misc]
