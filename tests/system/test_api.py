"""The broker's API on a real process with a group of one member."""

import contextlib
import json
import re
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from flotilla.records import BATCH_BYTES_MAX, decode, encode, split
from support.cluster import BrokerProcess, Cluster, wait_until

TOPIC_ID = "1" * 32
REPLICA = f"/v1/replicas/{TOPIC_ID}/0/1"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    flags = ("--in-flight-bytes-max", "40MiB", "--connections-max", "50", "--fetch-bytes-max", "1MiB")
    with Cluster(tmp_path_factory.mktemp("api"), 1, flags) as made:
        made.create("t", 2)
        made.leader(0)
        made.leader(1)
        yield made


@pytest.fixture
def broker(cluster: Cluster) -> BrokerProcess:
    return cluster.brokers[0]


def append(broker: BrokerProcess, values: list[bytes], partition: int = 0, **identity: Any) -> httpx.Response:  # noqa: ANN401
    body = bytes(encode(values, **identity))
    return broker.request("POST", f"/v1/append?topic=t&partition={partition}", content=body)


def fetch(broker: BrokerProcess, query: str) -> httpx.Response:
    return broker.request("GET", f"/v1/fetch?topic=t&partition=0&{query}")


def values_of(response: httpx.Response) -> list[bytes]:
    return [value for batch in split(response.content) for value in decode(batch).values]


def test_fetch_returns_appended_batches_unchanged(broker: BrokerProcess) -> None:
    before = broker.get(REPLICA)["next_offset"]
    answer = append(broker, [b"one", b"two"]).json()
    assert answer["status"] == "ok"
    assert answer["base_offset"] == before
    assert abs(answer["append_time_ms"] - time.time() * 1000) < 60_000
    found = fetch(broker, f"offset={before}")
    assert values_of(found) == [b"one", b"two"]
    assert found.headers["content-type"] == "application/vnd.flotilla.batch"
    assert found.headers["flotilla-next-offset"] == str(before + 2)


def test_one_request_appends_batches_to_several_partitions(broker: BrokerProcess) -> None:
    """Each has its own result: a rejected batch does not affect the others."""
    batch = bytes(encode([b"x"]))
    appends = [("t", 0, batch), ("t", 1, batch), ("nowhere", 0, batch), ("t", 0, b"rubbish")]
    response = broker.request(
        "POST",
        "/v1/append",
        content=msgspec.msgpack.encode(appends),
        headers={"content-type": "application/vnd.flotilla.appends"},
    )
    results = response.json()["results"]
    assert [result["status"] for result in results] == ["ok", "ok", "failed", "failed"]
    assert [result.get("error", {}).get("code") for result in results[2:]] == ["unknown_partition", "bad_batch"]


def test_retry_returns_the_first_offset(broker: BrokerProcess) -> None:
    """Guarantee 3: retries do not duplicate."""
    first, again = (append(broker, [b"once"], producer_id=b"retrying-produce").json() for _ in range(2))
    assert again == {"status": "ok", "base_offset": first["base_offset"], "append_time_ms": None}
    assert broker.get(REPLICA)["next_offset"] == first["base_offset"] + 1


@pytest.mark.parametrize(("sequence", "code"), [(5, "sequence_gap"), (0, "sequence_reused"), (1, "sequence_overlap")])
def test_out_of_sequence_batch_is_rejected(broker: BrokerProcess, sequence: int, code: str) -> None:
    producer = f"{code:<16}".encode()[:16]
    assert append(broker, [b"a", b"b"], producer_id=producer).status_code == 200
    answer = append(broker, [b"other"], producer_id=producer, base_sequence=sequence)
    assert (answer.status_code, answer.json()["code"]) == (409, code)


def test_unknown_producer_that_starts_above_zero_is_rejected(broker: BrokerProcess) -> None:
    answer = append(broker, [b"a"], producer_id=b"never seen befor", base_sequence=3)
    assert (answer.status_code, answer.json()["code"]) == (409, "unknown_producer")


def test_fetch_accepts_an_offset_a_timestamp_or_a_keyword(broker: BrokerProcess) -> None:
    early_ms = append(broker, [b"early"]).json()["append_time_ms"]
    wait_until("the clock", lambda: int(time.time() * 1000) > early_ms)
    marked = append(broker, [b"marked"]).json()
    append(broker, [b"late"])
    assert values_of(fetch(broker, f"timestamp_ms={marked['append_time_ms']}"))[:2] == [b"marked", b"late"]
    assert values_of(fetch(broker, f"offset={marked['base_offset']}"))[:2] == [b"marked", b"late"]
    assert values_of(fetch(broker, "offset=latest")) == []
    assert len(values_of(fetch(broker, "offset=earliest"))) > 0
    assert values_of(fetch(broker, f"timestamp_ms={1 << 60}")) == []


def test_fetch_returns_whole_batches_up_to_a_size_but_at_least_one(broker: BrokerProcess) -> None:
    start = append(broker, [bytes(1000)] * 3).json()["base_offset"]
    append(broker, [bytes(1000)] * 3)
    assert len(values_of(fetch(broker, f"offset={start}&max_bytes=1"))) == 3
    assert len(values_of(fetch(broker, f"offset={start}&max_bytes=100000"))) == 6
    assert len(values_of(fetch(broker, f"offset={start + 4}&max_bytes=100000"))) == 3


def test_fetch_waits_for_new_records(broker: BrokerProcess) -> None:
    offset = broker.get(REPLICA)["next_offset"]
    found: list[list[bytes]] = []
    with httpx.Client(base_url=broker.url, timeout=20) as client:
        target = f"/v1/fetch?topic=t&partition=0&offset={offset}&wait_ms=15000"
        waiting = threading.Thread(target=lambda: found.append(values_of(client.get(target))))
        waiting.start()
        wait_until("the fetch to be there", lambda: b"flotilla_fetches" in broker.request("GET", "/metrics").content)
        append(broker, [b"awaited"])
        waiting.join()
    assert found == [[b"awaited"]]


def test_fetch_returns_nothing_after_its_timeout(broker: BrokerProcess) -> None:
    answer = fetch(broker, "offset=latest&wait_ms=50")
    assert (answer.status_code, answer.content) == (200, b"")


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("offset=99999999", "offset_out_of_range"),
        ("offset=-1", "bad_request"),
        ("offset=x", "bad_request"),
        ("", "bad_request"),
        ("offset=0&max_bytes=a", "bad_request"),
        ("offset=0&wait_ms=%00", "bad_request"),
        ("offset=0&" + "&".join(f"a{n}=1" for n in range(30)), "bad_request"),
        ("offset=" + "1" * 5000, "bad_request"),
        ("offset=0&replica=foo", "bad_request"),
        ("offset=0&timestamp_ms=0", "bad_request"),
        ("offset=0&max_byte=1", "bad_request"),
    ],
)
def test_invalid_fetch_is_rejected_with_a_reason(broker: BrokerProcess, query: str, code: str) -> None:
    answer = fetch(broker, query)
    assert (answer.status_code, answer.json()["code"]) == (400, code)
    assert answer.json()["message"]


def test_fetch_of_trimmed_records_names_the_first_offset(tmp_path: Path) -> None:
    with Cluster(tmp_path, 1) as cluster:
        (broker,) = cluster.brokers
        cluster.create("t", retention_ms=1)
        cluster.leader()
        append(broker, [b"a", b"b"])
        append(broker, [b"c"])
        wait_until("retention", lambda: broker.get(REPLICA)["first_offset"] > 0)
        answer = fetch(broker, "offset=0")
        assert (answer.status_code, answer.json()["code"]) == (400, "offset_out_of_range")
        assert answer.json()["details"]["first_offset"] == broker.get(REPLICA)["first_offset"]


@pytest.mark.parametrize("body", [b"", b"x", bytes(encode([b"a"]))[:-1], bytes(encode([b"a"])) * 2])
def test_body_that_is_not_one_batch_is_rejected(broker: BrokerProcess, body: bytes) -> None:
    answer = broker.request("POST", "/v1/append?topic=t&partition=0", content=body)
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_batch")


def test_batch_with_a_flipped_bit_is_rejected(broker: BrokerProcess) -> None:
    body = encode([b"payload"])
    body[-5] ^= 1
    answer = broker.request("POST", "/v1/append?topic=t&partition=0", content=bytes(body))
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_batch")


@pytest.mark.parametrize("query", ["topic=x&partition=0", "topic=t&partition=7", "partition=0"])
def test_unknown_partition_is_not_found(broker: BrokerProcess, query: str) -> None:
    answer = broker.request("POST", f"/v1/append?{query}", content=bytes(encode([b"a"])))
    assert (answer.status_code, answer.json()["code"]) == (404, "unknown_partition")


def test_largest_batch_is_accepted_and_a_larger_body_is_rejected(broker: BrokerProcess) -> None:
    large = encode([bytes(BATCH_BYTES_MAX - 4096)])
    assert broker.request("POST", "/v1/append?topic=t&partition=0", content=bytes(large)).status_code == 200
    answer = broker.request("POST", "/v1/append?topic=t&partition=0", content=bytes(33 << 20))
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")


def test_body_without_a_length_is_limited_while_it_arrives(broker: BrokerProcess) -> None:
    def endless() -> Iterator[bytes]:
        for _ in range(40):
            yield bytes(1 << 20)

    try:
        answer = broker.request("POST", "/v1/append?topic=t&partition=0", content=endless())
    except httpx.TransportError:
        return  # the broker hung up while we were still sending, which is as good
    assert answer.status_code == 413


def test_wrong_methods_and_paths_are_rejected(broker: BrokerProcess) -> None:
    assert broker.request("GET", "/v1/append?topic=t&partition=0").status_code == 405
    assert broker.request("POST", "/v1/fetch?topic=t&partition=0&offset=0").status_code == 405
    assert broker.request("GET", "/v2/anything").json()["code"] == "not_found"


def test_announced_body_that_does_not_arrive_blocks_no_other_request(broker: BrokerProcess) -> None:
    """Only received bytes count."""
    with contextlib.ExitStack() as stack:
        for _ in range(8):
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", broker.port)))
            sock.sendall(b"POST /v1/append?topic=t&partition=0 HTTP/1.1\r\nContent-Length: 33554432\r\n\r\n")
        assert append(broker, [b"not held up"]).status_code == 200


def test_endless_headers_and_commands_are_cut_off(broker: BrokerProcess) -> None:
    with socket.create_connection(("127.0.0.1", broker.port)) as sock, contextlib.suppress(OSError):
        sock.sendall(b"GET /healthz HTTP/1.1\r\n")
        for _ in range(100):
            sock.sendall(b"x: " + b"y" * 10_000 + b"\r\n")
        assert sock.recv(1) == b""
    answer = broker.request("PUT", "/v1/brokers", content=bytes(5 << 20))
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
    assert broker.get("/healthz") == {"status": "alive"}


def test_appends_beyond_the_limit_of_bytes_in_flight_are_rejected_temporarily(broker: BrokerProcess) -> None:
    """A partly received body counts; excess requests get a retryable error."""
    with httpx.Client(base_url=broker.url, timeout=20) as slow:
        release = threading.Event()

        def body() -> Iterator[bytes]:
            yield bytes((32 << 20) - 10)
            release.wait(15)
            yield bytes(10)

        headers = {"content-length": str(32 << 20)}
        target = "/v1/append?topic=t&partition=0"
        sender = threading.Thread(target=lambda: slow.post(target, content=body(), headers=headers))
        sender.start()
        wait_until("the body", lambda: in_flight(broker) > 30 << 20)
        large = bytes(encode([bytes(BATCH_BYTES_MAX - 4096)]))
        answer = broker.request("POST", target, content=large + large)
        release.set()
        sender.join()
    assert answer.status_code == 429
    assert answer.json()["code"] == "busy"
    assert answer.headers["retry-after"] == "1"


def in_flight(broker: BrokerProcess) -> float:
    """Return the bytes of appends in flight."""
    text = broker.request("GET", "/metrics").text
    (line,) = [line for line in text.splitlines() if line.startswith('flotilla_in_flight_bytes{what="append"}')]
    return float(line.split()[-1])


def test_connections_beyond_the_limit_are_rejected_temporarily(broker: BrokerProcess) -> None:
    """With a limit of 50, further ones get 503; the broker continues and stays healthy."""
    with contextlib.ExitStack() as stack:
        for _ in range(60):
            stack.enter_context(socket.create_connection(("127.0.0.1", broker.port)))

        def refused() -> bool:
            with httpx.Client(base_url=broker.url) as client:
                return client.get("/v1/broker").status_code == 503

        wait_until("a refusal", refused)
        assert broker.get("/healthz") == {"status": "alive"}
    wait_until("room", lambda: broker.request("GET", "/healthz").status_code == 200)


# -- orders -------------------------------------------------------------------------------------------------------


def test_commands_of_a_replaced_writer_are_rejected(tmp_path: Path) -> None:
    """Guarantee 6. The highest epoch survives a restart."""
    with Cluster(tmp_path, 1) as cluster:
        (broker,) = cluster.brokers
        cluster.writer_epoch = 7
        cluster.introduce()
        broker.kill()
        broker.start()
        broker.wait_alive()
        order = {"writer_epoch": 6, "topic": "t", "members": [broker.id]}
        answer = broker.request("PUT", REPLICA, json=order)
        assert (answer.status_code, answer.json()["code"]) == (409, "stale_writer")
        assert broker.get("/v1/replicas")["replicas"] == []
        assert broker.put(REPLICA, {**order, "writer_epoch": 7})["topic"] == "t"


def test_commands_are_idempotent(cluster: Cluster, broker: BrokerProcess) -> None:
    before = broker.get(REPLICA)
    cluster.create("t", 2)
    assert broker.get(REPLICA)["next_offset"] == before["next_offset"]


@pytest.mark.parametrize(
    "change",
    [
        {"members": ["0" * 32]},
        {"members": []},
        {"members": ["x"]},
        {"topic": "../etc"},
        {"topic": ""},
        {"writer_epoch": -1},
        {"unheard": 1},
        {"retention_ms": "long"},
    ],
)
def test_invalid_command_changes_nothing(broker: BrokerProcess, change: dict[str, object]) -> None:
    order = {"writer_epoch": 1, "topic": "t2", "members": [broker.id], **change}
    answer = broker.request("PUT", f"/v1/replicas/{'2' * 32}/0/1", json=order)
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")
    assert broker.request("GET", f"/v1/replicas/{'2' * 32}/0/1").status_code == 404


def test_replica_with_other_members_is_a_conflict(broker: BrokerProcess) -> None:
    order = {"writer_epoch": 1, "topic": "t", "members": [broker.id, "0" * 32]}
    assert broker.request("PUT", REPLICA, json=order).json()["code"] == "conflict"


def test_removed_replica_does_not_come_back(broker: BrokerProcess) -> None:
    path = f"/v1/replicas/{'3' * 32}/0/1"
    broker.put(path, {"writer_epoch": 1, "topic": "gone", "members": [broker.id]})
    assert broker.request("DELETE", f"{path}?writer_epoch=1").status_code == 200
    assert broker.request("GET", path).status_code == 404
    assert broker.request("DELETE", f"{path}?writer_epoch=1").json()["code"] == "not_found"
    again = broker.request("PUT", path, json={"writer_epoch": 1, "topic": "gone", "members": [broker.id]})
    assert (again.status_code, again.json()["code"]) == (409, "conflict"), "it could vote twice in a term"


def test_recreated_topic_waits_until_the_old_one_is_removed(broker: BrokerProcess) -> None:
    """Otherwise an append by name would be ambiguous."""
    order = {"writer_epoch": 1, "topic": "t", "members": [broker.id]}
    answer = broker.request("PUT", f"/v1/replicas/{'5' * 32}/0/1", json=order)
    assert (answer.status_code, answer.json()["code"]) == (409, "conflict")


def test_request_for_one_topic_never_reaches_another_with_its_name(broker: BrokerProcess) -> None:
    """A topic id finds its topic as long as it exists, and never a recreated one."""
    old, new = "6" * 32, "7" * 32
    one, two = f"id:{old}", f"id:{new}"

    def order(topic_id: str) -> None:
        path = f"/v1/replicas/{topic_id}/0/1"
        broker.put(path, {"writer_epoch": 1, "topic": "again", "members": [broker.id]})
        broker.post(f"{path}/campaign", {"writer_epoch": 1})
        wait_until("a leader", lambda: broker.get(path)["settled"])

    def send(topic: str) -> httpx.Response:
        return broker.request("POST", f"/v1/append?topic={topic}&partition=0", content=bytes(encode([topic.encode()])))

    order(old)
    assert send(one).status_code == send("again").status_code == 200
    assert send(two).json()["code"] == "unknown_partition"
    broker.request("DELETE", f"/v1/replicas/{old}/0/1?writer_epoch=1").raise_for_status()
    order(new)
    assert (send(one).status_code, send(one).json()["code"]) == (404, "unknown_partition")
    both = msgspec.msgpack.encode([[topic, 0, bytes(encode([topic.encode()]))] for topic in (one, two)])
    headers = {"content-type": "application/vnd.flotilla.appends"}
    results = broker.request("POST", "/v1/append", content=both, headers=headers).json()["results"]
    assert [result["status"] for result in results] == ["failed", "ok"]
    found = broker.request("GET", f"/v1/fetch?topic={two}&partition=0&offset=0")
    assert values_of(found) == [two.encode()]
    assert broker.request("GET", f"/v1/fetch?topic={one}&partition=0&offset=0").json()["code"] == "unknown_partition"


def test_broker_belongs_permanently_to_one_cluster(tmp_path: Path) -> None:
    """Commands of another cluster are rejected, and its epochs do not count; also after kill -9."""
    ours, other = "a" * 32, "b" * 32
    with Cluster(tmp_path, 1) as cluster:
        (broker,) = cluster.brokers
        assert broker.get("/v1/broker")["cluster_id"] is None
        broker.put("/v1/brokers", {"writer_epoch": 1, "brokers": {}, "cluster_id": ours})
        broker.kill()
        broker.start()
        broker.wait_alive()
        assert broker.get("/v1/broker")["cluster_id"] == ours
        answer = broker.request("PUT", "/v1/brokers", json={"writer_epoch": 9, "brokers": {}, "cluster_id": other})
        assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
        assert "belongs to another cluster" in answer.json()["message"]
        assert broker.get("/v1/broker")["writer_epoch"] == 1
        broker.put("/v1/brokers", {"writer_epoch": 1, "brokers": {}})
        broker.put("/v1/brokers", {"writer_epoch": 1, "brokers": {}, "cluster_id": ours})


def test_broker_reports_its_addresses(tmp_path: Path) -> None:
    flags = ("--advertise-host", "b.example", "--advertise-peer-port", "7", "--rack", "r1")
    with Cluster(tmp_path, 1, flags) as cluster:
        (broker,) = cluster.brokers
        found = broker.get("/v1/broker")
        assert (found["host"], found["port"], found["rack"]) == ("b.example", broker.port, "r1")
        assert (found["peer_host"], found["peer_port"]) == ("127.0.0.1", 7)


@pytest.mark.parametrize("epoch", ["-1", "18446744073709551615", "18446744073709551616", "x"])
def test_impossible_writer_epoch_is_rejected(broker: BrokerProcess, epoch: str) -> None:
    answer = broker.request("DELETE", f"/v1/replicas/{'6' * 32}/0/1?writer_epoch={epoch}")
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")


def test_rejected_command_raises_the_writer_epoch_permanently(tmp_path: Path) -> None:
    """Later commands with the old epoch are rejected, also after a kill."""
    with Cluster(tmp_path, 1) as cluster:
        (broker,) = cluster.brokers
        assert broker.request("DELETE", f"{REPLICA}?writer_epoch=9").json()["code"] == "not_found"
        broker.kill()
        broker.start()
        broker.wait_alive()
        assert broker.get("/v1/broker")["writer_epoch"] == 9


@pytest.mark.parametrize("host", ["bro\u0001ker", "a b", "", "x" * 300, "a/b"])
def test_address_that_could_not_be_parsed_again_is_rejected(broker: BrokerProcess, host: str) -> None:
    """A broker must be able to read its stored state at the next start."""
    address = {"host": host, "port": 1, "peer_host": "h", "peer_port": 1}
    answer = broker.request("PUT", "/v1/brokers", json={"writer_epoch": 1, "brokers": {"a" * 32: address}})
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")


def test_too_many_peers_are_rejected(broker: BrokerProcess) -> None:
    address = {"host": "h", "port": 1, "peer_host": "h", "peer_port": 1}
    brokers = {f"{number:032x}": address for number in range(1025)}
    answer = broker.request("PUT", "/v1/brokers", json={"writer_epoch": 1, "brokers": brokers})
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")


def test_append_that_is_interrupted_by_a_stop_has_an_unknown_outcome(tmp_path: Path) -> None:
    """It is on disk here and may be committed later."""
    with Cluster(tmp_path, 3) as cluster:
        cluster.create("t")
        leader = cluster.leader()
        for other in cluster.brokers:
            if other is not leader:
                other.kill()
        answers: list[httpx.Response] = []
        sender = threading.Thread(target=lambda: answers.append(append(leader, [b"in doubt"])))
        sender.start()
        wait_until("the entry", lambda: leader.get(REPLICA)["last_index"] > leader.get(REPLICA)["committed_index"])
        leader.signal(signal.SIGTERM)
        sender.join()
        assert (answers[0].status_code, answers[0].json()["code"]) == (504, "unknown_outcome")


def test_empty_replica_of_a_later_epoch_is_rejected(broker: BrokerProcess) -> None:
    """Guarantee 1: it would be elected without the records of the earlier epoch, which would then be closed."""
    first, later = (f"/v1/replicas/{'4' * 32}/0/{epoch}" for epoch in (1, 2))
    command = {"writer_epoch": 1, "topic": "moved", "members": [broker.id]}
    broker.put(first, command)
    wait_until("a leader", lambda: broker.get(first)["settled"])
    stored = broker.request("POST", "/v1/append?topic=moved&partition=0", content=bytes(encode([b"kept"])))
    answer = broker.request("PUT", later, json=command)
    assert (stored.status_code, answer.status_code, answer.json()["code"]) == (200, 409, "conflict")
    assert broker.request("GET", later).status_code == 404
    assert broker.get(first)["next_offset"] == 1


# -- health and docs ----------------------------------------------------------------------------------------------


def test_broker_serves_health_readiness_and_metrics(broker: BrokerProcess) -> None:
    append(broker, [b"counted"])
    assert broker.get("/healthz") == {"status": "alive"}
    assert broker.get("/readyz") == {"status": "ready", "reasons": []}
    text = broker.request("GET", "/metrics").text
    for name in (
        'flotilla_appends_total{outcome="ok"}',
        "flotilla_append_bytes_total",
        "flotilla_append_seconds_bucket",
        "flotilla_flush_seconds_bucket",
        'flotilla_replicas{role="leader"}',
        'flotilla_groups{role="leader"}',
        "flotilla_peer_messages_rejected_total",
        "flotilla_log_bytes",
        "flotilla_log_live_bytes",
        "flotilla_disk_capacity_bytes",
        "flotilla_disk_free_bytes",
        "flotilla_disk_free_segments",
    ):
        assert name in text


def test_docs_list_every_path(broker: BrokerProcess) -> None:
    schema = broker.get("/openapi.json")
    assert {"/v1/append", "/v1/fetch", "/healthz", "/readyz", "/metrics", "/v1/brokers"} <= set(schema["paths"])
    assert "requestBody" in schema["paths"]["/v1/append"]["post"]
    assert not [path for path, found in schema["paths"].items() for op in found.values() if "422" in op["responses"]]
    page = broker.request("GET", "/docs")
    assert page.status_code == 200
    for name in re.findall(r'(?:href|src)="([^"]+)"', page.text):
        assert broker.request("GET", f"/{name}").status_code == 200
    json.dumps(schema)


def test_request_id_is_passed_through(broker: BrokerProcess) -> None:
    for path in ("/v1/fetch?topic=t&partition=0&offset=0", "/v1/broker", "/v1/fetch?topic=none&partition=0"):
        answer = broker.request("GET", path, headers={"x-request-id": "my.id-1"})
        assert answer.headers["x-request-id"] == "my.id-1"
    assert broker.request("GET", "/v1/broker").headers["x-request-id"]
    assert "x-request-id" not in broker.request("GET", "/v1/fetch?topic=t&partition=0&offset=0").headers
    assert broker.request("GET", "/v1/fetch?topic=none&partition=0").headers["x-request-id"]


def test_logs_are_json_without_a_terminal(broker: BrokerProcess) -> None:
    lines = [json.loads(line) for line in broker.log().splitlines()]
    assert any(line["process"] == "broker" and "broker started" in line["message"] for line in lines)


def test_log_line_has_only_the_id_of_its_own_request(tmp_path: Path) -> None:
    """Background work is not attributed to the request that triggered it."""
    with Cluster(tmp_path, 1, ("--log-level", "debug")) as cluster:
        (broker,) = cluster.brokers
        cluster.create("t")
        larger = "f" * 32  # the smaller id dials
        stranger = {larger: {"host": "h", "port": 1, "peer_host": "127.0.0.1", "peer_port": 1}}
        order = {"writer_epoch": 1, "brokers": stranger}
        broker.request("PUT", "/v1/brokers", json=order, headers={"x-request-id": "the-order"}).raise_for_status()
        wait_until("the stranger to be dialed", lambda: larger in broker.log())
        cluster.leader()
        lines = [json.loads(line) for line in broker.log().splitlines()]
        answered = {line["logger"] for line in lines if line.get("request_id") == "the-order"}
        assert answered == {"flotilla_server.application"}
        assert not [line for line in lines if line["logger"].endswith("dialer") and "request_id" in line]
