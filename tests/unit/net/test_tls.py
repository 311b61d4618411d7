"""Requests over TLS: certificates are verified; otherwise they behave as without TLS."""

import asyncio
import select
import socket
import ssl
import threading
from pathlib import Path

import pytest
import trustme

from flotilla.net import Connection, Disconnected, Pool, TimedOut
from support import certificates
from unit.net.harness import OK, NewLoop, always, both_loops, on_loop, once, read_request, serving, silent, until

MIB = 1 << 20


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return certificates.make_authority()


@pytest.fixture
def client(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


def server_context(authority: trustme.CA, *hosts: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*(hosts or ("127.0.0.1",))).configure_cert(context)
    return context


@both_loops
def test_requests_are_answered_in_sequence(authority: trustme.CA, client: ssl.SSLContext, new_loop: NewLoop) -> None:
    async def body() -> None:
        seen: list[bytes] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while True:
                head, content = await read_request(reader)
                seen.append(head)
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(content) + content)

        sent = bytes(range(256)) * (3 * MIB // 256)
        async with serving(serve, tls=server_context(authority)) as server:
            connection = await Connection.open(server.url, tls=client)
            for part in (b"", b"small", bytearray(sent), memoryview(sent), memoryview(sent)[5:]):
                assert (await connection.request("POST", "/", part)).body == bytes(part)
                assert await connection.check()
            assert f"\r\nHost: {server.url.removeprefix('https://')}\r\n".encode() in seen[0]
            connection.close()

    on_loop(body, new_loop)


@both_loops
@pytest.mark.parametrize("wrong", ["authority", "host"])
def test_nothing_is_sent_to_a_server_with_an_invalid_certificate(
    authority: trustme.CA, client: ssl.SSLContext, new_loop: NewLoop, wrong: str
) -> None:
    """Certainly no part of the request was sent to the wrong server."""
    seen: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.read(100))
        writer.close()

    signer = certificates.make_authority() if wrong == "authority" else authority
    context = server_context(signer, *(["elsewhere.example"] if wrong == "host" else []))

    async def body() -> None:
        pool = Pool(tls=client)
        async with serving(serve, tls=context) as server:
            with pytest.raises(Disconnected, match=r"certificate verify failed") as caught:
                await pool.request(server.url, "POST", "/", b"secret")
        assert not caught.value.sent
        pool.close()

    on_loop(body, new_loop)
    assert not any(seen)


@both_loops
def test_system_cas_are_the_default(authority: trustme.CA, new_loop: NewLoop) -> None:
    async def body() -> None:
        async with serving(always(OK), tls=server_context(authority)) as server:
            with pytest.raises(Disconnected, match="certificate verify failed"):
                await Connection.open(server.url)

    on_loop(body, new_loop)


@both_loops
def test_tls_on_one_side_only_fails_without_hanging(
    authority: trustme.CA, client: ssl.SSLContext, new_loop: NewLoop
) -> None:
    async def body() -> None:
        async with serving(once(OK), tls=server_context(authority)) as server:
            plain = await Connection.open(server.url.replace("https", "http"))
            with pytest.raises(Disconnected):
                await plain.request("GET", "/", timeout_s=5)

        async def puzzled(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(10)
            writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")

        async with serving(puzzled) as server:
            with pytest.raises(Disconnected) as caught:
                await Connection.open(server.url.replace("http", "https"), tls=client)
            assert not caught.value.sent
        async with serving(silent) as server:
            with pytest.raises(TimedOut) as caught:
                await Connection.open(server.url.replace("http", "https"), tls=client, timeout_s=0.1)
            assert not caught.value.sent

    on_loop(body, new_loop)


@both_loops
def test_session_tickets_do_not_break_an_idle_connection(
    authority: trustme.CA, client: ssl.SSLContext, new_loop: NewLoop
) -> None:
    """A server sends session tickets after the handshake, so an idle connection has data to read."""
    context = server_context(authority)
    assert context.num_tickets > 0

    async def body() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            finished, send_tickets = threading.Event(), threading.Event()
            server = threading.Thread(target=answer_once, args=(listener, context, finished, send_tickets))
            server.start()
            connection = await Connection.open(f"https://127.0.0.1:{listener.getsockname()[1]}", tls=client)
            await until(finished.is_set)
            assert connection.is_usable, "the tickets are held back"
            send_tickets.set()
            wait_readable(connection)
            assert not connection.is_usable, "the server sent data"
            assert await connection.check(), "the data was no response"
            assert (await connection.request("GET", "/")).body == b"ok"
            server.join()
            wait_readable(connection)
            assert not await connection.check(), "the server closed the connection"
            connection.close()

    on_loop(body, new_loop)


def answer_once(
    listener: socket.socket, context: ssl.SSLContext, finished: threading.Event, send_tickets: threading.Event
) -> None:
    """Respond once and close, in a thread, so that the test's event loop can stand still; tickets wait for a signal."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_side=True)
    sock, _ = listener.accept()
    with sock:
        sock.settimeout(10)
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                sock.sendall(outgoing.read())
                incoming.write(sock.recv(MIB))
        finished.set()
        send_tickets.wait(10)
        sock.sendall(outgoing.read())
        incoming.write(sock.recv(MIB))
        assert tls.read(MIB)
        tls.write(OK)
        sock.sendall(outgoing.read())


def wait_readable(connection: Connection) -> None:
    """Wait for data without letting the event loop read it."""
    assert connection._transport is not None
    fileno = connection._transport.get_extra_info("socket").fileno()
    assert select.select([fileno], [], [], 10)[0]


@both_loops
def test_closed_connection_is_detected_before_the_next_request(
    authority: trustme.CA, client: ssl.SSLContext, new_loop: NewLoop
) -> None:
    """The pool opens a new connection, and sends nothing over the closed one."""

    async def body() -> None:
        async with serving(once(OK), tls=server_context(authority)) as server:
            pool = Pool(tls=client)
            for _ in range(3):
                assert (await pool.request(server.url, "POST", "/", b"x")).body == b"ok"
                idle = pool._servers[server.url].idle
                await until(lambda idle=idle: all(not one.connection.is_usable for one in idle))  # type: ignore[misc]
            assert server.connections == 3
            pool.close()

    on_loop(body, new_loop)


@both_loops
def test_pool_reuses_tls_connections(authority: trustme.CA, client: ssl.SSLContext, new_loop: NewLoop) -> None:
    async def body() -> None:
        async with serving(always(OK), tls=server_context(authority)) as server:
            pool = Pool(tls=client)
            for _ in range(20):
                assert (await pool.request(server.url, "POST", "/", bytes(10_000))).body == b"ok"
            assert server.connections == 1
            await asyncio.gather(*(pool.request(server.url, "GET", "/") for _ in range(10)))
            assert 1 < server.connections <= 10
            pool.close()

    on_loop(body, new_loop)


@both_loops
def test_outcome_is_unknown_if_a_tls_response_is_truncated(
    authority: trustme.CA, client: ssl.SSLContext, new_loop: NewLoop
) -> None:
    async def body() -> None:
        half = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf"
        async with serving(once(half), tls=server_context(authority)) as server:
            connection = await Connection.open(server.url, tls=client)
            with pytest.raises(Disconnected, match="lost") as caught:
                await connection.request("GET", "/")
            assert caught.value.sent
            assert not connection.is_open

    on_loop(body, new_loop)


def test_certificate_files_are_accepted_by_servers(tmp_path: Path, authority: trustme.CA) -> None:
    files = certificates.write(tmp_path, authority)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.cert, files.key)
    assert files.client.get_ca_certs()
