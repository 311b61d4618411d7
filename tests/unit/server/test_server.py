"""A server runs until it is stopped, and shuts down in order."""

import asyncio
import os
import signal
import socket

import pytest
import uvloop
from fastapi import FastAPI

from flotilla.net import Connection, Disconnected
from flotilla_server.application import Application
from flotilla_server.server import Stop, listen, make_server, run


def make_front() -> Application:
    app = FastAPI(docs_url=None, redoc_url=None)

    @app.get("/here")
    async def here() -> str:
        return "here"

    return Application({}, app, connections_max=10, body_bytes_max=1000)


def url_of(sock: socket.socket) -> str:
    return f"http://127.0.0.1:{sock.getsockname()[1]}"


async def get(url: str) -> int:
    connection = await Connection.open(url)
    try:
        return (await connection.request("GET", "/here")).status
    finally:
        connection.close()


def test_requests_are_answered_until_shutdown_is_complete() -> None:
    async def body() -> None:
        stop, sock = Stop(), listen("127.0.0.1", 0)
        left: list[tuple[int, int]] = []

        async def leave(code: int) -> None:
            left.append((code, await get(url_of(sock))))

        url = url_of(sock)
        running = asyncio.create_task(run(make_server(make_front(), connections_max=10), [sock], stop, leave))
        assert await get(url) == 200
        stop(3)
        stop(0)
        assert await running == 3, "the first reason counts"
        assert left == [(3, 200)]
        with pytest.raises(Disconnected):
            await get(url)

    uvloop.run(asyncio.wait_for(body(), 20))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_stops_the_server_cleanly(number: signal.Signals) -> None:
    async def body() -> None:
        stop, sock = Stop(), listen("127.0.0.1", 0)
        stop.on_signals()
        running = asyncio.create_task(run(make_server(make_front(), connections_max=10), [sock], stop))
        assert await get(url_of(sock)) == 200
        assert stop.code is None
        os.kill(os.getpid(), number)
        assert await running == 0

    uvloop.run(asyncio.wait_for(body(), 20))


def test_port_is_shared_only_if_requested() -> None:
    with listen("127.0.0.1", 0, reuse_port=True) as one:
        port = one.getsockname()[1]
        with listen("127.0.0.1", port, reuse_port=True) as two:
            assert two.getsockname() == one.getsockname()
        with pytest.raises(OSError, match="in use"):
            listen("127.0.0.1", port)
    with listen("::1", 0) as six:
        assert six.family == socket.AF_INET6
