"""The pool reuses and limits connections, and does not send over closed ones."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from flotilla.net import Disconnected, Pool, TimedOut
from unit.net.harness import (
    OK,
    NewLoop,
    Server,
    always,
    both_loops,
    on_loop,
    once,
    read_request,
    serving,
    silent,
    until,
)


class Gate:
    """A server that responds when the test releases it."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.waiting = self.waiting_max = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await read_request(reader)
            self.waiting += 1
            self.waiting_max = max(self.waiting, self.waiting_max)
            await self.open.wait()
            self.waiting -= 1
            writer.write(OK)


@contextlib.asynccontextmanager
async def having(pool: Pool) -> AsyncIterator[Pool]:
    try:
        yield pool
    finally:
        pool.close()


@both_loops
def test_connection_is_reused(new_loop: NewLoop) -> None:
    async def body() -> None:
        async with serving(always(OK)) as server, having(Pool()) as pool:
            for _ in range(10):
                assert (await pool.request(server.url, "GET", "/")).body == b"ok"
            assert (server.connections, pool.count_open(server.url)) == (1, 1)

    on_loop(body, new_loop)


@both_loops
def test_requests_above_the_connection_limit_wait(new_loop: NewLoop) -> None:
    async def body() -> None:
        gate = Gate()
        async with serving(gate.serve) as server, having(Pool(open_max=3, idle_max=2)) as pool:
            tasks = [asyncio.create_task(pool.request(server.url, "GET", "/")) for _ in range(20)]
            await until(lambda: gate.waiting == 3)
            gate.open.set()
            assert {answer.body for answer in await asyncio.gather(*tasks)} == {b"ok"}
            assert gate.waiting_max == 3
            assert pool.count_open(server.url) == 2

    on_loop(body, new_loop)


@both_loops
def test_timeout_includes_waiting_for_a_connection(new_loop: NewLoop) -> None:
    async def body() -> None:
        async with serving(silent) as server, having(Pool(open_max=1)) as pool:
            first = asyncio.create_task(pool.request(server.url, "GET", "/"))
            await until(lambda: pool.count_open(server.url) == 1)
            with pytest.raises(TimedOut, match="busy") as caught:
                await pool.request(server.url, "GET", "/", timeout_s=0.05)
            assert not caught.value.sent
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
            assert pool.count_open(server.url) == 0, "a cancelled request leaves no connection"

    on_loop(body, new_loop)


@both_loops
def test_dead_idle_connection_is_replaced(new_loop: NewLoop) -> None:
    async def body() -> None:
        async with serving(once(OK)) as server, having(Pool()) as pool:
            for _ in range(5):
                assert (await pool.request(server.url, "GET", "/")).body == b"ok"
                await until(lambda: _died(pool, server))
            assert server.connections == 5

    on_loop(body, new_loop)


def _died(pool: Pool, server: Server) -> bool:
    """The server closed the connection, whether or not the event loop has processed it."""
    return all(not idle.connection.is_usable for idle in pool._servers[server.url].idle)


@both_loops
def test_idle_connections_expire(new_loop: NewLoop) -> None:
    async def body() -> None:
        async with serving(always(OK)) as server, having(Pool(idle_s=0.05)) as pool:
            await pool.request(server.url, "GET", "/")
            await until(lambda: pool.count_open(server.url) == 0)
            await until(lambda: not pool._servers)
            assert (await pool.request(server.url, "GET", "/")).body == b"ok"
            assert server.connections == 2

    on_loop(body, new_loop)


@both_loops
def test_failed_connect_releases_its_slot(new_loop: NewLoop) -> None:
    async def body() -> None:
        async with serving(always(OK)) as server:
            url = server.url
        async with having(Pool(open_max=1)) as pool:
            for _ in range(3):
                with pytest.raises(Disconnected) as caught:
                    await pool.request(url, "GET", "/")
                assert not caught.value.sent
            assert pool.count_open(url) == 0

    on_loop(body, new_loop)


@both_loops
def test_closed_pool_fails_requests(new_loop: NewLoop) -> None:
    async def body() -> None:
        async with serving(silent) as server:
            pool = Pool()
            task = asyncio.create_task(pool.request(server.url, "GET", "/"))
            await until(lambda: pool.count_open(server.url) == 1)
            pool.close()
            with pytest.raises(Disconnected) as caught:
                await task
            assert caught.value.sent
            with pytest.raises(Disconnected, match="pool is closed") as caught:
                await pool.request(server.url, "GET", "/")
            assert not caught.value.sent

    on_loop(body, new_loop)
