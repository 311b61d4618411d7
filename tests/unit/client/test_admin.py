"""Administration of topics, brokers, groups and tokens: requests and results."""

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import pytest

from flotilla.client.admin import (
    AsyncBrokers,
    AsyncGroups,
    AsyncTokens,
    AsyncTopics,
    BrokerPartition,
    Brokers,
    GroupReset,
    Groups,
    PartitionDescription,
    PartitionOffsets,
    Tokens,
    Topics,
)
from flotilla.client.cluster import Cluster, ManagerClient
from flotilla.client.config import load_client
from flotilla.client.errors import (
    ConfigInvalid,
    NotFound,
    OutcomeUnknown,
    ServerUnreachable,
    TopicExists,
    TopicMissing,
)
from flotilla.client.runner import Runner
from flotilla.net import Disconnected
from support.fakemanager import FakePool, no, ok

T = TypeVar("T")

LOST = Disconnected("the connection ended", sent=True)
THEN = datetime(2026, 1, 31, tzinfo=UTC)
THEN_MS = 1_769_817_600_000
ORDERS: dict[str, Any] = {
    "name": "orders",
    "id": "a" * 32,
    "partitions": [
        {"index": 0, "epoch": 1, "replicas": ["one", "two"], "leader": "one"},
        {"index": 1, "epoch": 1, "replicas": ["two", "gone"], "leader": None},
    ],
    "replication": 2,
    "retention_ms": 1000,
}
BROKERS = [
    {"id": "one", "url": "http://b:1", "rack": "r", "active": True, "cordoned": False},
    {"id": "two", "url": "http://b:2", "rack": None, "active": False, "cordoned": False},
    {"id": "twos", "url": "http://b:3", "rack": None, "active": True, "cordoned": True},
]
METADATA = {"version": 7, "cluster_id": "c", "topics": [ORDERS], "brokers": BROKERS}
END: dict[str, Any] = {"to": "end"}
TOKEN: dict[str, Any] = {
    "id": "00112233445566ff",
    "name": "shop",
    "grants": ["produce:orders*"],
    "bytes_per_s": None,
    "requests_per_s": 5,
    "in_flight_bytes": None,
    "created_ms": 1,
    "expires_ms": None,
}


def manager_client(pool: FakePool) -> ManagerClient:
    return ManagerClient(load_client("http://a:1", environment={}), pool, lambda: 0.0)


def topics(pool: FakePool) -> AsyncTopics:
    return AsyncTopics(manager_client(pool), Cluster(manager_client(pool)))


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


# -- topics -------------------------------------------------------------------------------------------------------


def test_create_topic_sends_only_the_given_settings() -> None:
    pool = FakePool(ok(ORDERS))
    assert run(topics(pool).create("orders")).id == "a" * 32
    default = {"name": "orders", "partitions": 2, "replication": 3}
    others = {"batch_bytes_max": None, "compression": None}
    assert pool.asked[0][1:4] == ("POST", "/v1/topics", {**default, **others})
    run(topics(pool).create("orders", partitions=4, replication=1, retention_ms=None, compression="zstd"))
    given = {"partitions": 4, "replication": 1, "retention_ms": None, "compression": "zstd"}
    assert pool.asked[1].body == {**default, **others, **given}


def test_create_topic_without_response_has_unknown_outcome() -> None:
    pool = FakePool(LOST)
    with pytest.raises(OutcomeUnknown):
        run(topics(pool).create("orders"))


def test_create_topic_with_exist_ok_retries_and_returns_the_existing_topic() -> None:
    """Whether it existed before, or the first response was lost: it exists now."""
    pool = FakePool(LOST, no(409, "exists"), ok(ORDERS))
    assert run(topics(pool).create("orders", exist_ok=True)).name == "orders"
    assert pool.requests == ["POST /v1/topics", "POST /v1/topics", "GET /v1/topics/orders"]
    with pytest.raises(TopicExists):
        run(topics(FakePool(no(409, "exists"))).create("orders"))


def test_topics_are_listed_and_described() -> None:
    pool = FakePool(ok({"topics": [ORDERS]}), ok(ORDERS))
    (listed,) = run(topics(pool).list())
    assert listed == run(topics(pool).describe("orders"))
    assert (listed.retention_ms, listed.retention_bytes, len(listed.partitions)) == (1000, None, 2)


def test_topic_partitions_have_offsets_and_size_from_leaders() -> None:
    body = {"partition_index": 0, "leader": "one", "replicas": ["one"], "size": 3, "size_bytes": 99}
    pool = FakePool(ok(ORDERS), ok({"partitions": [{**body, "first_offset": 2, "next_offset": 5}]}))
    found = run(topics(pool).partitions("orders"))
    assert found == (PartitionDescription(0, "one", ("one",), 3, 99, 2, 5),)
    assert pool.requests == ["GET /v1/topics/orders", "GET /topics/orders/partitions"]


def test_configure_topic_sends_only_the_given_settings() -> None:
    pool = FakePool(ok(ORDERS))
    run(topics(pool).configure("orders", retention_ms=5, compression=None))
    run(topics(pool).grow("orders", 8))
    assert [one[1:4] for one in pool.asked] == [
        ("PATCH", "/v1/topics/orders", {"retention_ms": 5, "compression": None}),
        ("PATCH", "/v1/topics/orders", {"partitions": 8}),
    ]


def test_topic_changes_update_the_metadata_cache_at_once() -> None:
    pool = FakePool(ok(ORDERS))

    async def change() -> None:
        cluster = Cluster(manager_client(pool))
        mine = AsyncTopics(manager_client(pool), cluster)
        grown = await mine.grow("orders", 2)
        assert cluster.topic("orders") is grown
        await mine.delete("orders")
        assert cluster.topic("orders") is None

    run(change())


def test_delete_topic_is_repeated_only_with_missing_ok() -> None:
    with pytest.raises(OutcomeUnknown):
        run(topics(FakePool(LOST)).delete("orders"))
    with pytest.raises(TopicMissing):
        run(topics(FakePool(no(404, "not_found"))).delete("orders"))
    pool = FakePool(LOST, no(404, "not_found"))
    run(topics(pool).delete("orders", missing_ok=True))
    assert pool.requests == ["DELETE /v1/topics/orders"] * 2


def test_topic_offsets_accept_a_time() -> None:
    body = {"index": 0, "first_offset": 1, "next_offset": 9}
    pool = FakePool(ok({"partitions": [body]}), ok({"partitions": [{**body, "offset": 4}]}))
    assert run(topics(pool).offsets("orders")) == (PartitionOffsets(0, 1, 9, None),)
    assert run(topics(pool).offsets("orders", at=THEN)) == (PartitionOffsets(0, 1, 9, 4),)
    run(topics(pool).offsets("orders", at=THEN_MS))
    at = f"GET /v1/topics/orders/offsets?timestamp_ms={THEN_MS}"
    assert pool.requests == ["GET /v1/topics/orders/offsets", at, at]


def test_delete_records_sends_offsets_and_is_repeated() -> None:
    pool = FakePool(LOST, ok({"partitions": [{"partition": 1, "first_offset": 5, "next_offset": 5}]}))
    assert run(topics(pool).delete_records("orders", {0: 3, 1: "latest"})) == (PartitionOffsets(1, 5, 5),)
    cuts = {"partitions": [{"partition": 0, "offset": 3}, {"partition": 1, "offset": "latest"}]}
    assert [one.body for one in pool.asked] == [cuts, cuts], "repeating the request changes nothing"


# -- brokers ------------------------------------------------------------------------------------------------------


def test_broker_list_includes_replicas_and_leaders() -> None:
    one, two, twos = run(AsyncBrokers(manager_client(FakePool(ok(METADATA)))).list())
    assert (one.id, one.leads, one.partitions) == ("one", 1, (BrokerPartition("orders", 0, True),))
    held = (BrokerPartition("orders", 0, False), BrokerPartition("orders", 1, False))
    assert (two.active, two.leads, two.partitions) == (False, 0, held)
    assert (twos.cordoned, twos.partitions) == (True, ())


@pytest.mark.parametrize(("given", "id_"), [("o", "one"), ("two", "two"), ("twos", "twos"), ("http://b:2", "two")])
def test_describe_broker_accepts_id_prefix_and_url(given: str, id_: str) -> None:
    assert run(AsyncBrokers(manager_client(FakePool(ok(METADATA)))).describe(given)).id == id_


@pytest.mark.parametrize(
    ("given", "text"), [("tw", "'tw' matches 2 brokers; use the id of one"), ("x", "broker 'x' does not exist")]
)
def test_describe_broker_rejects_unknown_and_ambiguous_names(given: str, text: str) -> None:
    with pytest.raises(NotFound, match=text):
        run(AsyncBrokers(manager_client(FakePool(ok(METADATA)))).describe(given))


# -- groups -------------------------------------------------------------------------------------------------------


def groups(pool: FakePool) -> AsyncGroups:
    return AsyncGroups(manager_client(pool))


def test_group_list_reads_all_pages() -> None:
    one = {"name": "a", "state": "empty", "strategy": None, "generation": 0, "members": 0, "topics": ["orders"]}
    pool = FakePool(ok({"groups": [one], "next": "a"}), ok({"groups": [{**one, "name": "b"}], "next": None}))
    assert [found.name for found in run(groups(pool).list())] == ["a", "b"]
    assert pool.requests == ["GET /v1/groups?limit=1000&after=", "GET /v1/groups?limit=1000&after=a"]


def test_group_lag_is_the_sum_over_partitions_if_all_are_known() -> None:
    partition = {"topic": "orders", "partition": 0, "owner": "me", "committed": 1, "note": None, "first_offset": 0}
    member = {"member_id": "me", "topics": ["orders"], "timeout_ms": 1000, "generation": 3, "assigned": []}
    body = {"name": "g", "state": "stable", "strategy": "sticky", "generation": 3, "members": [member]}
    known = [{**partition, "next_offset": 9, "lag": 8}, {**partition, "partition": 1, "next_offset": 3, "lag": 2}]
    unavailable = {**partition, "partition": 2, "first_offset": None, "next_offset": None, "lag": None}
    found = run(groups(FakePool(ok({**body, "partitions": known}))).describe("g"))
    assert (found.lag, found.members[0].id, found.partitions[0].owner) == (10, "me", "me")
    assert run(groups(FakePool(ok({**body, "partitions": [*known, unavailable]}))).describe("g")).lag is None
    assert run(groups(FakePool(ok({**body, "partitions": []}))).describe("g")).lag == 0


def test_group_offsets_are_returned() -> None:
    one = {"topic": "orders", "partition": 0, "offset": 5, "note": "half-way", "committed_ms": 1}
    pool = FakePool(ok({"offsets": [one]}))
    assert run(groups(pool).offsets("g"))[0].note == "half-way"
    run(groups(pool).offsets("g", "orders"))
    assert pool.requests == ["GET /v1/groups/g/offsets", "GET /v1/groups/g/offsets?topic=orders"]


@pytest.mark.parametrize(
    ("options", "body"),
    [
        ({"to": "earliest"}, {"to": {"earliest": True}}),
        ({"to": THEN}, {"to": {"timestamp_ms": THEN_MS}}),
        ({"offset": 0}, {"to": {"offset": 0}}),
        ({"shift": -3, "dry_run": True}, {"to": {"shift": -3}, "dry_run": True}),
        ({"to": "latest", "topics": ["a"], "force": True}, {"to": {"latest": True}, "topics": ["a"], "force": True}),
        (
            {"to": "latest", "partitions": [("a", 1)]},
            {"to": {"latest": True}, "partitions": [{"topic": "a", "partition": 1}]},
        ),
    ],
)
def test_reset_group_sends_its_target(options: dict[str, Any], body: dict[str, Any]) -> None:
    moved = {"topic": "a", "partition": 1, "old_offset": None, "new_offset": 5}
    pool = FakePool(ok({"dry_run": False, "partitions": [moved]}))
    assert run(groups(pool).reset("g", **options)) == (GroupReset("a", 1, None, 5),)
    assert pool.asked[0][1:4] == ("POST", "/v1/groups/g/reset", {"force": False, "dry_run": False, **body})


def test_reset_group_by_shift_is_not_repeated() -> None:
    """A shift whose response is lost may have taken effect; every other reset is safe to repeat."""
    with pytest.raises(OutcomeUnknown):
        run(groups(FakePool(LOST)).reset("g", shift=-1))
    moved = ok({"partitions": []})
    harmless: list[dict[str, Any]] = [{"to": "latest"}, {"offset": 5}, {"shift": -1, "dry_run": True}]
    for options in harmless:
        pool = FakePool(LOST, moved)
        run(groups(pool).reset("g", **options))
        assert len(pool.asked) == 2


def test_delete_group_accepts_force_and_missing_ok() -> None:
    pool = FakePool(ok({"status": "ok"}), ok({"status": "ok"}), no(404, "not_found"))
    run(groups(pool).delete("g"))
    run(groups(pool).delete("g", force=True))
    run(groups(pool).delete("g", missing_ok=True))
    assert [one.target for one in pool.asked] == [f"/v1/groups/g?force={force}" for force in ("false", "true", "false")]


def test_missing_group_raises_not_found_and_not_topic_missing() -> None:
    acts: list[Callable[[AsyncGroups], Coroutine[Any, Any, Any]]] = [
        lambda it: it.describe("g"),
        lambda it: it.reset("g", to="latest"),
        lambda it: it.delete("g"),
    ]
    for act in acts:
        for details in ({"resource": "group"}, {"resource": "path"}, {}):  # managers of 0.2 do not say what is missing
            with pytest.raises(NotFound, match="any words") as caught:
                run(act(groups(FakePool(no(404, "not_found", "any words", **details)))))
            assert not isinstance(caught.value, TopicMissing)
    with pytest.raises(TopicMissing, match="any words"):
        run(groups(FakePool(no(404, "not_found", "any words", resource="topic"))).offsets("g", "x"))


# -- tokens -------------------------------------------------------------------------------------------------------


def test_create_token_is_not_repeated_and_repr_hides_the_secret() -> None:
    pool = FakePool(ok({"token": "flt_0_hush", **TOKEN}))
    made = run(AsyncTokens(manager_client(pool)).create("shop", ["produce:orders*"], expires_in=timedelta(days=1)))
    assert (made.token, made.id) == ("flt_0_hush", TOKEN["id"])
    assert "hush" not in repr(made)
    assert "hush" not in str(made)
    limits = {"bytes_per_s": None, "requests_per_s": None, "in_flight_bytes": None}
    wanted = {"name": "shop", "grants": ["produce:orders*"], "expires_in_s": 86_400, **limits}
    assert pool.asked[0][1:4] == ("POST", "/v1/tokens", wanted)
    with pytest.raises(OutcomeUnknown):
        run(AsyncTokens(manager_client(FakePool(LOST))).create("shop", ["admin"]))


def test_tokens_are_listed_and_revoked() -> None:
    pool = FakePool(ok({"tokens": [TOKEN]}), ok({"status": "ok"}), no(404, "not_found", "there is no token x"))
    tokens = AsyncTokens(manager_client(pool))
    (listed,) = run(tokens.list())
    assert (listed.grants, listed.requests_per_s) == (("produce:orders*",), 5)
    run(tokens.revoke(listed.id))
    assert pool.requests[1] == "DELETE /v1/tokens/00112233445566ff"
    with pytest.raises(NotFound, match="there is no token x") as caught:
        run(tokens.revoke("x"))
    assert not isinstance(caught.value, TopicMissing)


# -- all of them --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("act", "text"),
    [
        (lambda pool: topics(pool).describe(""), "name must be the name of a topic"),
        (lambda pool: topics(pool).delete(".."), "name must be the name of a topic"),
        (lambda pool: topics(pool).offsets("a", at=datetime(2026, 1, 1)), "at must be a datetime with a time zone"),  # noqa: DTZ001 - the point
        (lambda pool: topics(pool).offsets("a", at=-1), "at must be 1970 or later"),
        (lambda pool: topics(pool).delete_records("a", {}), "before must be given for at least one partition"),
        (lambda pool: groups(pool).delete("/"), "name must be the name of a group"),
        (lambda pool: groups(pool).reset("g"), "exactly one of to, offset and shift must be given"),
        (
            lambda pool: groups(pool).reset("g", to="latest", shift=1),
            "exactly one of to, offset and shift must be given",
        ),
        (lambda pool: groups(pool).reset("g", **END), "to must be 'earliest', 'latest' or a datetime"),
        (lambda pool: groups(pool).reset("g", to="latest", topics="orders"), "topics must be a list of names"),
        (lambda pool: AsyncTokens(manager_client(pool)).create("x", "admin"), "grants must be a list"),
        (lambda pool: AsyncTokens(manager_client(pool)).revoke(""), "token_id must be the id of a token"),
        (lambda pool: AsyncBrokers(manager_client(pool)).describe(""), "broker must be a name, an id or a URL"),
    ],
)
def test_invalid_argument_raises_without_a_request(
    act: Callable[[FakePool], Coroutine[Any, Any, Any]], text: str
) -> None:
    """An empty name would make a path that is about everything."""
    pool = FakePool(ok({}))
    with pytest.raises(ConfigInvalid, match=text):
        run(act(pool))
    assert not pool.asked


def test_resource_name_is_quoted_in_paths() -> None:
    pool = FakePool(ok(ORDERS))
    run(topics(pool).describe("a/../b?c#d"))
    assert pool.requests == ["GET /v1/topics/a%2F..%2Fb%3Fc%23d"]


def test_response_of_unexpected_shape_raises_server_unreachable() -> None:
    pool = FakePool(ok({"topics": 5}))
    with pytest.raises(ServerUnreachable, match=r"unexpected response of a manager: .*topics"):
        run(topics(pool).list())


@pytest.mark.parametrize(
    ("face", "work"),
    [(Topics, AsyncTopics), (Brokers, AsyncBrokers), (Groups, AsyncGroups), (Tokens, AsyncTokens)],
)
def test_blocking_class_has_all_methods_of_the_asynchronous_one(face: type, work: type) -> None:
    """With the same parameters and the same docstring."""

    def of(one: type) -> dict[str, Any]:
        return {name: value for name, value in vars(one).items() if not name.startswith("_")}

    assert set(of(face)) == set(of(work))
    for name, method in of(face).items():
        twin = of(work)[name]
        assert (inspect.signature(method), method.__doc__) == (inspect.signature(twin), twin.__doc__)
        assert inspect.iscoroutinefunction(twin)
        assert not inspect.iscoroutinefunction(method)


def test_blocking_class_returns_results_and_raises_errors() -> None:
    pool = FakePool(ok({"topics": [ORDERS]}), no(404, "not_found", "topic 'x' does not exist"))
    runner = Runner()
    try:
        blocking = Topics(runner, topics(pool))
        assert [one.name for one in blocking.list()] == ["orders"]
        with pytest.raises(TopicMissing, match="topic 'x' does not exist"):
            blocking.delete("x")
    finally:
        runner.close()
