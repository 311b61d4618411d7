"""Server-sent events: every record once, in order, also after a reconnect."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from flotilla.records import encode
from support.cluster import wait_until
from support.fleet import Fleet

QUICK = ("--heartbeat-s", "0.1", "--election-s-min", "0.5", "--election-s-max", "1.0")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with Fleet(Path(tmp_path_factory.mktemp("fleet")), broker_flags=QUICK) as fleet:
        yield fleet


@contextmanager
def tail(fleet: Fleet, last_id: str = "", **params: Any) -> Iterator[Iterator[tuple[str, dict[str, Any]]]]:  # noqa: ANN401
    headers = {"last-event-id": last_id} if last_id else {}
    with httpx.stream("GET", f"{fleet.url}/v1/tail", params=params, headers=headers, timeout=40) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = response.iter_lines()
        assert next(lines) == ": listening"
        yield events(lines)


def events(lines: Iterator[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Read the id and the data of each event."""
    id_ = ""
    for line in lines:
        if line.startswith("id: "):
            id_ = line.removeprefix("id: ")
        elif line.startswith("data: "):
            yield id_, json.loads(line.removeprefix("data: "))


def append(fleet: Fleet, topic: str, partition: int, *values: str) -> None:
    batch = bytes(encode([value.encode() for value in values]))
    query: dict[str, str | int] = {"topic": topic, "partition": partition}
    response = httpx.post(f"{fleet.url}/v1/append", params=query, content=batch, timeout=40)
    assert response.status_code == 200, response.text


def test_committed_records_are_streamed_and_a_reconnect_skips_none(fleet: Fleet) -> None:
    fleet.create("told", partitions=2)
    append(fleet, "told", 0, "before")
    with tail(fleet, topic="told") as found:
        append(fleet, "told", 0, "a", "b", "c")
        got = [next(found) for _ in range(2)]
        assert [(one["partition"], one["offset"], one["value"]) for _, one in got] == [(0, 1, "a"), (0, 2, "b")]
    append(fleet, "told", 1, "x")
    with tail(fleet, got[-1][0], topic="told") as found:
        rest = sorted(next(found)[1]["value"] for _ in range(2))
    assert rest == ["c", "x"]
    with tail(fleet, topic="told", offset="earliest", partition=0) as found:
        assert [next(found)[1]["value"] for _ in range(4)] == ["before", "a", "b", "c"]


def test_stream_survives_a_change_of_leader(fleet: Fleet) -> None:
    fleet.create("led", partitions=1)
    with tail(fleet, topic="led") as found:
        append(fleet, "led", 0, "one")
        assert next(found)[1]["value"] == "one"
        (described,) = fleet.get("/topics/led/partitions")["partitions"]
        leader = next(broker for broker in fleet.brokers if broker.id == described["leader"])
        leader.kill()
        append(fleet, "led", 0, "two")
        assert next(found)[1]["value"] == "two"
        leader.start()
        leader.wait_alive()


def test_stream_ends_with_its_topic(fleet: Fleet) -> None:
    fleet.create("short", partitions=1)
    with tail(fleet, topic="short") as found:
        fleet.client.delete("/topics/short")
        assert next(found)[1]["code"] == "unknown_partition"
        assert next(found, None) is None


def test_disconnected_clients_cost_nothing(fleet: Fleet) -> None:
    """A manager without clients of a topic does not fetch it."""
    fleet.create("left", partitions=1)
    for _ in range(5):
        with tail(fleet, topic="left"):
            pass
    append(fleet, "left", 0, "m")
    with tail(fleet, topic="left", offset="earliest") as found:
        assert next(found)[1]["value"] == "m"

    def has_no_clients() -> bool:
        texts = [httpx.get(f"{reader.own_url}/metrics").text for reader in fleet.readers]
        return all("flotilla_tail_streams 0.0" in text for text in texts)

    wait_until("all listeners to be gone", has_no_clients)


def test_stopping_manager_closes_its_streams(tmp_path: Path) -> None:
    with Fleet(tmp_path, brokers=1, readers=1) as small:
        small.create("ending", partitions=1)
        with tail(small, topic="ending") as found:
            assert small.readers[0].terminate() == 0
            assert "graceful shutdown exceeded" not in small.readers[0].log(), "the shutdown did not hang"
            assert next(found, None) is None


@pytest.mark.parametrize(
    ("params", "status"),
    [
        ({"topic": "nowhere"}, 404),
        ({}, 404),
        ({"topic": "told", "offset": "5"}, 400),
        ({"topic": "told", "partition": "9"}, 404),
        ({"topic": "told", "colour": "red"}, 400),
    ],
)
def test_invalid_tail_requests_are_rejected(fleet: Fleet, params: dict[str, str], status: int) -> None:
    assert httpx.get(f"{fleet.url}/v1/tail", params=params).status_code == status
