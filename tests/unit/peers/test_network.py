"""Networks of brokers: dialing, frames, callbacks and closing."""

import asyncio
import dataclasses
import logging
from collections.abc import Callable

import pytest

from flotilla_broker.peers import PeersMisuse
from unit.peers.harness import (
    HOST,
    MIB,
    QUICK,
    SECRET,
    A,
    B,
    Broker,
    C,
    both_loops,
    introduce,
    on_loop,
    started,
    until,
)

QUICK_PINGS = dataclasses.replace(QUICK, ping_s=0.05, silence_s=0.2)
NewLoop = Callable[[], asyncio.AbstractEventLoop]


@both_loops
def test_every_pair_has_one_connection_dialed_by_the_smaller_id(new_loop: NewLoop) -> None:
    async def body() -> None:
        one, two, three = brokers = Broker(B), Broker(A), Broker(C)
        async with started(*brokers):
            assert [len(broker.network._connections) for broker in brokers] == [2, 2, 2]
            assert {peer: str(one.connection(peer).address) for peer in (C,)} == {C: f"{HOST}:{three.network.port}"}
            assert one.connection(A).address != f"{HOST}:{two.network.port}"
            assert [sorted(broker.network._dialers) for broker in brokers] == [[C], [B, C], []]
            assert [broker.network.version(B) for broker in brokers] == [None, 1, 1]
        assert all(
            sorted(broker.kinds) == ["connected", "connected", "disconnected", "disconnected"] for broker in brokers
        )
        assert all(not broker.network.connected for broker in brokers)

    on_loop(body, new_loop)


@both_loops
def test_frames_arrive_complete_and_in_order_in_both_directions(new_loop: NewLoop) -> None:
    async def body() -> None:
        one, two = Broker(A), Broker(B)
        large = bytes(range(256)) * (QUICK.frame_bytes_max // 256)
        sent = [b"%d" % n for n in range(1000)] + [large, b"x" * 20_000, b"after", large[:MIB], b"last"]
        async with started(one, two):
            for sender, receiver in ((one, two), (two, one)):
                for frame in sent:
                    if not sender.network.writable(receiver.me):
                        await sender.until_kinds("writable")
                    view = memoryview(frame)
                    assert sender.network.send(receiver.me, [view[:1], bytearray(view[1:5]), view[5:]])
            for receiver in (one, two):
                await receiver.until(lambda receiver=receiver: len(receiver.frames) == len(sent))  # type: ignore[misc]
                assert receiver.frames == sent

    on_loop(body, new_loop)


def test_invalid_frame_raises_at_the_sender() -> None:
    async def body() -> None:
        one, two = Broker(A), Broker(B)
        async with started(one, two):
            for wrong in ([], [b""], [bytes(MIB)] * 5):
                with pytest.raises(PeersMisuse):
                    one.network.send(B, wrong)
            one.network.send(B, [b"still connected"])
            await two.until_kinds("connected", "frame")

    on_loop(body)


def test_send_without_a_connection_does_nothing() -> None:
    async def body() -> None:
        one = Broker(A)
        assert not one.network.send(B, [b"before the start"])
        async with started(one, meet=False):
            assert not one.network.send(B, [b"to nobody"])
            assert not one.network.writable(B)
        assert not one.network.send(B, [b"after the end"])
        with pytest.raises(PeersMisuse):
            await one.network.start(HOST, 0)

    on_loop(body)


def test_port_in_use_is_reported_at_start() -> None:
    async def body() -> None:
        one, two = Broker(A), Broker(B)
        async with started(one, meet=False):
            with pytest.raises(OSError, match="in use"):
                await two.network.start(*one.address)
            await two.network.close()

    on_loop(body)


@both_loops
def test_restarted_peer_is_connected_again(new_loop: NewLoop) -> None:
    async def body() -> None:
        one, two = Broker(A), Broker(B)
        async with started(one, two):
            port = two.network.port
            await two.network.close()
            await one.until_kinds("connected", "disconnected")
            dialer = one.network._dialers[B]
            await until(lambda: "error=" in dialer._logged)
            again = Broker(B)
            await again.network.start(HOST, port)
            introduce(one, again)
            await asyncio.gather(one.until_connected(B), again.until_connected(A))
            await one.network.close()
            await again.until_kinds("connected", "disconnected")
            await again.network.close()

    on_loop(body, new_loop)


@pytest.mark.parametrize(("settled_s", "doublings"), [(0, 1), (1000, 4)])
def test_dial_delay_grows_unless_a_connection_was_stable(settled_s: float, doublings: int) -> None:
    async def body() -> None:
        one, two = Broker(A, config=dataclasses.replace(QUICK, settled_s=settled_s, backoff_s_max=0.2)), Broker(B)
        async with started(one, two):
            backoff = one.network._dialers[B]._backoff
            for count in range(1, 5):
                one.transport(B).abort()
                await one.until_kinds("connected", *["disconnected", "connected"] * count)
            assert backoff._next_s == 2**doublings * QUICK.backoff_s_min

    on_loop(body)


@both_loops
def test_second_connection_of_a_peer_replaces_the_first(new_loop: NewLoop) -> None:
    """The peer restarted before its old connection timed out: disconnected is reported first, then connected."""

    async def body() -> None:
        one, two, again = Broker(A), Broker(B), Broker(A)
        async with started(one, two), started(again, meet=False):
            two.network.send(A, [b"to the first"])
            await one.until_kinds("connected", "frame")
            one.hook = lambda what, _: one.book.update({}) if what == "disconnected" else None  # it does not come back
            again.book.update({B: two.address})
            await again.until_connected(B)
            await two.until(lambda: two.kinds == ["connected", "disconnected", "connected"])
            await one.until_kinds("frame", "disconnected")
            two.network.send(A, [b"to the second"])
            await again.until_kinds("connected", "frame")
            assert one.frames == [b"to the first"]

    on_loop(body, new_loop)


@both_loops
def test_clone_of_a_connected_broker_is_closed_until_that_broker_is_gone(
    new_loop: NewLoop, caplog: pytest.LogCaptureFixture
) -> None:
    """Two processes with one id: one runs on a copy of the other's data folder. The one that was there first stays."""

    async def body() -> None:
        one, two, clone = Broker(A, start=b"one"), Broker(B, start=b"two"), Broker(A, start=b"clone")
        async with started(one, two), started(clone, meet=False):
            clone.book.update({B: two.address})
            await clone.until_kinds("connected", "disconnected")
            assert two.kinds == ["connected"]
            two.network.send(A, [b"to the first"])
            await one.until_kinds("connected", "frame")
            await one.network.close()
            await two.until(lambda: two.kinds == ["connected", "disconnected", "connected"])
            two.network.send(A, [b"to its successor"])
            await clone.until_kinds("connected", "frame")

    on_loop(body, new_loop)
    assert "another process with the id of this broker is connected" in caplog.text


@both_loops
def test_second_connection_of_the_same_start_replaces_the_first(new_loop: NewLoop) -> None:
    """The peer has lost the first one, which this side has not noticed yet."""

    async def body() -> None:
        one, two, again = Broker(A, start=b"one"), Broker(B, start=b"two"), Broker(A, start=b"one")
        async with started(one, two), started(again, meet=False):
            one.hook = lambda what, _: one.book.update({}) if what == "disconnected" else None
            again.book.update({B: two.address})
            await again.until_connected(B)
            await two.until(lambda: two.kinds == ["connected", "disconnected", "connected"])

    on_loop(body, new_loop)


@pytest.mark.parametrize("secrets", [(SECRET, b"wrong"), (b"wrong", SECRET), (None, SECRET), (SECRET, None)])
def test_brokers_with_different_secrets_never_connect(
    secrets: tuple[bytes | None, bytes | None], caplog: pytest.LogCaptureFixture
) -> None:
    async def body() -> None:
        one, two = Broker(A, secret=secrets[0]), Broker(B, secret=secrets[1])
        async with started(one, two, meet=False):
            introduce(one, two)
            dialer = one.network._dialers[B]
            await until(lambda: "during the handshake" in dialer._logged)
            first = dialer._connection
            await until(lambda: dialer._connection is not first)
        assert one.events == two.events == []

    on_loop(body)
    assert "has another secret" in caplog.text
    assert SECRET.decode() not in caplog.text


def test_brokers_without_a_secret_connect() -> None:
    async def body() -> None:
        async with started(Broker(A, secret=None), Broker(B, secret=None)):
            pass

    on_loop(body)


@both_loops
def test_network_closes_at_once_in_any_state_of_its_dialers(new_loop: NewLoop) -> None:
    async def body() -> None:
        two, loop = Broker(B, secret=b"wrong"), asyncio.get_running_loop()
        async with started(two, meet=False):
            two.book.update({A: (HOST, 1)})
            for turns in range(40):
                one = Broker(A)
                await one.network.start(HOST, 0)
                one.book.update({B: two.address})
                for _ in range(turns):
                    await asyncio.sleep(0)
                begun = loop.time()
                await one.network.close()
                assert loop.time() - begun < 1.5
                assert not one.network._dials

    on_loop(body, new_loop)


def test_each_state_change_is_logged_once_and_frames_are_not(caplog: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        one, two = Broker(A), Broker(B)
        async with started(one, two):
            for _ in range(100):
                one.network.send(B, [b"frame"])
            await two.until(lambda: len(two.frames) == 100)

    caplog.set_level(logging.INFO)
    on_loop(body)
    lines = [record.getMessage() for record in caplog.records if record.name == "flotilla_broker.peers"]
    assert len(lines) == 4
    assert sum(f"peer={B} address={HOST}:" in line for line in lines) == 2
    assert sum("reason='broker is shutting down'" in line for line in lines) == 1


def test_repeated_failure_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        one = Broker(A)
        async with started(one, meet=False):
            one.book.update({B: (HOST, 1), C: ("a host that is none".replace(" ", "-"), 1)})
            backoffs = [one.network._dialers[peer]._backoff for peer in (B, C)]
            await until(lambda: all(backoff._next_s == QUICK.backoff_s_max for backoff in backoffs))

    on_loop(body)
    for peer in (B, C):
        assert sum(f"peer={peer} address=" in record.getMessage() for record in caplog.records) == 1


@both_loops
def test_pings_keep_an_idle_connection_open(new_loop: NewLoop) -> None:
    """They are not reported to the receiver."""

    async def body() -> None:
        config = QUICK_PINGS
        one, two = Broker(A, config=config), Broker(B, config=config)
        async with started(one, two):
            await asyncio.sleep(3 * config.silence_s)  # the passing of time is the condition
            assert one.kinds == two.kinds == ["connected"]

    on_loop(body, new_loop)


@both_loops
def test_silent_connection_is_closed(new_loop: NewLoop) -> None:
    async def body() -> None:
        one, two = Broker(A, config=QUICK_PINGS), Broker(B)  # the other one pings too rarely
        async with started(one, two):
            reason = one.connection(B)
            await one.until_kinds("connected", "disconnected")
            assert reason.reason == "no data received for 0.2 s"
            await two.until_kinds("connected", "disconnected")

    on_loop(body, new_loop)
