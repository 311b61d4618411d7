"""Quotas on real processes: managers and brokers limit a token, and other tokens are not affected."""

import asyncio
import contextlib
import itertools
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvloop

from flotilla.net import Connection, Response
from flotilla.records import encode
from support.access import ENVIRONMENT, bearer
from support.cluster import wait_until
from support.fleet import Fleet

KIB = 1 << 10
RATE = 256 * KIB
SECONDS = 3.0
BATCH = bytes(encode([bytes(KIB)] * 64))
_names = itertools.count()


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with Fleet(Path(tmp_path_factory.mktemp("fleet")), readers=1, environment=ENVIRONMENT) as fleet:
        fleet.create("t", partitions=1)
        yield fleet


def make_token(fleet: Fleet, *grants: str, **limits: int) -> dict[str, str]:
    """Create a token that the reader and all brokers know; return its headers."""
    asked = {"name": f"token {next(_names)}", "grants": list(grants or ("produce:*", "consume:*")), **limits}
    made = fleet.client.post("/v1/tokens", json=asked)
    assert made.status_code == 200, made.text
    headers = bearer(made.json()["token"])

    def known() -> bool:
        urls = [fleet.url, *(broker.url for broker in fleet.brokers)]
        return all(
            httpx.get(f"{url}/v1/fetch?topic=none&partition=0&offset=0", headers=headers).status_code not in {401, 503}
            for url in urls
        )

    wait_until("everybody to know the token", known)
    return headers


def leader(fleet: Fleet) -> str:
    """Return the leader of the partition."""

    def ask() -> str:
        for broker in fleet.brokers:
            if any(one["topic"] == "t" and one["settled"] for one in broker.get("/v1/replicas")["replicas"]):
                return broker.url
        return ""

    return wait_until("a leader", ask)


def url_of(fleet: Fleet, server: str) -> str:
    return fleet.url if server == "manager" else leader(fleet)


servers = pytest.mark.parametrize("server", ["manager", "broker"])


class Greedy:
    """A client that sends or reads as fast as possible on many connections, and ignores Retry-After."""

    def __init__(self, url: str, headers: dict[str, str]) -> None:
        self._url = url
        self._headers = list(headers.items())
        self.moved = 0
        self.refusals: list[Response] = []

    async def run(self, work: str, connections: int = 8) -> float:
        """Run for some seconds; return the duration."""
        began = time.monotonic()
        await asyncio.gather(*(self._work(work, began + SECONDS) for _ in range(connections)))
        return time.monotonic() - began

    async def _work(self, work: str, until: float) -> None:
        connection = await Connection.open(self._url)
        while time.monotonic() < until:
            if work == "append":
                target, body = "/v1/append?topic=t&partition=0", BATCH
                found = await connection.request("POST", target, body, self._headers)
            else:
                found = await connection.request(
                    "GET", f"/v1/fetch?topic=t&partition=0&offset=0&max_bytes={len(BATCH)}", headers=self._headers
                )
            if found.status == 200:
                self.moved += len(BATCH) if work == "append" else len(found.body)
            else:
                assert found.status == 429, found
                self.refusals.append(found)
        connection.close()


@servers
@pytest.mark.parametrize("work", ["append", "fetch"])
def test_token_is_limited_to_its_bytes_per_second(fleet: Fleet, server: str, work: str) -> None:
    """For any number of connections: the rate, an initial burst of one second, and one batch."""
    url, headers = url_of(fleet, server), make_token(fleet, bytes_per_s=RATE)
    sent = fleet.client.post("/v1/append", params={"topic": "t", "partition": 0}, content=BATCH)
    assert sent.status_code == 200, sent.text
    greedy = Greedy(url, headers)
    took_s = uvloop.run(greedy.run(work))
    assert greedy.moved <= RATE * took_s + RATE + len(BATCH)
    assert greedy.moved >= RATE * SECONDS * 0.5, "the client gets its quota"
    refusal = greedy.refusals[0]
    found = refusal.json()
    assert (found["code"], found["retryable"]) == ("quota_exceeded", True)
    assert found["details"] == {"quota": "bytes_per_s", "limit": RATE, "retry_after_s": 1}
    assert refusal.headers[b"retry-after"] == b"1"
    assert count_refusals(url, "bytes_per_s") >= len(greedy.refusals)


def count_refusals(url: str, quota: str) -> float:
    text = httpx.get(f"{url}/metrics").text
    name = f'flotilla_quota_refusals_total{{quota="{quota}"}} '
    return float(next(line for line in text.splitlines() if line.startswith(name)).removeprefix(name))


@servers
def test_other_tokens_are_not_affected_by_a_limited_one(fleet: Fleet, server: str) -> None:
    """Also requests of servers."""
    url, greedy = url_of(fleet, server), make_token(fleet, requests_per_s=1)
    others = [make_token(fleet), make_token(fleet, requests_per_s=1000)]

    def append(headers: dict[str, str]) -> int:
        query: dict[str, str | int] = {"topic": "t", "partition": 0}
        return httpx.post(f"{url}/v1/append", params=query, content=BATCH, headers=headers, timeout=40).status_code

    wait_until("the greedy one to be refused", lambda: append(greedy) == 429)
    for _ in range(20):
        assert [append(headers) for headers in others] == [200, 200]
    assert count_refusals(url, "requests_per_s") >= 1


def test_simple_api_returns_429_in_its_own_form(fleet: Fleet) -> None:
    headers = make_token(fleet, "produce:*", "admin:*", requests_per_s=1)

    def ask() -> httpx.Response | None:
        found = httpx.get(f"{fleet.url}/topics", headers=headers)
        return found if found.status_code == 429 else None

    refused = wait_until("a refusal", ask)
    assert refused is not None
    assert refused.headers["retry-after"] == "1"
    assert refused.json() == {
        "status": "failure",
        "message": "the token's quota of 1 requests_per_s is used up; try again in 1 s",
    }


@servers
def test_bytes_in_flight_are_limited_and_released_on_disconnect(fleet: Fleet, server: str) -> None:
    """Incomplete bodies count only while their senders are connected."""
    url, headers = url_of(fleet, server), make_token(fleet, in_flight_bytes=len(BATCH))
    query: dict[str, str | int] = {"topic": "t", "partition": 0}

    def append() -> httpx.Response:
        return httpx.post(f"{url}/v1/append", params=query, content=BATCH, headers=headers, timeout=40)

    for _ in range(3):
        with contextlib.closing(half_a_request(url, headers)):
            wait_until("the half to count", lambda: append().status_code == 429)
            details: dict[str, Any] = append().json()["details"]
            assert (details["quota"], details["limit"]) == ("in_flight_bytes", len(BATCH))
        wait_until("the half to be forgotten", lambda: append().status_code == 200, 5)


def half_a_request(url: str, headers: dict[str, str]) -> socket.socket:
    """Send the head and half of a body."""
    host, port = url.removeprefix("http://").split(":")
    sock = socket.create_connection((host, int(port)))
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    head = f"POST /v1/append?topic=t&partition=0 HTTP/1.1\r\nhost: x\r\ncontent-length: {len(BATCH)}\r\n{lines}\r\n"
    sock.sendall(head.encode() + BATCH[: len(BATCH) // 2])
    return sock


def test_stream_is_throttled_to_the_rate(fleet: Fleet) -> None:
    """It is slowed down, not cut off."""
    fleet.create("told", partitions=1)
    headers = make_token(fleet, bytes_per_s=64 * KIB)
    for _ in range(4):
        query: dict[str, str | int] = {"topic": "told", "partition": 0}
        sent = fleet.client.post("/v1/append", params=query, content=bytes(encode([b"x" * KIB] * 64)))
        assert sent.status_code == 200, sent.text
    began, seen, events = time.monotonic(), 0, 0
    params = {"topic": "told", "offset": "earliest"}
    with httpx.stream("GET", f"{fleet.url}/v1/tail", params=params, headers=headers, timeout=40) as response:
        for line in response.iter_lines():
            seen += len(line) + 1
            events += line.startswith("data: ")
            if events == 4 * 64:
                break
    piece = 256 * KIB * 2  # what is sent at once: a fetch, as JSON
    assert seen <= 64 * KIB * (time.monotonic() - began) + 64 * KIB + piece
    assert seen > 4 * 64 * KIB


def test_throttled_stream_ends_when_its_client_disconnects(fleet: Fleet) -> None:
    """Even if it would have to wait for hours."""
    fleet.create("slow", partitions=1)
    query: dict[str, str | int] = {"topic": "slow", "partition": 0}
    fleet.client.post("/v1/append", params=query, content=BATCH).raise_for_status()
    headers = make_token(fleet, bytes_per_s=1)
    params = {"topic": "slow", "offset": "earliest"}
    with httpx.stream("GET", f"{fleet.url}/v1/tail", params=params, headers=headers, timeout=40) as response:
        wait_for = (line for line in response.iter_lines() if line.startswith("data: "))
        assert next(wait_for)
        assert listeners(fleet) == 1
    wait_until("the stream to end", lambda: listeners(fleet) == 0, 5)


def listeners(fleet: Fleet) -> float:
    lines = httpx.get(f"{fleet.url}/metrics").text.splitlines()
    return float(next(line for line in lines if line.startswith("flotilla_tail_streams ")).split()[1])
