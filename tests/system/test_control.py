"""The control API on real processes: requests of the operator and of brokers, through any manager."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.cluster import free_port, wait_until
from support.fleet import Fleet, ManagerProcess, refused, succeeded

BEHIND = 5
OWNER = "topics.flotilla.dev/default/owned"
ID = "0" * 31 + "1"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with Fleet(tmp_path_factory.mktemp("control")) as made:
        yield made


def state(fleet: Fleet) -> dict[str, Any]:
    response = httpx.get(f"{fleet.url}/v1/control/state", timeout=30)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def put(fleet: Fleet, name: str, **spec: Any) -> httpx.Response:  # noqa: ANN401 - any JSON
    return httpx.put(f"{fleet.url}/v1/control/topics/{name}", json=spec, timeout=60)


def delete(fleet: Fleet, name: str, owner: str = "") -> httpx.Response:
    return httpx.delete(f"{fleet.url}/v1/control/topics/{name}", params={"owner": owner}, timeout=60)


def heartbeat_of(fleet: Fleet, at: int = 0) -> dict[str, Any]:
    """Return the heartbeat of a broker."""
    answered = fleet.brokers[at].get("/v1/broker")
    held = fleet.brokers[at].get("/v1/replicas")
    del answered["connected"]
    return {**answered, **held}


def send(fleet: Fleet, heartbeat: object) -> httpx.Response:
    body = heartbeat if isinstance(heartbeat, bytes) else json.dumps(heartbeat).encode()
    return httpx.post(f"{fleet.url}/v1/control/heartbeat", content=body, timeout=60)


def test_state_has_one_version_that_grows_with_every_change(fleet: Fleet) -> None:
    before = state(fleet)
    assert state(fleet)["version"] == before["version"]
    assert put(fleet, "versioned").status_code == 200
    wait_until("the leaders to be reported", lambda: leaders(fleet, "versioned") == [1, 1])
    after = state(fleet)
    assert after["version"] > before["version"]
    assert after["cluster_id"] == before["cluster_id"]
    topic = next(one for one in after["topics"] if one["name"] == "versioned")
    assert [len(one["members"]) for one in topic["partitions"]] == [3, 3]
    assert {one["id"] for one in after["brokers"]} == {broker.id for broker in fleet.brokers}
    delete(fleet, "versioned")


def leaders(fleet: Fleet, name: str) -> list[int]:
    """Return the number of leaders of each partition that brokers reported."""
    found = [0, 0]
    for report in state(fleet)["reports"].values():
        for replica in report["replicas"]:
            if replica["topic"] == name and replica["leads"]:
                found[replica["partition"]] += 1
    return found


def test_put_topic_is_idempotent_and_adds_partitions_under_load(fleet: Fleet) -> None:
    """Records stay where they are, and the new partitions accept records at once."""
    first = put(fleet, "grown", partitions=2, owner=OWNER).json()
    assert (first["state"], first["owner"], len(first["partitions"])) == ("ready", OWNER, 2)
    version = state(fleet)["version"]
    again = put(fleet, "grown", partitions=2, owner=OWNER)
    assert (again.status_code, again.json()["id"]) == (200, first["id"])
    assert state(fleet)["version"] == version
    producer, consumer = fleet.producer("grown"), fleet.consumer("grown")
    fleet.post("/producer/produce", topic="grown", producer_id=producer, message="old", partition_index=1)
    grown = put(fleet, "grown", partitions=5, owner=OWNER).json()
    assert grown["partitions"][:2] == first["partitions"]
    for index in range(2, 5):
        done = fleet.post(
            "/producer/produce", topic="grown", producer_id=producer, message=f"{index}", partition_index=index
        )
        assert done["offset"] == 0
    found = {fleet.get("/consumer/consume", topic="grown", consumer_id=consumer)["message"] for _ in range(4)}
    assert found == {"old", "2", "3", "4"}
    fewer = put(fleet, "grown", partitions=3, owner=OWNER)
    assert (fewer.status_code, fewer.json()["code"]) == (409, "conflict")
    assert delete(fleet, "grown", OWNER).status_code == 200


def test_http_deletion_of_a_managed_topic_is_rejected_with_its_resource(fleet: Fleet) -> None:
    """A topic that a resource owns rejects HTTP deletion and names the resource."""
    assert put(fleet, "owned", owner=OWNER).status_code == 200
    text = f"Topic 'owned' is owned by {OWNER}; change or delete the owner instead."
    refused(fleet.client.delete("/topics/owned"), text)
    refused(fleet.client.post("/topics", json={"name": "owned"}), "Topic already exists.")
    for response in (
        delete(fleet, "owned"),
        delete(fleet, "owned", "somebody/else"),
        put(fleet, "owned", partitions=3),
        put(fleet, "owned", partitions=3, owner="somebody/else"),
    ):
        assert (response.status_code, response.json()["message"]) == (409, text)
    assert "owned" in fleet.get("/topics")["topics"]
    assert delete(fleet, "owned", OWNER).status_code == 200
    gone = delete(fleet, "owned", OWNER)
    assert (gone.status_code, gone.json()["code"]) == (404, "not_found")


def test_unmanaged_topic_can_be_adopted(fleet: Fleet) -> None:
    fleet.create("adopted")
    adopted = put(fleet, "adopted", owner=OWNER, retention_ms=60_000)
    assert (adopted.json()["owner"], adopted.json()["retention_ms"]) == (OWNER, 60_000)

    def retention() -> set[int]:
        replicas = [one for broker in fleet.brokers for one in broker.get("/v1/replicas")["replicas"]]
        return {one["retention_ms"] for one in replicas if one["topic"] == "adopted"}

    wait_until("brokers to know the retention", lambda: retention() == {60_000})
    assert delete(fleet, "adopted", OWNER).status_code == 200


def test_only_the_owner_can_release_a_topic(fleet: Fleet) -> None:
    made = put(fleet, "released", owner=OWNER).json()
    url = f"{fleet.url}/v1/control/topics/released/owner"
    assert httpx.delete(url, params={"owner": "somebody/else"}, timeout=60).status_code == 409
    assert httpx.delete(url, timeout=60).status_code == 400, "the request must name its owner"
    for _ in range(2):
        assert httpx.delete(url, params={"owner": OWNER}, timeout=60).status_code == 200
    (free,) = [one for one in state(fleet)["topics"] if one["name"] == "released"]
    assert (free["owner"], free["id"]) == (None, made["id"])
    assert fleet.client.delete("/topics/released").status_code == 200
    assert httpx.delete(url, params={"owner": OWNER}, timeout=60).status_code == 404


def test_recreated_topic_is_not_deleted_by_mistake(fleet: Fleet) -> None:
    """Guarantee 7: a deletion with the id of another topic deletes nothing."""
    made = put(fleet, "again", owner=OWNER).json()
    url = f"{fleet.url}/v1/control/topics/again"
    other = httpx.delete(url, params={"owner": OWNER, "topic_id": "0" * 32}, timeout=60)
    assert (other.status_code, other.json()["code"]) == (409, "conflict")
    assert httpx.delete(url, params={"owner": OWNER, "topic_id": "x"}, timeout=60).status_code == 400
    assert "again" in fleet.get("/topics")["topics"]
    assert httpx.delete(url, params={"owner": OWNER, "topic_id": made["id"]}, timeout=60).status_code == 200


@pytest.mark.parametrize(
    "spec",
    [
        {"partitions": 0},
        {"partitions": 1001},
        {"partitions": "x"},
        {"replication": 0},
        {"replication": 8},
        {"retention_ms": -1},
        {"owner": "a\0b"},
        {"owner": "x" * 501},
        {"color": "red"},
    ],
)
def test_invalid_topic_is_rejected_and_not_created(fleet: Fleet, spec: dict[str, object]) -> None:
    response = put(fleet, "impossible", **spec)
    assert 400 <= response.status_code < 500, response.text
    assert "impossible" not in fleet.get("/topics")["topics"]


def test_operator_sets_racks_and_cordons_brokers(fleet: Fleet) -> None:
    ids = [broker.id for broker in fleet.brokers]
    url = f"{fleet.url}/v1/control/brokers"
    for at, id_ in enumerate(ids):
        assert httpx.put(f"{url}/{id_}", json={"rack": f"r{at % 2}"}, timeout=30).json()["rack"] == f"r{at % 2}"
    cordoned = httpx.put(f"{url}/{ids[0]}", json={"cordoned": True}, timeout=30).json()
    assert (cordoned["cordoned"], cordoned["rack"]) == (True, "r0")
    response = fleet.client.post("/topics", json={"name": "wide"})
    assert (response.status_code, "cordoned" in response.json()["message"]) == (503, True)
    succeeded(fleet.client.post("/topics", json={"name": "narrow", "replication": 2}))
    members = [set(one["replicas"]) for one in fleet.get("/topics/narrow/partitions")["partitions"]]
    assert members == [set(ids[1:])] * 2
    assert httpx.delete(f"{url}/{ids[1]}", timeout=30).status_code == 409
    assert httpx.delete(f"{url}/{ID}", timeout=30).status_code == 404
    assert httpx.put(f"{url}/{ID}", json={}, timeout=30).status_code == 404
    for bad in ({"rack": "a\0"}, {"rack": "x" * 254}, {"wanted": "perhaps"}, {"colour": 1}):
        assert 400 <= httpx.put(f"{url}/{ids[0]}", json=bad, timeout=30).status_code < 500
    for id_ in ids:
        httpx.put(f"{url}/{id_}", json={"rack": "r"}, timeout=30)
    succeeded(fleet.client.delete("/topics/narrow"))
    fleet.create("wide")
    succeeded(fleet.client.delete("/topics/wide"))


def test_invalid_and_foreign_heartbeats_are_rejected_without_harm(fleet: Fleet) -> None:
    """The writer continues: no 5xx, no new broker, topics are created as before."""
    good = heartbeat_of(fleet)
    hostile: list[object] = [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b"[" * 100_000,
        {},
        {**good, "id": "x"},
        {**good, "id": ID + "\n"},
        {**good, "id": ID, "host": "a..b"},
        {**good, "id": ID, "host": "x" * 100},
        {**good, "id": ID, "peer_host": "::::"},
        {**good, "id": ID, "rack": "\0"},
        {**good, "id": ID, "port": 0},
        {**good, "id": ID, "writer_epoch": 1 << 70},
        {**good, "id": ID, "cluster_id": "f" * 32},
        {**good, "replicas": [{}]},
        {**good, "replicas": 5},
    ]
    for one in hostile:
        response = send(fleet, one)
        assert 400 <= response.status_code < 500, (one, response.text)
    assert send(fleet, b" " * (9 << 20)).status_code == 413
    foreign = send(fleet, {**good, "id": ID, "cluster_id": "f" * 32})
    assert "flotilla admin rebuild-metadata" in foreign.json()["message"]
    assert len(state(fleet)["brokers"]) == 3
    assert send(fleet, good).json()["known"] is True
    fleet.create("still")
    succeeded(fleet.client.delete("/topics/still"))
    assert "Traceback" not in fleet.writer.log()


def test_unreachable_broker_does_not_affect_others_and_can_be_removed(fleet: Fleet) -> None:
    """A broker with a wrong address does not affect new topics after it missed its heartbeats."""
    ghost = {**heartbeat_of(fleet), "id": ID, "port": free_port(), "peer_port": free_port(), "replicas": []}
    assert send(fleet, ghost).status_code == 200
    assert len(state(fleet)["brokers"]) == 4

    def is_active() -> bool:
        return any(one["active"] for one in state(fleet)["brokers"] if one["id"] == ID)

    wait_until("it to be inactive", lambda: not is_active())
    fleet.create("without")
    succeeded(fleet.client.delete("/topics/without"))
    url = f"{fleet.url}/v1/control/brokers/{ID}"
    assert httpx.delete(url, timeout=30).status_code == 200
    assert httpx.delete(url, timeout=30).status_code == 200
    assert len(fleet.get("/brokers")["brokers"]) == 3
    assert send(fleet, ghost).json()["known"] is False


def test_heartbeat_with_an_absurd_epoch_stops_the_writer_and_is_logged_with_its_sender(tmp_path: Path) -> None:
    """The epoch might be real, so the writer stops; a restart reads the epoch from the database."""
    with Fleet(tmp_path) as fleet:
        fleet.create("t")
        claim = {**heartbeat_of(fleet), "writer_epoch": 1 << 62}

        def has_stopped() -> bool:
            # The broker's own heartbeats take a claim back, unless the writer has looked before.
            with contextlib.suppress(httpx.HTTPError):
                httpx.post(f"{fleet.writer.url}/v1/control/heartbeat", json=claim, timeout=5)
            return not fleet.writer.is_running

        wait_until("the writer to stop", has_stopped)
        assert fleet.writer.exit_code == BEHIND
        label = claim.get("name") or f"{claim['host']}:{claim['port']}"
        assert f"broker {label} has received commands of writer epoch {1 << 62}" in fleet.writer.log()
        fleet.writer.start()
        fleet.wait_ready()
        fleet.create("after")
        assert fleet.get("/topics")["topics"] == ["t", "after"]


def test_public_port_serves_neither_the_control_api_nor_metrics(fleet: Fleet) -> None:
    """The public port, which an ingress exposes, has the same API without the operator's part."""
    port = free_port()
    other = ManagerProcess(fleet.folder, "public", "reader", fleet.database, flags=["--public-port", str(port)])
    other.start()
    try:
        public = f"http://127.0.0.1:{port}"
        wait_until("the manager to be ready", lambda: answers(f"{public}/readyz"))
        assert httpx.get(f"{public}/topics", timeout=30).json()["status"] == "success"
        assert httpx.get(f"{public}/v1/metadata", timeout=30).status_code == 200
        for path in ("/v1/control/state", "/v1/%63ontrol/state", "/v1/control", "/metrics"):
            response = httpx.get(f"{public}{path}", timeout=30)
            assert (path, response.status_code) == (path, 404)
        assert httpx.post(f"{public}/v1/control/heartbeat", content=b"{}", timeout=30).status_code == 404
        assert httpx.get(f"{other.url}/v1/control/state", timeout=30).status_code == 200
        assert httpx.get(f"{other.url}/metrics", timeout=30).status_code == 200
    finally:
        other.close()


def answers(url: str) -> bool:
    with contextlib.suppress(httpx.HTTPError):
        return httpx.get(url, timeout=5).status_code == 200
    return False


def test_retention_of_new_topics_is_a_setting(tmp_path: Path) -> None:
    """Topics without a retention get the default of the managers."""
    flags = ("--retention-ms", "5000000", "--retention-bytes", "10MiB")
    with Fleet(tmp_path, brokers=1, readers=1, manager_flags=flags) as small:
        succeeded(small.client.post("/topics", json={"name": "by-people", "replication": 1}))
        succeeded(small.client.post("/producer/register", json={"topic": "by-producer"}))
        body = {"name": "by-program", "replication": 1, "retention_bytes": None}
        assert small.client.post("/v1/topics", json=body).status_code == 200
        for said in ({"retention_ms": 7, "retention_bytes": None}, {}, {"retention_bytes": 9}):
            assert put(small, "by-operator", replication=1, **said).status_code == 200
        found = {
            topic["name"]: (topic["retention_ms"], topic["retention_bytes"])
            for topic in small.client.get("/v1/metadata").json()["topics"]
        }
    assert found == {
        "by-people": (5_000_000, 10 << 20),
        "by-producer": (5_000_000, 10 << 20),
        "by-program": (5_000_000, None),
        "by-operator": (7, 9),  # defaults apply to new topics; an existing topic keeps settings that the request omits
    }
