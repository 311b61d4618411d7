"""HTTP of the fake with other clients than ours."""

import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import pytest

from flotilla.testing import FakeFlotilla
from support.cluster import wait_until


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeFlotilla]:
    with FakeFlotilla() as fake:
        fake.client().topics.create("t", partitions=1)
        yield fake


def said(fake: FakeFlotilla, *parts: bytes) -> bytes:
    """Send bytes, and read until the server closes the connection."""
    with connected(fake) as sock:
        for part in parts:
            sock.sendall(part)
        found = b""
        while data := sock.recv(65536):
            found += data
        return found


def connected(fake: FakeFlotilla) -> socket.socket:
    parts = urlsplit(fake.url)
    return socket.create_connection((parts.hostname or "", parts.port or 0), timeout=10)


def test_pipelined_requests_are_answered_in_order(fake: FakeFlotilla) -> None:
    """Also if the first request waits, and the others have arrived."""
    slow = b"GET /v1/fetch?topic=t&partition=0&offset=0&wait_ms=50 HTTP/1.1\r\nhost: x\r\n\r\n"
    quick = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"
    last = b"GET /nowhere HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    found = said(fake, slow + quick + last[:10], last[10:])
    assert [part[:3] for part in found.split(b"HTTP/1.1 ")[1:]] == [b"200", b"200", b"404"]
    assert found.index(b"flotilla-offset: 0") < found.index(b'"alive"') < found.index(b"Unknown path '/nowhere'")


def test_request_may_arrive_byte_by_byte(fake: FakeFlotilla) -> None:
    request = b"GET /v1/topics/nowhere?a=b HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    with connected(fake) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in request:
            sock.sendall(bytes([byte]))
        assert b"topic 'nowhere' does not exist" in sock.recv(65536)


def test_expect_100_continue_is_answered(fake: FakeFlotilla) -> None:
    head = b"POST /producer/register HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 14\r\n"
    found = said(fake, head + b"connection: close\r\n\r\n", b'{"topic": "t"}')
    assert found.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n")


def test_invalid_http_is_refused(fake: FakeFlotilla) -> None:
    assert said(fake, b"hello\r\n\r\n").startswith(b"HTTP/1.1 400 ")


def test_chunked_body_is_accepted(fake: FakeFlotilla) -> None:
    response = httpx.post(f"{fake.url}/producer/register", content=iter([b'{"topic":', b' "t"}']))
    assert response.json()["status"] == "success"


def test_percent_encoded_path_is_decoded(fake: FakeFlotilla) -> None:
    assert httpx.get(f"{fake.url}/v1/topics/%C3%A4").json()["message"] == "topic 'ä' does not exist"


def test_request_is_cancelled_when_its_client_disconnects(fake: FakeFlotilla) -> None:
    system = fake._system
    (partition,) = system.state.topics["t"].partitions
    with connected(fake) as sock:
        sock.sendall(b"GET /v1/fetch?topic=t&partition=0&offset=latest&wait_ms=30000 HTTP/1.1\r\nhost: x\r\n\r\n")
        wait_until("a waiting fetch", lambda: len(partition._watchers) == 1)
    wait_until("no waiting fetch", lambda: not partition._watchers)


def test_bug_in_the_fake_is_an_internal_error(
    fake: FakeFlotilla, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The response is that of servers, and the log has the exception."""
    monkeypatch.setattr(fake._system.state, "metadata", lambda _: 1 / 0)
    response = httpx.get(f"{fake.url}/v1/metadata")
    assert (response.status_code, response.json()["code"]) == (500, "internal")
    assert "GET /v1/metadata failed in the fake" in caplog.text


def test_response_to_head_has_no_body(fake: FakeFlotilla) -> None:
    """Otherwise the next response would start inside of it."""
    last = b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    found = said(fake, b"HEAD /topics HTTP/1.1\r\nhost: x\r\n\r\n" + last)
    first, second = found.split(b"HTTP/1.1 ")[1:]
    assert (first[:3], first[-4:]) == (b"405", b"\r\n\r\n")
    assert second.endswith(b'{"status":"alive","role":"writer"}')


def test_protocol_upgrade_is_ignored(fake: FakeFlotilla) -> None:
    """Some clients offer it with the first request, and continue without it."""
    offer = b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n"
    last = b"GET /nowhere HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    found = said(fake, offer + last)
    assert [part[:3] for part in found.split(b"HTTP/1.1 ")[1:]] == [b"200", b"404"]
