"""Minimal servers over real sockets, with scripted responses."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvloop

NewLoop = Callable[[], asyncio.AbstractEventLoop]
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

both_loops = pytest.mark.parametrize(
    "new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


def on_loop(body: Callable[[], Coroutine[Any, Any, None]], new_loop: NewLoop = asyncio.new_event_loop) -> None:
    """Run a test on an event loop of its own, for at most ten seconds."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(asyncio.wait_for(body(), 10))


async def read_request(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Read one request with its body."""
    head = await reader.readuntil(b"\r\n\r\n")
    size = next(int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length"))
    return head, await reader.readexactly(size)


class Server:
    """Handles every connection with `serve`, and counts connections."""

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self._tasks: set[asyncio.Task[None]] = set()
        self.connections = 0
        self.url = ""

    async def on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._serve(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            return  # the client has left, or the test is over
        finally:
            writer.close()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def serving(serve: Serve, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    """Run a server."""
    made = Server(serve)
    listener = await asyncio.start_server(made.on_connection, host, 0, ssl=tls)
    port = listener.sockets[0].getsockname()[1]
    scheme = "http" if tls is None else "https"
    made.url = f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
    try:
        yield made
    finally:
        listener.close()
        await made.close()


def always(*answers: bytes) -> Serve:
    """Respond to each request with the same bytes, and keep the connection open."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await read_request(reader)
            for part in answers:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0)

    return serve


def once(answer: bytes) -> Serve:
    """Respond to one request, and close the connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(answer)
        await writer.drain()

    return serve


async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    """Read everything, and do not respond."""
    while await reader.read(1 << 16):
        continue


async def until(holds: Callable[[], bool]) -> None:
    """Wait for a condition."""
    while not holds():  # noqa: ASYNC110 - the state has no event
        await asyncio.sleep(0.005)
