"""Callbacks that raise, or that change the network while they run."""

import asyncio
from collections.abc import Callable

import pytest

from unit.peers.harness import A, B, Broker, both_loops, on_loop, started, until

NewLoop = Callable[[], asyncio.AbstractEventLoop]


def failing(what: str, times: int = 1) -> Callable[[str, str], None]:
    left = [times]

    def hook(called: str, _: str) -> None:
        if called == what and left[0]:
            left[0] -= 1
            raise ZeroDivisionError("a mistake elsewhere")

    return hook


@both_loops
@pytest.mark.parametrize("side", [A, B])
@pytest.mark.parametrize(
    ("what", "events"),
    [
        ("connected", ["connected", "disconnected", "connected", "frame"]),
        ("frame", ["connected", "frame", "disconnected", "connected", "frame"]),
        ("disconnected", ["connected", "frame", "disconnected", "connected", "frame"]),
    ],
)
def test_callback_that_raises_closes_only_its_connection(
    what: str, events: list[str], side: str, new_loop: NewLoop, caplog: pytest.LogCaptureFixture
) -> None:
    async def body() -> None:
        one, two = Broker(A), Broker(B)
        broken, sound = (one, two) if side == A else (two, one)
        broken.hook = failing(what)

        def greet(called: str, peer: str) -> None:
            if called == "connected":
                sound.network.send(peer, [b"hello"])
            if called == "connected" and what == "disconnected" and len(sound.events) == 1:
                asyncio.get_running_loop().call_later(0.02, sound.transport(peer).close)

        sound.hook = greet
        async with started(one, two, meet=False):
            two.book.update({A: one.address})
            one.book.update({B: two.address})
            await broken.until(lambda: broken.kinds == events)
            assert broken.network.connected == {sound.me}

    on_loop(body, new_loop)
    assert "a mistake elsewhere" in caplog.text
    assert f"callback=on_{what}" in caplog.text


@both_loops
def test_no_frame_follows_a_disconnect_by_a_callback(new_loop: NewLoop) -> None:
    """Many frames arrive in one read; the first callback removes the sender."""

    async def body() -> None:
        one, two = Broker(A), Broker(B)
        async with started(one, two):
            two.hook = lambda what, _: two.book.update({}) if what == "frame" else None
            for _ in range(100):
                one.network.send(B, [b"frame"])
            await one.until_kinds("connected", "disconnected")
            assert two.kinds == ["connected", "frame", "disconnected"]

    on_loop(body, new_loop)


def test_peer_may_be_removed_while_its_connection_is_reported() -> None:
    async def body() -> None:
        one, two = Broker(A), Broker(B)
        two.hook = lambda what, _: two.book.update({}) if what == "connected" else None
        async with started(one, two, meet=False):
            two.book.update({A: one.address})
            one.book.update({B: two.address})
            await two.until_kinds("connected", "disconnected")
            assert not two.network.connected

    on_loop(body)


def test_replacing_connection_is_dropped_if_its_peer_is_removed_meanwhile() -> None:
    async def body() -> None:
        one, two, again = Broker(A), Broker(B), Broker(A)
        async with started(one, two), started(again, meet=False):
            two.hook = lambda what, _: two.book.update({}) if what == "disconnected" else None
            again.book.update({B: two.address})
            await two.until_kinds("connected", "disconnected")
            await until(lambda: not two.network._listener._accepted)  # type: ignore[union-attr]
            assert two.kinds == ["connected", "disconnected"]

    on_loop(body)


def test_peer_that_is_added_again_while_its_removal_is_reported_is_dialed_again() -> None:
    """The final state of the address book decides, not the order of the changes."""

    async def body() -> None:
        one, two = Broker(A), Broker(B)
        async with started(one, two):
            one.hook = lambda what, _: one.book.update({B: two.address}) if what == "disconnected" else None
            one.book.update({})
            one.hook = lambda *_: None
            await one.until(lambda: one.kinds == ["connected", "disconnected", "connected"])
            assert one.network.connected == {B}

    on_loop(body)


def test_network_may_be_used_while_it_closes() -> None:
    async def body() -> None:
        one, two = Broker(A), Broker(B)
        sent: list[bool] = []

        def hook(what: str, peer: str) -> None:
            if what == "disconnected":
                sent.append(one.network.send(peer, [b"too late"]))
                one.book.update({})

        async with started(one, two):
            one.hook = hook
        assert sent == [False]
        assert one.kinds == ["connected", "disconnected"]

    on_loop(body)
