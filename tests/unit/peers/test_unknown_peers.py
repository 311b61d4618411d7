"""Unauthenticated connections to the peer port: they are limited, closed, and affect no peer."""

import asyncio
import contextlib
import dataclasses
import random
import socket
from collections.abc import Callable

import pytest

from flotilla_broker.peers.framing import PING, encode_head
from flotilla_broker.peers.handshake import Dialing
from unit.peers.harness import (
    HOST,
    QUICK,
    SECRET,
    A,
    B,
    Broker,
    both_loops,
    introduce,
    is_closed,
    on_loop,
    started,
    stranger,
    until,
)

NewLoop = Callable[[], asyncio.AbstractEventLoop]


def framed(body: bytes) -> bytes:
    return encode_head([body])[0] + body


def hello() -> bytes:
    first = Dialing(A, B, SECRET, bytes(32)).start()
    assert first is not None
    return framed(first)


def noise(rng: random.Random) -> bytes:
    """Random bytes, after a prefix that gets some of them further."""
    body = rng.randbytes(rng.choice((1, 8, 33, 73, 500, 3000)))
    return rng.choice((b"", hello(), hello()[: rng.randrange(80)], hello() + framed(bytes(32)))) + rng.choice(
        (body, framed(body), bytes(rng.randrange(100)))
    )


@both_loops
def test_noise_on_the_port_affects_no_peer(new_loop: NewLoop) -> None:
    async def body() -> None:
        rng = random.Random(3)
        one, two = Broker(A), Broker(B)

        async def pester() -> None:
            for _ in range(15):
                reader, writer = await stranger(two)
                writer.write(noise(rng))
                if rng.random() < 0.7:
                    writer.write_eof()
                    await is_closed(reader)
                writer.transport.abort()

        async with started(one, two):
            await asyncio.gather(*(pester() for _ in range(10)))
            one.network.send(B, [b"still here"])
            await two.until_kinds("connected", "frame")
            await until(lambda: len(two.network._connections) == 1)
            assert one.kinds == ["connected"]

    on_loop(body, new_loop)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "the limit is 512"),
        (framed(bytes(513)), "frame has 513 bytes, the limit is 512"),
        (framed(bytes(512)), "invalid handshake message"),
        (PING, "too short"),
        (framed(b"x")[:-1] + b"y", "checksum"),
        (hello() + framed(bytes(32)), "has another secret"),
        (hello()[:20], "handshake timed out after 0.1 s"),
        (b"", "handshake timed out after 0.1 s"),
        (hello(), "handshake timed out after 0.1 s"),
    ],
)
def test_unauthenticated_connection_is_closed_with_a_reason(
    data: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def body() -> None:
        two = Broker(B, config=dataclasses.replace(QUICK, handshake_s=0.1))
        async with started(two, meet=False):
            two.book.update({A: (HOST, 1)})
            reader, writer = await stranger(two)
            writer.write(data)
            assert await is_closed(reader)
            writer.close()
            await until(lambda: bool(caplog.records))
        assert two.events == []

    on_loop(body)
    assert reason in caplog.text
    assert SECRET.decode() not in caplog.text


@both_loops
def test_unauthenticated_connections_over_the_limit_are_closed_and_time_out(new_loop: NewLoop) -> None:
    """Others can connect when the handshakes have timed out."""

    async def body() -> None:
        one, two = Broker(A), Broker(B, config=dataclasses.replace(QUICK, unauthenticated_max=3, handshake_s=0.3))
        async with started(one, two, meet=False):
            held = [await stranger(two) for _ in range(3)]
            listener = two.network._listener
            assert listener is not None
            await until(lambda: len(listener._unauthenticated) == 3)
            reader, writer = await stranger(two)
            assert await is_closed(reader)
            assert len(listener._unauthenticated) == 3
            introduce(one, two)
            await asyncio.gather(one.until_connected(B), two.until_connected(A))
            for _, other in (*held, (reader, writer)):
                other.transport.abort()

    on_loop(body, new_loop)


def test_accepted_connections_are_limited(caplog: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        one, two = Broker(A), Broker(B, config=dataclasses.replace(QUICK, connections_max=1))
        async with started(one, two):
            reader, writer = await stranger(two)
            assert await is_closed(reader)
            writer.close()
            assert two.network.connected == {A}
            one.transport(B).abort()
            await two.until(lambda: two.kinds == ["connected", "disconnected", "connected"])

    on_loop(body)
    assert "connections_max=1" in caplog.text


@both_loops
def test_connection_accepted_during_close_is_closed(new_loop: NewLoop) -> None:
    async def body() -> None:
        two = Broker(B)
        async with started(two, meet=False):
            listener = two.network._listener
            assert listener is not None
            assert listener._socket is not None
            with socket.create_connection(two.address) as sock:
                listener._accept(listener._socket)
                await two.network.close()
                sock.settimeout(5)
                with contextlib.suppress(ConnectionResetError):
                    assert sock.recv(1) == b""

    on_loop(body, new_loop)


def test_many_rejections_are_a_few_log_lines(caplog: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        two = Broker(B)
        async with started(two, meet=False):
            for _ in range(50):
                reader, writer = await stranger(two)
                writer.write(bytes(9))
                assert await is_closed(reader)
                writer.close()

    on_loop(body)
    assert 1 <= len(caplog.records) <= 3


def test_oversized_or_damaged_frame_closes_the_connection() -> None:
    async def body() -> None:
        one, two = Broker(A), Broker(B)
        async with started(one, two):
            for count, data in enumerate((framed(b"x")[:-1] + b"y", b"\xff" * 8), start=1):
                one.transport(B).write(framed(b"good") + data + framed(b"never read"))
                await two.until(lambda count=count: two.kinds.count("disconnected") == count)  # type: ignore[misc]
                await two.until_connected(A)
                await one.until(lambda count=count: one.kinds.count("connected") == count + 1)  # type: ignore[misc]
            assert two.frames == [b"good", b"good"]

    on_loop(body)


def test_broker_at_the_address_of_another_is_rejected() -> None:
    async def body() -> None:
        one, other = Broker(A), Broker("d" * 32)
        async with started(one, other, meet=False):
            other.book.update({A: one.address})
            one.book.update({B: other.address})
            dialer = one.network._dialers[B]
            await until(lambda: "during the handshake" in dialer._logged)
            assert one.events == other.events == []

    on_loop(body)


def test_listener_waits_while_the_system_has_no_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body() -> None:
        one, two = Broker(A), Broker(B)
        async with started(one, two, meet=False):
            listener = two.network._listener
            assert listener is not None
            assert listener._socket is not None
            real, failures = listener._socket, [OSError(24, "Too many open files")] * 2

            class Full:
                def accept(self) -> object:
                    if failures:
                        raise failures.pop()
                    return real.accept()

                def fileno(self) -> int:
                    return real.fileno()

                def close(self) -> None:
                    real.close()

            listener._loop.remove_reader(real)
            monkeypatch.setattr(listener, "_socket", Full())
            listener._resume()
            introduce(one, two)
            await one.until_connected(B)
            assert not failures

    on_loop(body)
