"""Mutual TLS between brokers."""

import asyncio
import dataclasses
import ssl
from collections.abc import Callable

import pytest
import trustme

from flotilla_broker.peers import PeerTls
from unit.peers.harness import (
    HOST,
    MIB,
    QUICK,
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


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA(key_type=trustme.KeyType.ECDSA)


def contexts(authority: trustme.CA, host: str = HOST) -> PeerTls:
    certificate = authority.issue_cert(host, key_type=trustme.KeyType.ECDSA)
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for context in (server, client):
        context.verify_mode = ssl.CERT_REQUIRED
        authority.configure_trust(context)
        certificate.configure_cert(context)
    return PeerTls(server, client)


@both_loops
def test_brokers_with_certificates_connect_and_exchange_frames(authority: trustme.CA, new_loop: NewLoop) -> None:
    async def body() -> None:
        one, two = Broker(A, tls=contexts(authority)), Broker(B, tls=contexts(authority))
        sent = [b"small", b"x" * 20_000, bytes(3 * MIB), b"last"]
        async with started(one, two):
            assert one.transport(B).get_extra_info("ssl_object") is not None
            for sender, receiver in ((one, two), (two, one)):
                for frame in sent:
                    assert sender.network.send(receiver.me, [frame[:3], memoryview(frame)[3:]])
                await receiver.until(lambda receiver=receiver: len(receiver.frames) == len(sent))  # type: ignore[misc]
                assert receiver.frames == sent
            two.book.update({})
            await one.until_kinds("disconnected")

    on_loop(body, new_loop)


@both_loops
def test_paused_reader_makes_the_peer_unwritable_until_it_resumes(authority: trustme.CA, new_loop: NewLoop) -> None:
    async def body() -> None:
        one, two = Broker(A, tls=contexts(authority)), Broker(B, tls=contexts(authority))
        async with started(one, two):
            two.transport(A).pause_reading()
            sent = 0
            while one.network.writable(B):
                one.network.send(B, [bytes(MIB // 4)])
                sent += 1
                await asyncio.sleep(0)
                assert sent < 200
            two.transport(A).resume_reading()
            await one.until_kinds("connected", "writable")
            await two.until(lambda: len(two.events) == 1 + sent)

    on_loop(body, new_loop)


@both_loops
def test_client_without_a_certificate_is_rejected(
    authority: trustme.CA, new_loop: NewLoop, caplog: pytest.LogCaptureFixture
) -> None:
    async def body() -> None:
        two = Broker(B, tls=contexts(authority))
        async with started(two, meet=False):
            bare = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            authority.configure_trust(bare)
            reader, writer = await stranger(two, bare)
            assert await is_closed(reader)
            writer.transport.abort()
            await until(lambda: bool(caplog.records))

    on_loop(body, new_loop)
    assert "certificate" in caplog.text.lower()


@both_loops
@pytest.mark.parametrize("wrong", ["authority", "host", "none", "secret"])
def test_brokers_that_do_not_trust_each_other_never_connect(
    authority: trustme.CA, new_loop: NewLoop, wrong: str
) -> None:
    """Plain connections are rejected, too, and a certificate does not replace the secret."""
    other = {
        "authority": contexts(trustme.CA(key_type=trustme.KeyType.ECDSA)),
        "host": contexts(authority, "elsewhere.example"),
        "none": None,
        "secret": contexts(authority),
    }[wrong]

    async def body() -> None:
        one = Broker(A, tls=contexts(authority))
        two = Broker(B, tls=other, secret=b"wrong" if wrong == "secret" else b"something that only brokers know")
        async with started(one, two, meet=False):
            introduce(one, two)
            dialer = one.network._dialers[B]
            await until(lambda: bool(dialer._logged))
            assert one.events == two.events == []

    on_loop(body, new_loop)


@both_loops
def test_connections_that_stop_during_the_tls_handshake_are_counted_and_closed(
    authority: trustme.CA, new_loop: NewLoop
) -> None:
    async def body() -> None:
        two = Broker(B, tls=contexts(authority), config=dataclasses.replace(QUICK, handshake_s=0.2))
        async with started(two, meet=False):
            listener = two.network._listener
            assert listener is not None
            silent, silent_writer = await stranger(two)
            noisy, noisy_writer = await stranger(two)
            noisy_writer.write(b"\x16\x03\x01\x02\x00\x01 and then nothing sensible")
            await until(lambda: len(listener._unauthenticated) >= 1)
            assert await is_closed(silent)
            assert await is_closed(noisy)
            await until(lambda: not listener._unauthenticated and not listener._accepted)
            for writer in (silent_writer, noisy_writer):
                writer.transport.abort()

    on_loop(body, new_loop)
