"""A connection with faulty servers: no hanging, and correct `sent` of errors."""

import asyncio
import socket
import struct

import pytest

from flotilla.net import Connection, Disconnected, InvalidResponse, TimedOut
from unit.net.harness import OK, NewLoop, always, both_loops, on_loop, once, read_request, serving, silent, until


@both_loops
def test_requests_are_answered_in_sequence(new_loop: NewLoop) -> None:
    async def body() -> None:
        seen: list[tuple[bytes, bytes]] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while True:
                seen.append(await read_request(reader))
                writer.write(b"HTTP/1.1 201 Created\r\nX-One: 1\r\ncontent-length: 7\r\n\r\n" + b'{"a":1}')

        async with serving(serve) as server:
            connection = await Connection.open(server.url)
            first = await connection.request("POST", "/a?b=c", b"body", [("x-mine", "yes")])
            second = await connection.request("GET", "/")
            assert (first.status, first.headers[b"x-one"], first.json()) == (201, b"1", {"a": 1})
            assert second == first
            assert seen[0][0].startswith(b"POST /a?b=c HTTP/1.1\r\n")
            assert f"\r\nHost: {server.url[7:]}\r\n".encode() in seen[0][0]
            assert b"\r\nx-mine: yes\r\n" in seen[0][0]
            assert [content for _, content in seen] == [b"body", b""]
            assert connection.is_usable
            connection.close()

    on_loop(body, new_loop)


@both_loops
def test_response_may_arrive_in_chunks_and_fragments(new_loop: NewLoop) -> None:
    async def body() -> None:
        whole = (
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n6\r\n world\r\n0\r\nx-end: 1\r\n\r\n"
        )
        async with serving(always(*(bytes([byte]) for byte in whole))) as server:
            connection = await Connection.open(server.url)
            for _ in range(2):
                answer = await connection.request("GET", "/")
                assert answer.body == b"hello world"
            connection.close()

    on_loop(body, new_loop)


def test_ipv6_server_is_reachable() -> None:
    if not socket.has_ipv6:
        pytest.skip("there is no IPv6 on this machine")

    async def body() -> None:
        async with serving(always(OK), "::1") as server:
            connection = await Connection.open(server.url)
            assert (await connection.request("GET", "/")).body == b"ok"
            connection.close()

    on_loop(body)


@both_loops
def test_refused_connection_sent_nothing(new_loop: NewLoop) -> None:
    async def body() -> None:
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))  # bound, but not listening
            with pytest.raises(Disconnected, match="cannot connect to") as caught:
                await Connection.open(f"http://127.0.0.1:{sock.getsockname()[1]}")
        assert not caught.value.sent

    on_loop(body, new_loop)


def test_unknown_host_sent_nothing() -> None:
    async def body() -> None:
        with pytest.raises(Disconnected) as caught:
            await Connection.open("http://no-such-host.invalid:1")
        assert not caught.value.sent

    on_loop(body)


def test_host_that_no_header_can_have_sent_nothing() -> None:
    """Resolvers accept such a host: here, they read the first character as a digit."""

    async def body() -> None:
        async with serving(always(OK)) as server:
            with pytest.raises(Disconnected, match="cannot connect to") as caught:
                await Connection.open(server.url.replace("127", "\u246027"))
        assert not caught.value.sent

    on_loop(body)


@both_loops
def test_outcome_is_unknown_if_the_connection_ends_before_the_response(new_loop: NewLoop) -> None:
    async def body() -> None:
        async with serving(once(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")) as server:
            connection = await Connection.open(server.url)
            with pytest.raises(Disconnected, match="lost") as caught:
                await connection.request("GET", "/")
            assert caught.value.sent
            with pytest.raises(Disconnected, match="closed") as caught:
                await connection.request("GET", "/")
            assert not caught.value.sent, "the second was never written"

    on_loop(body, new_loop)


@both_loops
def test_outcome_is_unknown_if_the_connection_is_reset(new_loop: NewLoop) -> None:
    async def body() -> None:
        async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_request(reader)
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

        async with serving(reset) as server:
            connection = await Connection.open(server.url)
            with pytest.raises(Disconnected) as caught:
                await connection.request("POST", "/", bytes(1000))
            assert caught.value.sent

    on_loop(body, new_loop)


@both_loops
def test_closed_connection_is_detected_before_the_next_request(new_loop: NewLoop) -> None:
    """Also before the event loop has processed it: nothing is sent over a closed connection."""

    async def body() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            connection = await Connection.open(f"http://127.0.0.1:{listener.getsockname()[1]}")
            served, _ = listener.accept()
            assert connection.is_usable
            served.close()
            assert not connection.is_usable
            connection.close()

    on_loop(body, new_loop)


@both_loops
def test_timeout_closes_the_connection_with_unknown_outcome(new_loop: NewLoop) -> None:
    async def body() -> None:
        async with serving(silent) as server:
            connection = await Connection.open(server.url)
            with pytest.raises(TimedOut, match=r"0\.05 s") as caught:
                await connection.request("GET", "/", timeout_s=0.05)
            assert caught.value.sent
            assert isinstance(caught.value, TimeoutError)
            assert not connection.is_open

    on_loop(body, new_loop)


@both_loops
def test_cancelled_request_closes_the_connection(new_loop: NewLoop) -> None:
    """A late response must not be taken for the response to the next request."""

    async def body() -> None:
        async with serving(silent) as server:
            connection = await Connection.open(server.url)
            task = asyncio.create_task(connection.request("GET", "/"))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not connection.is_open

    on_loop(body, new_loop)


@pytest.mark.parametrize(
    "answer",
    [
        b"nonsense\r\n\r\n",
        b"\x00\x01\x02\x03\x04\x05\x06\x07",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2000\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: " + b"9" * 300 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nfff\r\n" + bytes(0xFFF),
        b"HTTP/1.1 200 OK\r\nx: " + b"x" * (400 << 10),
        b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 100_000,
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n" + b"x: y\r\n" * 200_000,
    ],
    ids=lambda answer: repr(answer[:60]),
)
@both_loops
def test_malformed_or_too_large_response_raises(new_loop: NewLoop, answer: bytes) -> None:
    async def body() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_request(reader)
            writer.write(answer)
            await reader.read()  # until the client hangs up

        async with serving(serve) as server:
            connection = await Connection.open(server.url, bytes_max=1000)
            with pytest.raises(InvalidResponse) as caught:
                await connection.request("GET", "/")
            assert caught.value.sent
            assert not connection.is_open

    on_loop(body, new_loop)


@both_loops
def test_unsolicited_data_closes_the_connection(new_loop: NewLoop) -> None:
    """A second response would be taken for that to the next request."""

    async def body() -> None:
        async with serving(always(OK + OK)) as server:
            connection = await Connection.open(server.url)
            assert (await connection.request("GET", "/")).body == b"ok"
            await until(lambda: not connection.is_open)

        async def respond(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(OK)

        async with serving(respond) as server:
            connection = await Connection.open(server.url)
            await until(lambda: not connection.is_open)

    on_loop(body, new_loop)


@both_loops
def test_informational_responses_are_skipped(new_loop: NewLoop) -> None:
    async def body() -> None:
        async with serving(
            always(b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\na: b\r\n\r\n", OK)
        ) as server:
            connection = await Connection.open(server.url)
            answer = await connection.request("GET", "/")
            assert (answer.status, answer.body, b"a" in answer.headers) == (200, b"ok", False)
            connection.close()

    on_loop(body, new_loop)


@both_loops
def test_connection_close_is_respected(new_loop: NewLoop) -> None:
    async def body() -> None:
        async with serving(always(OK.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"))) as server:
            connection = await Connection.open(server.url)
            assert (await connection.request("GET", "/")).body == b"ok"
            assert not connection.is_open

    on_loop(body, new_loop)


@pytest.mark.parametrize(
    ("method", "target", "headers"),
    [
        ("GET", "/a b", []),
        ("GET", "/a\r\nx: y", []),
        ("GET", "/ü", []),
        ("GET", "a", []),
        ("GET\r\n", "/", []),
        ("HEAD", "/", []),
        ("GET", "/", [("a", "b\r\nc: d")]),
        ("GET", "/", [("a\n", "b")]),
    ],
)
def test_request_with_line_breaks_raises_value_error(method: str, target: str, headers: list[tuple[str, str]]) -> None:
    async def body() -> None:
        async with serving(always(OK)) as server:
            connection = await Connection.open(server.url)
            with pytest.raises(ValueError, match=r"invalid request|line break"):
                await connection.request(method, target, headers=headers)
            assert (await connection.request("GET", "/")).body == b"ok"
            with pytest.raises(ValueError, match="base URL"):
                await Connection.open("ftp://127.0.0.1:1")
            connection.close()

    on_loop(body)


def test_second_concurrent_request_raises() -> None:
    async def body() -> None:
        async with serving(silent) as server:
            connection = await Connection.open(server.url)
            task = asyncio.create_task(connection.request("GET", "/"))
            await asyncio.sleep(0)
            with pytest.raises(RuntimeError, match="already in flight"):
                await connection.request("GET", "/")
            connection.close()
            with pytest.raises(Disconnected, match="was closed"):
                await task

    on_loop(body)


@both_loops
def test_large_bodies_are_sent_and_received(new_loop: NewLoop) -> None:
    async def body() -> None:
        content = bytes(range(256)) * (16 << 10)

        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while True:
                _, received = await read_request(reader)
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(received) + received)
                await writer.drain()

        async with serving(echo) as server:
            connection = await Connection.open(server.url)
            for kind in (bytes, bytearray, memoryview):
                assert (await connection.request("POST", "/", kind(content))).body == content
            connection.close()

    on_loop(body, new_loop)
