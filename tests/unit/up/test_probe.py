"""Health probes."""

import asyncio
import socket
from collections.abc import Callable

import pytest

from flotilla.up.probe import Health, check, parse, read_reason

Answer = Callable[[bytes], bytes]


def asked(answer: Answer) -> Health:
    async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer((await reader.readuntil(b"\r\n\r\n")).split()[1]))
        await writer.drain()
        writer.close()

    async def run() -> Health:
        server = await asyncio.start_server(on_connection, "127.0.0.1", 0)
        async with server:
            return await check(server.sockets[0].getsockname()[1], timeout_s=5)

    return asyncio.run(run())


def test_probe_reports_ready() -> None:
    assert asked(lambda _: b"HTTP/1.1 200 OK\r\n\r\n{}") == Health(alive=True, ready=True)


def test_probe_reports_reason_of_unready_process() -> None:
    bad = b'HTTP/1.1 503 No\r\ncontent-length: 31\r\n\r\n{"reasons": ["no writer", "dry"]}'
    health = asked(lambda path: b"HTTP/1.1 200 OK\r\n\r\n" if path == b"/healthz" else bad)
    assert health == Health(alive=True, ready=False, reason="no writer; dry")


@pytest.mark.parametrize("answer", [b"", b"\r\n\r\n", b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 OK\r\n\r\n"])
def test_probe_treats_non_http_as_not_alive(answer: bytes) -> None:
    assert asked(lambda _: answer) == Health(alive=False)


def test_probe_treats_no_answer_as_not_alive() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        assert asyncio.run(check(port, timeout_s=0.1)) == Health(alive=False)
    assert asyncio.run(check(port, timeout_s=5)) == Health(alive=False)


def test_probe_limits_the_size_of_responses() -> None:
    assert asked(lambda _: b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (1 << 20)).alive


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b'{"message": "the database\\n is down"}', "the database is down"),
        (b'{"reasons": []}', "/readyz returned 503"),
        (b"[]", "/readyz returned 503"),
        (b"<html>", "/readyz returned 503"),
        (b'{"message": "' + b"x" * 999 + b'"}', "x" * 200),
    ],
)
def test_reason_is_read_from_any_response(body: bytes, reason: str) -> None:
    assert read_reason(503, body) == reason


def test_response_is_parsed_into_status_and_body() -> None:
    assert parse(b"HTTP/1.0 404 Not Found\r\na: b\r\n\r\nbody") == (404, b"body")
