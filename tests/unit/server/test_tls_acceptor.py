"""TLS handshakes are limited in number and time: a silent client does not block others."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import ClassVar, cast

import pytest
import trustme

from flotilla_server.server import listen
from flotilla_server.tls_acceptor import TlsAcceptor
from support import certificates
from unit.net.harness import NewLoop, both_loops, on_loop, until

HOST = "127.0.0.1"
MAX = 5


class Echo(asyncio.Protocol):
    """An echo protocol that disconnects on `bye`."""

    ended: ClassVar[list["Echo"]] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if data == b"bye":
            self._transport.close()
        else:
            self._transport.write(data)

    def connection_lost(self, _: Exception | None) -> None:
        self.ended.append(self)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return certificates.make_authority()


@asynccontextmanager
async def accepting(authority: trustme.CA, handshake_s: float = 10.0) -> AsyncIterator[tuple[TlsAcceptor, int]]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(HOST).configure_cert(context)
    with listen(HOST, 0) as sock:
        acceptor = TlsAcceptor(sock, Echo, context, handshakes_max=MAX, handshake_s=handshake_s)
        try:
            yield acceptor, sock.getsockname()[1]
        finally:
            acceptor.close()
            await acceptor.wait_closed()
            assert acceptor.handshakes == 0


async def echo(authority: trustme.CA, port: int) -> bytes:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    reader, writer = await asyncio.open_connection(HOST, port, ssl=context)
    writer.write(b"hello")
    found = await reader.read(5)
    writer.transport.abort()
    return found


def is_cut_off(sock: socket.socket) -> Callable[[], bool]:
    """Return whether the peer has disconnected, without waiting."""
    sock.setblocking(False)

    def ask() -> bool:
        with contextlib.suppress(BlockingIOError):
            try:
                return sock.recv(1 << 16) == b""
            except ConnectionResetError:
                return True
        return False

    return ask


@both_loops
def test_silent_connections_are_limited_and_make_room_when_they_close(authority: trustme.CA, new_loop: NewLoop) -> None:
    async def body() -> None:
        async with accepting(authority) as (acceptor, port):
            assert await echo(authority, port) == b"hello"
            await until(lambda: acceptor.handshakes == 0)
            silent = [socket.create_connection((HOST, port)) for _ in range(MAX)]
            await until(lambda: acceptor.handshakes == MAX)
            more = socket.create_connection((HOST, port))
            await until(is_cut_off(more))
            more.close()
            assert acceptor.handshakes == MAX
            for sock in silent:
                sock.close()
            await until(lambda: acceptor.handshakes == 0)
            assert await echo(authority, port) == b"hello"

    on_loop(body, new_loop)


@both_loops
def test_incomplete_handshake_is_cut_off(authority: trustme.CA, new_loop: NewLoop) -> None:
    """Without any data, with half of a handshake, and with other data."""

    async def body() -> None:
        async with accepting(authority, handshake_s=0.2) as (acceptor, port):
            for said in (b"", b"\x16\x03\x01\x02\x00\x01\x00", b"GET / HTTP/1.1\r\n\r\n"):
                with socket.create_connection((HOST, port)) as sock:
                    sock.sendall(said)
                    await until(is_cut_off(sock))
            await until(lambda: acceptor.handshakes == 0)
            assert await echo(authority, port) == b"hello"

    on_loop(body, new_loop)


@both_loops
def test_connection_without_tls_shutdown_is_cut_off(authority: trustme.CA, new_loop: NewLoop) -> None:
    """A client that is gone or keeps its side open does not hold a connection that the server has closed."""

    async def body() -> None:
        context = ssl.create_default_context()
        authority.configure_trust(context)
        async with accepting(authority, handshake_s=0.2) as (_, port):
            with socket.create_connection((HOST, port)) as plain:
                sock = await asyncio.to_thread(context.wrap_socket, plain, server_hostname=HOST)
                with sock:
                    Echo.ended.clear()  # of the earlier connections
                    sock.sendall(b"bye")
                    await until(lambda: bool(Echo.ended))

    on_loop(body, new_loop)


@both_loops
def test_shutdown_does_not_wait_for_handshakes(authority: trustme.CA, new_loop: NewLoop) -> None:
    async def body() -> None:
        async with accepting(authority) as (acceptor, port):
            silent = [socket.create_connection((HOST, port)) for _ in range(MAX)]
            await until(lambda: acceptor.handshakes == MAX)
        for sock in silent:
            await until(is_cut_off(sock))
            sock.close()

    on_loop(body, new_loop)
