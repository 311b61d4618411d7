"""The simple API on real processes, with exact messages."""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from flotilla.records import decode, encode, split
from support.cluster import wait_until
from support.fleet import Fleet, refused, succeeded

LONG = "x" * 201


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with Fleet(Path(tmp_path_factory.mktemp("fleet"))) as fleet:
        yield fleet


def ask(fleet: Fleet, method: str, path: str, **params: Any) -> httpx.Response:  # noqa: ANN401 - any JSON
    return fleet.client.request(method, path, json=params)


# -- topics -------------------------------------------------------------------------------------------------------


def test_topic_is_created_once_and_listed_in_order_of_creation(fleet: Fleet) -> None:
    before = fleet.get("/topics")["topics"]
    created = fleet.post("/topics", name="zebra", number_of_partitions=3)
    assert created == {"status": "success", "message": "Topic 'zebra' created successfully."}
    fleet.create("ant")
    refused(ask(fleet, "POST", "/topics", name="zebra"), "Topic already exists.")
    assert fleet.get("/topics")["topics"] == [*before, "zebra", "ant"]


def test_topic_has_two_partitions_with_three_replicas_by_default(fleet: Fleet) -> None:
    fleet.post("/topics", name="plain")
    found = fleet.get("/topics/plain/partitions")["partitions"]
    assert [one["partition_index"] for one in found] == [0, 1]
    assert all(len(set(one["replicas"])) == 3 for one in found)
    for one in found:
        assert one["leader"] in one["replicas"]
        assert (one["size"], one["first_offset"], one["next_offset"]) == (0, 0, 0)
    assert found[0]["leader"] != found[1]["leader"], "leaders are spread"


def test_replication_is_limited_to_the_number_of_brokers(fleet: Fleet) -> None:
    fleet.post("/topics", name="wide", replication=5, number_of_partitions=1)
    (only,) = fleet.get("/topics/wide/partitions")["partitions"]
    assert len(only["replicas"]) == 3
    fleet.post("/topics", name="narrow", replication=1, number_of_partitions=1)
    (only,) = fleet.get("/topics/narrow/partitions")["partitions"]
    assert len(only["replicas"]) == 1


def test_partitions_have_their_sizes(fleet: Fleet) -> None:
    fleet.create("sized")
    producer = fleet.producer("sized")
    for _ in range(3):
        fleet.post("/producer/produce", topic="sized", producer_id=producer, message="m", partition_index=1)
    sizes = [(one["size"], one["next_offset"]) for one in fleet.get("/topics/sized/partitions")["partitions"]]
    assert sizes == [(0, 0), (3, 3)]


def test_recreated_topic_is_empty_and_has_no_registrations(fleet: Fleet) -> None:
    """A topic that is created again with the same name has neither messages nor registrations of the old one."""
    fleet.create("again")
    producer, consumer = fleet.producer("again"), fleet.consumer("again")
    fleet.post("/producer/produce", topic="again", producer_id=producer, message="old")
    deleted = succeeded(fleet.client.delete("/topics/again"))
    assert deleted["message"] == "Topic 'again' deleted successfully."
    refused(fleet.client.delete("/topics/again"), "Topic does not exist.")
    refused(fleet.client.get("/topics/again/partitions"), "Topic does not exist.")
    fleet.create("again")
    produce = {"topic": "again", "producer_id": producer, "message": "new"}
    refused(ask(fleet, "POST", "/producer/produce", **produce), "Producer not registered with topic.")
    refused(
        ask(fleet, "GET", "/consumer/consume", topic="again", consumer_id=consumer),
        "Consumer not registered with topic.",
    )
    assert fleet.get("/size", topic="again", consumer_id=fleet.consumer("again"))["size"] == 0


@pytest.mark.parametrize("name", ["", "-a", ".a", "a b", "a/b", "ä", "a\n", LONG])
def test_invalid_name_is_rejected_with_the_rule(fleet: Fleet, name: str) -> None:
    response = ask(fleet, "POST", "/topics", name=name)
    assert response.status_code == 400
    assert response.json()["status"] == "failure"
    assert "[A-Za-z0-9][A-Za-z0-9._-]{0,199}" in response.json()["message"]


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({}, "'name' is missing."),
        ({"name": "n", "number_of_partitions": 0}, "number_of_partitions"),
        ({"name": "n", "number_of_partitions": 1001}, "number_of_partitions"),
        ({"name": "n", "number_of_partitions": "many"}, "number_of_partitions"),
        ({"name": "n", "replication": 0}, "replication"),
        ({"name": "n", "partitons": 3}, "'partitons' is not a parameter of this call"),
        ({"name": 5}, "'name' is invalid"),
    ],
)
def test_invalid_parameter_is_rejected_and_named(fleet: Fleet, params: dict[str, Any], words: str) -> None:
    response = fleet.client.post("/topics", json=params)
    assert response.status_code == 400
    assert words in response.json()["message"]
    assert "n" not in fleet.get("/topics")["topics"]


# -- producing ----------------------------------------------------------------------------------------------------


def test_producer_registration_creates_the_topic(fleet: Fleet) -> None:
    producer = fleet.producer("made-by-producer")
    assert "made-by-producer" in fleet.get("/topics")["topics"]
    assert fleet.producer("made-by-producer") != producer


def test_messages_go_round_robin_from_partition_0_on_each_manager(tmp_path: Path) -> None:
    with Fleet(tmp_path, brokers=1, readers=1) as small:
        small.create("turns", partitions=3)
        producer = small.producer("turns")
        sent = [
            small.post("/producer/produce", topic="turns", producer_id=producer, message=str(at)) for at in range(7)
        ]
        assert [one["partition_index"] for one in sent] == [0, 1, 2, 0, 1, 2, 0]
        assert [one["offset"] for one in sent] == [0, 0, 0, 1, 1, 1, 2]


def test_produce_checks_run_in_the_documented_order(fleet: Fleet) -> None:
    """The topic exists, the partition index is valid, the client is registered: the first failure is returned."""
    fleet.create("checked")
    other = fleet.producer("checked-other")
    base = {"producer_id": "nobody", "message": "m"}
    nowhere = ask(fleet, "POST", "/producer/produce", topic="nowhere", partition_index=9, **base)
    refused(nowhere, "Topic does not exist.")
    for index in (2, -1, 10**30):
        response = ask(fleet, "POST", "/producer/produce", topic="checked", partition_index=index, **base)
        refused(response, "Invalid Partition Number.")
    refused(ask(fleet, "POST", "/producer/produce", topic="checked", **base), "Producer not registered with topic.")
    stranger = ask(fleet, "POST", "/producer/produce", topic="checked", producer_id=other, message="m")
    refused(stranger, "Producer not registered with topic.")


def test_message_is_text_or_base64(fleet: Fleet) -> None:
    fleet.create("bytes", partitions=1)
    producer, consumer = fleet.producer("bytes"), fleet.consumer("bytes")
    binary = bytes(range(256))
    texts = ["", "plain", "zwölf \U0001f6a2 \n\t\x00", "x" * (1 << 20)]
    for text in texts:
        fleet.post("/producer/produce", topic="bytes", producer_id=producer, message=text)
    encoded = base64.b64encode(binary).decode()
    fleet.post("/producer/produce", topic="bytes", producer_id=producer, message_base64=encoded)
    for text in texts:
        assert fleet.get("/consumer/consume", topic="bytes", consumer_id=consumer)["message"] == text
    last = fleet.get("/consumer/consume", topic="bytes", consumer_id=consumer)
    assert last["message_base64"] == encoded
    assert "message" not in last


@pytest.mark.parametrize(
    ("extra", "status", "words"),
    [
        ({}, 400, "'message' or as 'message_base64'"),
        ({"message": "a", "message_base64": "YQ=="}, 400, "'message' or as 'message_base64'"),
        ({"message_base64": "not base64!"}, 400, "not base64"),
        ({"message": 5}, 400, "'message' is invalid"),
        ({"message": "x" * ((1 << 20) + 1)}, 413, "1048576 is the limit"),
        ({"message": "x" * (4 << 20)}, 413, "the limit"),
        ({"message": "a", "sequence": 0}, 400, "'partition_index'"),
        ({"message": "a", "sequence": -1, "partition_index": 0}, 400, "'sequence' is invalid"),
    ],
)
def test_invalid_message_is_rejected(fleet: Fleet, extra: dict[str, Any], status: int, words: str) -> None:
    producer = fleet.producer("refusing")
    response = ask(fleet, "POST", "/producer/produce", topic="refusing", producer_id=producer, **extra)
    assert response.status_code == status
    assert response.json()["status"] == "failure"
    assert words in response.json()["message"]


def test_retry_with_a_sequence_is_stored_once(fleet: Fleet) -> None:
    """A message with a sequence can be sent again without a duplicate."""
    fleet.create("retried", partitions=1)
    producer = fleet.producer("retried")
    send = {"topic": "retried", "producer_id": producer, "partition_index": 0}
    first = fleet.post("/producer/produce", **send, message="one", sequence=0)
    assert fleet.post("/producer/produce", **send, message="one", sequence=0) == first
    assert fleet.post("/producer/produce", **send, message="two", sequence=1)["offset"] == first["offset"] + 1
    for message, sequence in (("other", 1), ("gap", 9)):
        response = ask(fleet, "POST", "/producer/produce", **send, message=message, sequence=sequence)
        assert response.status_code == 400
        assert response.json()["status"] == "failure"


# -- consuming ----------------------------------------------------------------------------------------------------


def test_consume_searches_all_partitions_for_a_message(fleet: Fleet) -> None:
    fleet.create("rounds", partitions=3)
    producer, consumer = fleet.producer("rounds"), fleet.consumer("rounds")
    for index, message in ((2, "a"), (2, "b"), (0, "c")):
        fleet.post("/producer/produce", topic="rounds", producer_id=producer, message=message, partition_index=index)
    found = [fleet.get("/consumer/consume", topic="rounds", consumer_id=consumer) for _ in range(3)]
    assert [(one["message"], one["partition_index"], one["offset"]) for one in found] == [
        ("c", 0, 0),
        ("a", 2, 0),
        ("b", 2, 1),
    ]
    refused(
        fleet.client.get("/consumer/consume", params={"topic": "rounds", "consumer_id": consumer}),
        "No logs available to consume.",
    )


def test_each_consumer_gets_every_message(fleet: Fleet) -> None:
    fleet.create("copies", partitions=1)
    producer, consumers = fleet.producer("copies"), [fleet.consumer("copies") for _ in range(2)]
    for at in range(3):
        fleet.post("/producer/produce", topic="copies", producer_id=producer, message=str(at))
    for consumer in consumers:
        found = [fleet.get("/consumer/consume", topic="copies", consumer_id=consumer)["message"] for _ in range(3)]
        assert found == ["0", "1", "2"]


def test_consumer_can_start_at_latest(fleet: Fleet) -> None:
    fleet.create("late", partitions=2)
    producer = fleet.producer("late")
    for at in range(4):
        fleet.post("/producer/produce", topic="late", producer_id=producer, message=str(at), partition_index=at % 2)
    late, early = fleet.consumer("late", start="latest"), fleet.consumer("late", start="earliest")
    assert fleet.get("/size", topic="late", consumer_id=late)["size"] == 0
    assert fleet.get("/size", topic="late", consumer_id=early)["size"] == 4
    fleet.post("/producer/produce", topic="late", producer_id=producer, message="new")
    assert fleet.get("/consumer/consume", topic="late", consumer_id=late)["message"] == "new"


def test_consumer_of_one_partition_gets_no_others(fleet: Fleet) -> None:
    fleet.create("one-only", partitions=2)
    producer, consumer = fleet.producer("one-only"), fleet.consumer("one-only", partition_index=1)
    for index in (0, 1):
        fleet.post(
            "/producer/produce", topic="one-only", producer_id=producer, message=str(index), partition_index=index
        )
    assert fleet.get("/size", topic="one-only", consumer_id=consumer) == {
        "status": "success",
        "sizes": [{"partition_number": 1, "size": 1}],
        "size": 1,
    }
    assert fleet.get("/consumer/consume", topic="one-only", consumer_id=consumer)["message"] == "1"
    params = {"topic": "one-only", "consumer_id": consumer}
    refused(fleet.client.get("/consumer/consume", params=params), "No logs available to consume.")
    refused(
        fleet.client.get("/consumer/consume", params={**params, "partition_index": 0}),
        "Consumer not registered with topic.",
    )


@pytest.mark.parametrize("path", ["/consumer/consume", "/size"])
def test_consume_checks_run_in_the_documented_order(fleet: Fleet, path: str) -> None:
    """The topic exists, the partition index is valid, the client is registered: the first failure is returned."""
    fleet.producer("looked-at")
    refused(ask(fleet, "GET", path, topic="nowhere", consumer_id="nobody", partition_index=9), "Topic does not exist.")
    for index in (2, -1):
        response = ask(fleet, "GET", path, topic="looked-at", consumer_id="nobody", partition_index=index)
        refused(response, "Invalid partition number.")
    refused(ask(fleet, "GET", path, topic="looked-at", consumer_id="nobody"), "Consumer not registered with topic.")


def test_consumer_registration_checks_topic_and_partition(fleet: Fleet) -> None:
    fleet.producer("registered-at")
    refused(ask(fleet, "POST", "/consumer/register", topic="nowhere"), "Topic does not exist.")
    refused(
        ask(fleet, "POST", "/consumer/register", topic="registered-at", partition_index=2), "Invalid partition number."
    )
    response = ask(fleet, "POST", "/consumer/register", topic="registered-at", start="middle")
    assert response.status_code == 400
    assert "'start' is invalid" in response.json()["message"]


def test_size_counts_unread_messages_of_each_partition(fleet: Fleet) -> None:
    fleet.create("counted", partitions=2)
    producer, consumer = fleet.producer("counted"), fleet.consumer("counted")
    for index in (0, 0, 0, 1):
        fleet.post("/producer/produce", topic="counted", producer_id=producer, message="m", partition_index=index)
    fleet.get("/consumer/consume", topic="counted", consumer_id=consumer, partition_index=0)
    found = fleet.get("/size", topic="counted", consumer_id=consumer)
    assert found["sizes"] == [{"partition_number": 0, "size": 2}, {"partition_number": 1, "size": 1}]
    assert found["size"] == 3
    one = fleet.get("/size", topic="counted", consumer_id=consumer, partition_index=1)
    assert (one["sizes"], one["size"]) == ([{"partition_number": 1, "size": 1}], 1)


# -- how parameters come ------------------------------------------------------------------------------------------


def test_parameters_are_accepted_in_query_and_body_under_all_their_names(fleet: Fleet) -> None:
    fleet.create("named", partitions=2)
    producer, consumer = fleet.producer("named"), fleet.consumer("named")
    for name in ("partition_index", "partition_id", "partition_number"):
        body = {"topic_name": "named", "producer_id": producer, "message": name, name: 1}
        assert succeeded(fleet.client.post("/producer/produce", json=body))["partition_index"] == 1
    asked = [
        fleet.client.get("/consumer/consume", params={"topic": "named", "consumer_id": consumer}),
        fleet.client.request("GET", "/consumer/consume", json={"topic_name": "named", "consumer_id": consumer}),
        fleet.client.request(
            "GET",
            "/consumer/consume",
            params={"topic_name": "named"},
            json={"consumer_id": consumer, "partition_id": 1},
        ),
    ]
    assert [succeeded(one)["message"] for one in asked] == ["partition_index", "partition_id", "partition_number"]
    assert all(one.headers["cache-control"] == "no-store" for one in asked)


@pytest.mark.parametrize("body", [b"{", b"[]", b"5", b"\xff\xfe", b'{"topic": "a", "topic_name": "b"}', b"[" * 5000])
def test_unreadable_body_is_rejected(fleet: Fleet, body: bytes) -> None:
    response = fleet.client.post("/producer/produce", content=body)
    assert response.status_code == 400
    assert response.json()["status"] == "failure"


def test_repeated_parameter_is_rejected(fleet: Fleet) -> None:
    assert fleet.client.get("/size?topic=a&topic=b&consumer_id=c").status_code == 400


def test_unknown_paths_and_methods_are_named(fleet: Fleet) -> None:
    response = fleet.client.get("/nowhere")
    refused(response, "Unknown path '/nowhere'; see /docs.", 404)
    assert fleet.client.get("/topics/a/b/c").status_code in {404, 405}
    response = fleet.client.put("/topics")
    refused(response, "'/topics': method not allowed, use POST or GET.", 405)


# -- the system ---------------------------------------------------------------------------------------------------


def test_cluster_overview_lists_all_parts(fleet: Fleet) -> None:
    assert fleet.get("/")["version"]
    brokers = fleet.get("/brokers")["brokers"]
    assert {one["broker_host"] for one in brokers} == {f"127.0.0.1:{one.port}" for one in fleet.brokers}
    assert {one["status"] for one in brokers} == {"active"}

    def managers() -> bool:
        found = fleet.get("/managers")["managers"]
        return sorted((one["name"], one["role"], one["status"]) for one in found) == [
            ("reader-0", "reader", "active"),
            ("reader-1", "reader", "active"),
            ("writer", "writer", "active"),
        ]

    wait_until("all managers to show", managers)


def test_heartbeats_are_accepted_from_registered_clients_only(fleet: Fleet) -> None:
    producer, consumer = fleet.producer("beating"), fleet.consumer("beating")
    fleet.post("/producer/heartbeat", producer_id=producer)
    fleet.post("/consumer/heartbeat", consumer_id=consumer)
    refused(ask(fleet, "POST", "/producer/heartbeat", producer_id=consumer), "Producer not registered with topic.")
    refused(ask(fleet, "POST", "/consumer/heartbeat", consumer_id="x"), "Consumer not registered with topic.")


def test_silent_clients_are_listed_as_inactive(tmp_path: Path) -> None:
    with Fleet(tmp_path, brokers=1, readers=1, manager_flags=["--client-silence-s", "2"]) as small:
        small.create("silent")
        producer, consumer = small.producer("silent"), small.consumer("silent")

        def status() -> tuple[str, str]:
            (one,), (two,) = small.get("/producers")["producers"], small.get("/consumers")["consumers"]
            assert (one["producer_id"], two["consumer_id"]) == (producer, consumer)
            return one["status"], two["status"]

        assert status() == ("active", "active")
        wait_until("both to be inactive", lambda: status() == ("inactive", "inactive"))
        small.post("/producer/produce", topic="silent", producer_id=producer, message="m")
        small.post("/consumer/heartbeat", consumer_id=consumer)
        wait_until("both to be active again", lambda: status() == ("active", "active"))


def test_silent_manager_is_listed_as_inactive(tmp_path: Path) -> None:
    with Fleet(tmp_path, brokers=1, readers=2) as small:

        def status() -> dict[str, str]:
            return {one["name"]: one["status"] for one in small.get("/managers")["managers"]}

        everybody = {"writer": "active", "reader-0": "active", "reader-1": "active"}
        wait_until("all managers to show", lambda: status() == everybody)
        small.readers[1].kill()
        wait_until("one to be inactive", lambda: status() == {**everybody, "reader-1": "inactive"})
        small.readers[1].start()
        wait_until("it to be active again", lambda: status() == everybody)


def test_every_server_has_metrics_and_health(fleet: Fleet) -> None:
    for url in (fleet.url, fleet.writer.url, *(broker.url for broker in fleet.brokers)):
        assert httpx.get(f"{url}/healthz").json()["status"] == "alive"
        assert httpx.get(f"{url}/readyz").json()["status"] == "ready"
        assert "flotilla_" in httpx.get(f"{url}/metrics").text


def test_request_id_is_passed_through_manager_and_broker(tmp_path: Path) -> None:
    debug = ["--log-level", "debug"]
    with Fleet(tmp_path, brokers=1, readers=1, manager_flags=debug, broker_flags=debug) as small:
        small.create("followed", partitions=1)
        producer = small.producer("followed")
        send = {"topic": "followed", "producer_id": producer, "message": "m"}
        for id_, extra in (("alone-1", {}), ("sequenced-2", {"partition_index": 0, "sequence": 0})):
            response = small.client.post("/producer/produce", json={**send, **extra}, headers={"x-request-id": id_})
            assert succeeded(response)
            assert response.headers["x-request-id"] == id_
            for log in (small.readers[0].log, small.brokers[0].log):
                wait_until("the id to be logged", lambda log=log, id_=id_: f'"request_id":"{id_}"' in log())  # type: ignore[misc]
        response = small.client.post("/topics", json={"name": "passed-on"}, headers={"x-request-id": "on-3"})
        assert response.headers["x-request-id"] == "on-3"
        wait_until("the writer to log it", lambda: '"request_id":"on-3"' in small.writer.log())


def test_several_batches_go_through_a_manager_in_one_request_in_order(fleet: Fleet) -> None:
    fleet.create("several", partitions=2)
    producer = bytes(range(16))

    def batch(*values: bytes, sequence: int) -> bytes:
        return bytes(encode(values, producer_id=producer, base_sequence=sequence))

    appends = [
        ["several", 0, batch(b"a", b"b", sequence=0)],
        ["several", 1, batch(b"x", sequence=0)],
        ["several", 0, batch(b"c", sequence=2)],
        ["several", 7, batch(b"y", sequence=0)],
        ["several", 0, batch(b"gap", sequence=9)],
    ]
    response = fleet.client.post(
        "/v1/append",
        content=msgspec.msgpack.encode(appends),
        headers={"content-type": "application/vnd.flotilla.appends"},
    )
    assert response.status_code == 200
    results = response.json()["results"]
    assert [one["status"] for one in results] == ["ok", "ok", "ok", "failed", "failed"]
    assert [one.get("base_offset") for one in results] == [0, 0, 2, None, None]
    assert [one["error"]["code"] for one in results[3:]] == ["unknown_partition", "sequence_gap"]
    fetched = fleet.client.get("/v1/fetch", params={"topic": "several", "partition": 0, "offset": 0})
    assert [value for part in split(fetched.content) for value in decode(part).values] == [b"a", b"b", b"c"]
    assert fetched.headers["flotilla-next-offset"] == "3"
