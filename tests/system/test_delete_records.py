"""Deleted records on real processes: invisible for every reader at once, on all replicas, also after kills.

Brokers wait for one another's votes as short as that works here, so that a killed leader costs about a second.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from flotilla.records import decode, encode, split
from support.cluster import BrokerProcess, Cluster, wait_until
from support.fleet import Fleet, ManagerProcess

QUICK = ("--heartbeat-s", "0.1", "--election-s-min", "0.5", "--election-s-max", "1.0")
ANN = b"A" * 16


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with Fleet(Path(tmp_path_factory.mktemp("fleet")), broker_flags=QUICK) as fleet:
        yield fleet


@pytest.fixture(autouse=True)
def all_alive(fleet: Fleet) -> None:
    """Restart processes that a test has stopped."""
    fleet.start()
    fleet.wait_ready()


def ok(response: httpx.Response) -> dict[str, Any]:
    found: dict[str, Any] = response.json()
    assert response.status_code == 200, found
    return found


def refused(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    found: dict[str, Any] = response.json()
    assert (response.status_code, found["code"]) == (status, code), found
    return found


def append(fleet: Fleet, topic: str, count: int, partition: int = 0, **options: Any) -> int:  # noqa: ANN401 - as encode
    """Append one batch of numbered records; return its offset."""
    batch = bytes(encode([b"record %d" % at for at in range(count)], **options))
    response = fleet.client.post("/v1/append", params={"topic": topic, "partition": partition}, content=batch)
    return int(ok(response)["base_offset"])


def ask(fleet: Fleet, topic: str, *cuts: tuple[int, object], by: ManagerProcess | None = None) -> httpx.Response:
    body = {"partitions": [{"partition": partition, "offset": offset} for partition, offset in cuts]}
    url = fleet.url if by is None else by.own_url
    return httpx.post(f"{url}/v1/topics/{topic}/delete-records", json=body, timeout=40)


def delete(fleet: Fleet, topic: str, offset: object, by: ManagerProcess | None = None) -> tuple[int, int]:
    """Delete records of partition 0; return its first and next offset."""
    (found,) = ok(ask(fleet, topic, (0, offset), by=by))["partitions"]
    assert found["partition"] == 0
    return found["first_offset"], found["next_offset"]


def fetch(url: str, topic: str, offset: object, **options: Any) -> httpx.Response:  # noqa: ANN401 - any parameter
    query = {"topic": topic, "partition": 0, "offset": offset, **options}
    return httpx.get(f"{url}/v1/fetch", params=query, headers={"accept": "application/json"}, timeout=40)


def leader(fleet: Fleet, topic: str) -> BrokerProcess:
    def found() -> BrokerProcess | None:
        (partition, *_) = fleet.get(f"/topics/{topic}/partitions")["partitions"]
        return next((one for one in fleet.brokers if one.is_running and one.id == partition["leader"]), None)

    broker = wait_until("a leader", found)
    assert broker is not None
    return broker


def begins(fleet: Fleet, topic: str) -> set[int]:
    """Return the first offset of each replica of partition 0."""
    found = [one for broker in fleet.brokers if broker.is_running for one in broker.get("/v1/replicas")["replicas"]]
    return {one["first_offset"] for one in found if (one["topic"], one["partition"]) == (topic, 0)}


# -- what readers see --------------------------------------------------------------------------------------------------


def test_no_reader_sees_a_deleted_record(fleet: Fleet) -> None:
    """Deleted up to the middle of a batch: fetch, lookup, tail, consume and size start there."""
    fleet.create("seen", partitions=1)
    old = fleet.consumer("seen")
    assert append(fleet, "seen", 10) == 0
    assert append(fleet, "seen", 10) == 10
    assert delete(fleet, "seen", 4) == (4, 20)

    for below in (0, 3):
        gone = refused(fetch(fleet.url, "seen", below), 400, "offset_out_of_range")
        assert gone["details"] == {"first_offset": 4, "next_offset": 20}
    for offset in (4, "earliest"):
        answered = ok(fetch(fleet.url, "seen", offset))
        assert [one["offset"] for one in answered["records"]] == list(range(4, 20))
        assert answered["first_offset"] == 4
    query: dict[str, str | int] = {"topic": "seen", "partition": 0, "offset": 4}
    raw = httpx.get(f"{leader(fleet, 'seen').url}/v1/fetch", params=query)
    assert [decode(part).header.base_offset for part in split(raw.content)] == [0, 10], "batches are whole"
    offsets = ok(fleet.client.get("/v1/topics/seen/offsets", params={"timestamp_ms": 0}))["partitions"]
    assert offsets == [{"index": 0, "first_offset": 4, "next_offset": 20, "offset": 4}]
    (partition,) = fleet.get("/topics/seen/partitions")["partitions"]
    assert (partition["size"], partition["first_offset"], partition["next_offset"]) == (16, 4, 20)
    for consumer in (old, fleet.consumer("seen")):
        assert fleet.get("/size", topic="seen", consumer_id=consumer)["size"] == 16
        assert fleet.get("/consumer/consume", topic="seen", consumer_id=consumer)["offset"] == 4
    with httpx.stream("GET", f"{fleet.url}/v1/tail?topic=seen&offset=earliest", timeout=40) as response:
        first = next(line for line in response.iter_lines() if line.startswith("data: "))
    assert json.loads(first.removeprefix("data: "))["offset"] == 4


def test_managers_do_not_serve_deleted_records_from_their_cache(fleet: Fleet) -> None:
    fleet.create("kept", partitions=1)
    append(fleet, "kept", 20)
    consumers = {manager: fleet.consumer("kept") for manager in fleet.managers}

    def consume(manager: ManagerProcess) -> int:
        query = {"topic": "kept", "consumer_id": consumers[manager]}
        return int(ok(httpx.get(f"{manager.own_url}/consumer/consume", params=query, timeout=40))["offset"])

    assert {consume(manager) for manager in fleet.managers} == {0}
    delete(fleet, "kept", 15, by=fleet.readers[0])
    assert {consume(manager) for manager in fleet.managers} == {15}


# -- what can be asked for ---------------------------------------------------------------------------------------------


def test_first_offset_never_decreases_and_deletion_is_idempotent(fleet: Fleet) -> None:
    fleet.create("again", partitions=1)
    append(fleet, "again", 10)
    for manager in fleet.managers:  # any of them
        assert delete(fleet, "again", 0, by=manager) == (0, 10)
    for manager in fleet.managers:
        assert delete(fleet, "again", 7, by=manager) == (7, 10)
    assert delete(fleet, "again", 3) == (7, 10)


def test_deletion_up_to_latest_empties_a_partition_and_offsets_continue(fleet: Fleet) -> None:
    fleet.create("empty", partitions=2)
    append(fleet, "empty", 10)
    append(fleet, "empty", 3, partition=1)
    found = ok(ask(fleet, "empty", (1, "latest"), (0, "latest")))
    assert found == {
        "topic": "empty",
        "partitions": [
            {"partition": 1, "first_offset": 3, "next_offset": 3},
            {"partition": 0, "first_offset": 10, "next_offset": 10},
        ],
    }
    assert ok(fetch(fleet.url, "empty", "earliest"))["records"] == []
    refused(
        fleet.client.get("/v1/fetch", params={"topic": "empty", "partition": 0, "offset": 9}),
        400,
        "offset_out_of_range",
    )
    assert delete(fleet, "empty", 10) == (10, 10)
    assert append(fleet, "empty", 2) == 10
    assert [one["offset"] for one in ok(fetch(fleet.url, "empty", "earliest"))["records"]] == [10, 11]


def test_invalid_deletion_changes_nothing(fleet: Fleet) -> None:
    """Guarantee 7: invalid input deletes nothing, also not in other partitions of the request."""
    fleet.create("careful", partitions=2)
    append(fleet, "careful", 10)
    append(fleet, "careful", 10, partition=1)
    beyond = refused(ask(fleet, "careful", (0, 5), (1, 11)), 400, "offset_out_of_range")
    assert beyond["details"] == {"partition": 1, "first_offset": 0, "next_offset": 10}
    refused(ask(fleet, "careful", (0, 5), (2, 5)), 404, "unknown_partition")
    assert "more than once" in refused(ask(fleet, "careful", (0, 5), (0, 6)), 400, "bad_request")["message"]
    for offset in (-1, 1 << 63, "earliest", "5", None, 1.5, True):
        refused(ask(fleet, "careful", (0, 5), (1, offset)), 400, "bad_request")
    for body in ("{}", '{"partitions": []}', '{"partitions": [{"partition": 0}]}', "nonsense"):
        response = fleet.client.post("/v1/topics/careful/delete-records", content=body)
        refused(response, 400, "bad_request")
    refused(ask(fleet, "nowhere", (0, 5)), 404, "not_found")
    assert begins(fleet, "careful") == {0}
    found = ok(fleet.client.get("/v1/topics/careful/offsets"))["partitions"]
    assert [one["first_offset"] for one in found] == [0, 0]


def test_broker_rejects_invalid_deletions_and_names_the_leader(fleet: Fleet) -> None:
    fleet.create("direct", partitions=1)
    append(fleet, "direct", 10)
    first = leader(fleet, "direct")
    query: dict[str, str | int] = {"topic": "direct", "partition": 0, "offset": 5}
    for broker in fleet.brokers:
        if broker is not first:
            answer = refused(broker.request("POST", "/v1/delete-records", params=query), 421, "not_leader")
            assert answer["details"]["leader"]["id"] == first.id
    refused(first.request("POST", "/v1/delete-records", params={**query, "offset": 11}), 400, "offset_out_of_range")
    refused(first.request("POST", "/v1/delete-records", params={**query, "offset": "soon"}), 400, "bad_request")
    refused(first.request("POST", "/v1/delete-records", params={**query, "partition": 9}), 404, "unknown_partition")
    answered = ok(first.request("POST", "/v1/delete-records", params=query))
    assert answered == {"status": "ok", "first_offset": 5, "next_offset": 10}


def test_retry_of_a_deleted_batch_is_recognised(fleet: Fleet) -> None:
    """Guarantee 3: it is not appended again, and its producer continues."""
    fleet.create("retried", partitions=1)
    assert append(fleet, "retried", 10, producer_id=ANN, base_sequence=0) == 0
    assert delete(fleet, "retried", "latest") == (10, 10)
    assert append(fleet, "retried", 10, producer_id=ANN, base_sequence=0) == 0
    assert append(fleet, "retried", 5, producer_id=ANN, base_sequence=10) == 10
    assert [one["offset"] for one in ok(fetch(fleet.url, "retried", "earliest"))["records"]] == list(range(10, 15))


# -- whatever is killed ------------------------------------------------------------------------------------------------


def test_deletion_survives_a_kill_of_the_leader(fleet: Fleet) -> None:
    fleet.create("led", partitions=1)
    append(fleet, "led", 10)
    append(fleet, "led", 10)
    first = leader(fleet, "led")
    query: dict[str, str | int] = {"topic": "led", "partition": 0, "offset": 14}
    ok(first.request("POST", "/v1/delete-records", params=query))
    first.kill()
    answered = ok(fetch(fleet.url, "led", "earliest"))
    assert [one["offset"] for one in answered["records"]] == list(range(14, 20))
    refused(fetch(fleet.url, "led", 13), 400, "offset_out_of_range")
    first.start()
    first.wait_alive()
    wait_until("all replicas to begin there", lambda: begins(fleet, "led") == {14})


def test_next_leader_completes_a_deletion(fleet: Fleet) -> None:
    fleet.create("next", partitions=1)
    append(fleet, "next", 10)
    leader(fleet, "next").kill()
    assert delete(fleet, "next", 6) == (6, 10)


def test_deletion_survives_a_kill_of_all_brokers(fleet: Fleet) -> None:
    fleet.create("all", partitions=1)
    append(fleet, "all", 10)
    assert append(fleet, "all", 10) == 10
    query: dict[str, str | int] = {"topic": "all", "partition": 0, "offset": 14}
    ok(leader(fleet, "all").request("POST", "/v1/delete-records", params=query))
    for broker in fleet.brokers:
        broker.kill()
    for broker in fleet.brokers:
        broker.start()
    fleet.wait_ready()
    answered = ok(fetch(fleet.url, "all", "earliest"))
    assert [one["offset"] for one in answered["records"]] == list(range(14, 20))
    wait_until("all replicas to begin there", lambda: begins(fleet, "all") == {14})


def test_broker_that_was_down_gets_the_first_offset_of_the_others(fleet: Fleet) -> None:
    """The entries it needs are trimmed, so it gets a snapshot, which starts within a batch."""
    fleet.create("away", partitions=1)
    append(fleet, "away", 10)
    wait_until("all replicas", lambda: begins(fleet, "away") == {0})
    down = next(broker for broker in fleet.brokers if broker is not leader(fleet, "away"))
    down.kill()
    for _ in range(4):
        append(fleet, "away", 10)
    assert delete(fleet, "away", 34) == (34, 50)
    down.start()
    down.wait_alive()
    wait_until("all replicas to begin there", lambda: begins(fleet, "away") == {34})
    assert any(
        "snapshot transfer started" in broker.log() and f"follower={down.id}" in broker.log()
        for broker in fleet.brokers
    )

    def answered() -> list[int]:
        response = fetch(down.url, "away", 34, replica="any")
        return (
            [one.offset for part in split(response.content) for one in decode(part) if one.offset >= 34]
            if response.status_code == 200
            else []
        )

    wait_until("the rest to arrive", lambda: answered() == list(range(34, 50)))
    response = fetch(down.url, "away", 33, replica="any")
    refused(response, 400, "offset_out_of_range")


def test_records_can_be_deleted_on_a_full_disk_if_that_frees_space(tmp_path: Path) -> None:
    """Small steps within a batch free no space, and must not use up the reserve."""
    flags = (*QUICK, "--segment-bytes", "20MiB", "--log-bytes-max", "120MiB")
    with Cluster(tmp_path, 1, flags) as cluster:
        cluster.create("full")
        broker = cluster.leader()
        query: dict[str, str | int] = {"topic": "full", "partition": 0}

        def store(*values: bytes) -> httpx.Response:
            return broker.request("POST", "/v1/append", params=query, content=bytes(encode(values)), timeout=40)

        def cut(offset: int | str) -> httpx.Response:
            return broker.request("POST", "/v1/delete-records", params={**query, "offset": offset})

        ok(store(*[b"a"] * 100))
        for size in (7 << 20, 512 << 10, 16 << 10, 256):
            while (response := store(bytes(size))).status_code == 200:
                continue
            refused(response, 503, "disk_full")
        steps = [cut(offset) for offset in range(1, 20)]  # the first ones may fit into what is left of a segment
        refused(steps[-1], 503, "disk_full")
        answered = ok(cut("latest"))
        assert answered["first_offset"] == answered["next_offset"] > 100
        wait_until("room for more", lambda: store(bytes(7 << 20)).status_code == 200)
