"""Networks of brokers on real sockets in one event loop, with all their callbacks recorded."""

import asyncio
import random
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvloop

from flotilla_broker.peers import AddressBook, PeerConfig, PeerNetwork, PeerTls
from flotilla_broker.peers.connection import Connection

A, B, C = "a" * 32, "b" * 32, "c" * 32
SECRET = b"something that only brokers know"
HOST = "127.0.0.1"
MIB = 1 << 20
QUICK = PeerConfig(
    frame_bytes_max=4 * MIB,
    write_bytes_high=MIB,
    write_bytes_max=6 * MIB,
    handshake_s=1.0,
    ping_s=0.5,
    silence_s=5.0,
    backoff_s_min=0.005,
    backoff_s_max=0.02,
    settled_s=0.2,
)
_TEST_S_MAX = 20

both_loops = pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])


def on_loop(
    body: Callable[[], Coroutine[Any, Any, None]],
    new_loop: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop,
) -> None:
    """Run a coroutine of a test with a timeout; an unhandled error in the event loop fails the test."""
    unseen: list[dict[str, Any]] = []

    async def bounded() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unseen.append(context))
        async with asyncio.timeout(_TEST_S_MAX):
            await body()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(bounded())
    assert unseen == []


class Broker:
    """A network and its callbacks in order, as (kind, peer) or ("frame", peer, body)."""

    def __init__(
        self,
        me: str,
        *,
        secret: bytes | None = SECRET,
        start: bytes = b"",
        config: PeerConfig = QUICK,
        tls: PeerTls | None = None,
    ) -> None:
        self.me = me
        self.book = AddressBook()
        self.events: list[tuple[Any, ...]] = []
        self.hook: Callable[[str, str], None] = lambda what, peer: None  # noqa: ARG005 - called within each callback
        self._changed = asyncio.Event()
        self.network = PeerNetwork(
            me,
            secret,
            self.book,
            on_connected=lambda peer: self._note("connected", peer),
            on_disconnected=lambda peer: self._note("disconnected", peer),
            on_frame=lambda peer, body: self._note("frame", peer, body),
            on_writable=lambda peer: self._note("writable", peer),
            start=start,
            config=config,
            tls=tls,
            rng=random.Random(7),
        )

    def _note(self, what: str, peer: str, *body: memoryview) -> None:
        self.events.append((what, peer, *body))
        self._changed.set()
        self.hook(what, peer)

    @property
    def address(self) -> tuple[str, int]:
        return HOST, self.network.port

    @property
    def kinds(self) -> list[str]:
        return [event[0] for event in self.events]

    @property
    def frames(self) -> list[bytes]:
        return [bytes(event[2]) for event in self.events if event[0] == "frame"]

    def connection(self, peer: str) -> Connection:
        return self.network._sessions.current[peer]

    def transport(self, peer: str) -> asyncio.Transport:
        transport = self.connection(peer)._transport
        assert transport is not None
        return transport

    async def until(self, reached: Callable[[], bool]) -> None:
        """Wait until a callback of this broker makes a condition true."""
        while not reached():
            self._changed.clear()
            await self._changed.wait()

    async def until_connected(self, *peers: str) -> None:
        await self.until(lambda: self.network.connected == set(peers))

    async def until_kinds(self, *kinds: str) -> None:
        await self.until(lambda: self.kinds[-len(kinds) :] == list(kinds))


@asynccontextmanager
async def started(*brokers: Broker, meet: bool = True) -> AsyncIterator[None]:
    """Start brokers that know each other, wait until all are connected, and close them at the end."""
    try:
        for broker in brokers:
            await broker.network.start(HOST, 0)
        if meet:
            introduce(*brokers)
            for broker in brokers:
                await broker.until_connected(*(other.me for other in brokers if other is not broker))
        yield
    finally:
        for broker in brokers:
            await broker.network.close()


def introduce(*brokers: Broker) -> None:
    for broker in brokers:
        broker.book.update({other.me: other.address for other in brokers})


async def until(reached: Callable[[], bool]) -> None:
    """Poll until a condition is true that no callback reports."""
    while not reached():  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(0.002)


async def stranger(
    broker: Broker, tls: ssl.SSLContext | None = None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(*broker.address, ssl=tls, server_hostname=HOST if tls else None)


async def is_closed(reader: asyncio.StreamReader) -> bool:
    """Wait until the other side closes the connection, ignoring what it sends before."""
    try:
        while await reader.read(1 << 16):
            pass
    except OSError:
        pass
    return True
