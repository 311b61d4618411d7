"""The v1 API on real processes: metadata, topics and offsets."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from flotilla.records import encode
from support.cluster import wait_until
from support.fleet import Fleet


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with Fleet(Path(tmp_path_factory.mktemp("fleet"))) as fleet:
        yield fleet


def ok(response: httpx.Response) -> dict[str, Any]:
    found: dict[str, Any] = response.json()
    assert response.status_code == 200, found
    return found


def refused(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    found: dict[str, Any] = response.json()
    assert (response.status_code, found["code"]) == (status, code), found
    assert set(found) == {"code", "message", "details", "retryable"}
    return found


def append(fleet: Fleet, topic: str, partition: int, *values: bytes) -> int:
    batch = bytes(encode(values))
    response = fleet.client.post("/v1/append", params={"topic": topic, "partition": partition}, content=batch)
    return int(ok(response)["append_time_ms"])


def test_metadata_has_the_leaders_of_all_partitions(fleet: Fleet) -> None:
    """Leaders are hints, and correct here."""
    made = ok(fleet.client.post("/v1/topics", json={"name": "found", "partitions": 3}))
    answered = ok(fleet.client.get("/v1/metadata", params={"topic": ["found", "nowhere"]}))
    assert answered["missing"] == ["nowhere"]
    (topic,) = answered["topics"]
    assert (topic["name"], topic["id"], len(topic["partitions"])) == ("found", made["id"], 3)
    urls = {one["id"]: one["url"] for one in answered["brokers"]}
    assert set(urls.values()) == {broker.url for broker in fleet.brokers}
    for partition in topic["partitions"]:
        query = {"topic": f"id:{topic['id']}", "partition": partition["index"]}
        response = httpx.post(f"{urls[partition['leader']]}/v1/append", params=query, content=bytes(encode([b"m"])))
        assert response.status_code == 200, response.text
    everything = ok(fleet.client.get("/v1/metadata"))
    assert "found" in [one["name"] for one in everything["topics"]]
    assert everything["limits"]["batch_bytes_max"] == 8 << 20
    assert len(everything["cluster_id"]) == 32


def test_topics_are_created_described_configured_extended_and_deleted(fleet: Fleet) -> None:
    new = {"name": "life", "partitions": 1, "retention_ms": 1000}
    made = ok(fleet.client.post("/v1/topics", json=new))
    assert (made["retention_ms"], made["retention_bytes"]) == (1000, None)
    refused(fleet.client.post("/v1/topics", json=new), 409, "exists")
    assert ok(fleet.client.get("/v1/topics/life")) == made
    changed = ok(fleet.client.patch("/v1/topics/life", json={"retention_ms": None, "retention_bytes": 1 << 20}))
    assert (changed["retention_ms"], changed["retention_bytes"]) == (None, 1 << 20)

    def brokers_know() -> bool:
        found = [one for broker in fleet.brokers for one in broker.get("/v1/replicas")["replicas"]]
        mine = [one for one in found if one["topic"] == "life"]
        return bool(mine) and all((one["retention_ms"], one["retention_bytes"]) == (None, 1 << 20) for one in mine)

    wait_until("brokers to know the new retention", brokers_know)
    append(fleet, "life", 0, b"before")
    grown = ok(fleet.client.patch("/v1/topics/life", json={"partitions": 3}))
    assert [one["index"] for one in grown["partitions"]] == [0, 1, 2]
    assert (grown["retention_ms"], grown["retention_bytes"]) == (None, 1 << 20)
    assert grown["partitions"][0] == changed["partitions"][0], "existing partitions keep their replicas"
    append(fleet, "life", 2, b"after")
    refused(fleet.client.patch("/v1/topics/life", json={"partitions": 2}), 409, "conflict")
    refused(fleet.client.patch("/v1/topics/nowhere", json={"partitions": 2}), 404, "not_found")
    assert ok(fleet.client.delete("/v1/topics/life")) == {"status": "ok"}
    refused(fleet.client.get("/v1/topics/life"), 404, "not_found")
    refused(fleet.client.delete("/v1/topics/life"), 404, "not_found")


def test_recreated_topic_is_visible_at_once(fleet: Fleet) -> None:
    """A manager that forwarded a request to the writer knows its result when it responds."""
    for _ in range(10):
        ok(fleet.client.post("/v1/topics", json={"name": "phoenix", "partitions": 1, "replication": 1}))
        append(fleet, "phoenix", 0, b"m")
        ok(fleet.client.delete("/v1/topics/phoenix"))


def test_topic_accepts_batches_up_to_its_own_limit(fleet: Fleet) -> None:
    """On managers, on brokers and for single messages; all of them return the compression hint."""
    ok(fleet.client.post("/v1/topics", json={"name": "small", "batch_bytes_max": 2048, "compression": "zstd"}))
    (answered,) = ok(fleet.client.get("/v1/metadata", params={"topic": "small"}))["topics"]
    assert (answered["batch_bytes_max"], answered["compression"]) == (2048, "zstd")
    append(fleet, "small", 0, bytes(1900))
    urls = {one["id"]: one["url"] for one in ok(fleet.client.get("/v1/metadata"))["brokers"]}
    large = bytes(encode([bytes(2000)]))
    for url in (fleet.url, urls[answered["partitions"][0]["leader"]]):
        response = httpx.post(f"{url}/v1/append", params={"topic": "small", "partition": 0}, content=large)
        found = refused(response, 413, "too_large")
        assert found["message"] == f"the batch has {len(large)} bytes; the limit of topic 'small' is 2048"
        assert found["details"] == {"topic": "small", "bytes": len(large), "bytes_max": 2048}
    producer = fleet.producer("small")
    for more in ({}, {"sequence": 0}):
        message = {"topic": "small", "producer_id": producer, "partition_index": 0, "message": "x" * 2000, **more}
        response = fleet.client.post("/producer/produce", json=message)
        text = f"The message needs a batch of {len(large)} bytes; the limit of topic 'small' is 2048."
        assert (response.status_code, response.json()["message"]) == (413, text)
    assert ok(fleet.client.get("/v1/topics/small/offsets"))["partitions"][0]["next_offset"] == 1


def test_limit_and_compression_hint_of_a_topic_can_be_changed(fleet: Fleet) -> None:
    ok(fleet.client.post("/v1/topics", json={"name": "changing", "partitions": 1}))

    def brokers_know(limit: int | None) -> bool:
        found = [one for broker in fleet.brokers for one in broker.get("/v1/replicas")["replicas"]]
        return {one["batch_bytes_max"] for one in found if one["topic"] == "changing"} == {limit}

    assert brokers_know(None)
    changed = ok(fleet.client.patch("/v1/topics/changing", json={"batch_bytes_max": 1024, "compression": "none"}))
    assert (changed["batch_bytes_max"], changed["compression"]) == (1024, "none")
    wait_until("brokers to know the limit", lambda: brokers_know(1024))
    changed = ok(fleet.client.patch("/v1/topics/changing", json={"batch_bytes_max": None}))
    assert (changed["batch_bytes_max"], changed["compression"]) == (None, "none")
    wait_until("brokers to know that there is none", lambda: brokers_know(None))
    body = {"partitions": 1, "batch_bytes_max": 4096}
    ok(httpx.put(f"{fleet.writer.url}/v1/control/topics/changing", json=body, timeout=30))
    found = ok(fleet.client.get("/v1/topics/changing"))
    assert (found["batch_bytes_max"], found["compression"]) == (4096, "none"), "omitted settings are unchanged"
    fleet.create("people-too", batch_bytes_max=2048, compression="zstd")
    found = ok(fleet.client.get("/v1/topics/people-too"))
    assert (found["batch_bytes_max"], found["compression"]) == (2048, "zstd")


def test_consumer_reads_partitions_that_were_added_later(fleet: Fleet) -> None:
    fleet.create("growing", partitions=1)
    consumer, producer = fleet.consumer("growing"), fleet.producer("growing")
    ok(fleet.client.patch("/v1/topics/growing", json={"partitions": 2}))
    fleet.post("/producer/produce", topic="growing", producer_id=producer, message="new", partition_index=1)
    assert fleet.get("/consumer/consume", topic="growing", consumer_id=consumer)["message"] == "new"


def test_offsets_are_listed_by_partition_and_timestamp(fleet: Fleet) -> None:
    ok(fleet.client.post("/v1/topics", json={"name": "times", "partitions": 2}))
    append(fleet, "times", 0, b"a", b"b")
    time.sleep(0.01)  # so that the next append has a later time
    later = append(fleet, "times", 0, b"c")
    found = ok(fleet.client.get("/v1/topics/times/offsets"))["partitions"]
    assert found == [
        {"index": 0, "first_offset": 0, "next_offset": 3},
        {"index": 1, "first_offset": 0, "next_offset": 0},
    ]
    by_time = ok(fleet.client.get("/v1/topics/times/offsets", params={"timestamp_ms": later}))["partitions"]
    assert [one["offset"] for one in by_time] == [2, 0]
    refused(fleet.client.get("/v1/topics/nowhere/offsets"), 404, "not_found")


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/topics", {}),
        ("POST", "/v1/topics", {"name": "a b"}),
        ("POST", "/v1/topics", {"name": "n", "partitions": 0}),
        ("POST", "/v1/topics", {"name": "n", "partitions": 1001}),
        ("POST", "/v1/topics", {"name": "n", "replication": 8}),
        ("POST", "/v1/topics", {"name": "n", "retention_ms": -1}),
        ("POST", "/v1/topics", {"name": "n", "retention_ms": True}),
        ("POST", "/v1/topics", {"name": "n", "owner": "me"}),
        ("POST", "/v1/topics", {"name": "n", "batch_bytes_max": 1023}),
        ("POST", "/v1/topics", {"name": "n", "batch_bytes_max": (8 << 20) + 1}),
        ("POST", "/v1/topics", {"name": "n", "compression": "rar"}),
        ("PATCH", "/v1/topics/n", {"replication": 1}),
        ("GET", "/v1/topics/n/offsets?timestamp_ms=soon", None),
    ],
)
def test_invalid_input_is_rejected_in_the_same_form(fleet: Fleet, method: str, path: str, body: object) -> None:
    refused(fleet.client.request(method, path, json=body), 400, "bad_request")


def test_topic_with_an_owner_cannot_be_changed_by_others(fleet: Fleet) -> None:
    owner = "Topic default/owned"
    url = fleet.writer.url
    ok(httpx.put(f"{url}/v1/control/topics/owned", json={"partitions": 1, "owner": owner}, timeout=30))
    for response in (
        fleet.client.patch("/v1/topics/owned", json={"partitions": 2}),
        fleet.client.delete("/v1/topics/owned"),
    ):
        assert owner in refused(response, 409, "conflict")["message"]
    assert owner in fleet.client.delete("/topics/owned").json()["message"]
    assert ok(fleet.client.get("/v1/topics/owned"))["owner"] == owner


def test_unknown_paths_have_the_same_error_form(fleet: Fleet) -> None:
    refused(fleet.client.get("/v1/nowhere"), 404, "not_found")
    refused(fleet.client.put("/v1/append"), 405, "method_not_allowed")
    found = refused(fleet.client.put("/v1/topics/nowhere"), 405, "method_not_allowed")
    assert found["message"] == "'/v1/topics/nowhere': method not allowed, use DELETE or GET or PATCH"


def test_batches_are_accepted_and_returned_as_json(fleet: Fleet) -> None:
    ok(fleet.client.post("/v1/topics", json={"name": "json", "partitions": 1}))
    where: dict[str, str | int] = {"topic": "json", "partition": 0}
    records: list[dict[str, Any]] = [
        {"value": "one", "key": "k"},
        {"value_base64": "/w==", "headers": [{"name": "h", "value": "v"}]},
    ]
    assert ok(fleet.client.post("/v1/append", params=where, json={"records": records}))["base_offset"] == 0
    append(fleet, "json", 0, b"binary")
    accept = {"accept": "application/json"}
    found = ok(fleet.client.get("/v1/fetch", params={**where, "offset": 0}, headers=accept))
    assert (found["next_offset"], found["first_offset"], found["end_offset"]) == (3, 0, 3)
    plain = [{name: one[name] for name in one if name != "append_time_ms"} for one in found["records"]]
    assert plain == [
        {"offset": 0, "value": "one", "key": "k"},
        {"offset": 1, **records[1]},
        {"offset": 2, "value": "binary"},
    ]
    part = ok(fleet.client.get("/v1/fetch", params={**where, "offset": 1}, headers=accept))
    assert [one["offset"] for one in part["records"]] == [1, 2]
    nothing = ok(fleet.client.get("/v1/fetch", params={**where, "offset": 3}, headers=accept))
    assert (nothing["records"], nothing["next_offset"]) == ([], 3)
    refused(fleet.client.post("/v1/append", params=where, json={"records": [{}]}), 400, "bad_batch")
