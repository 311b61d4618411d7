"""A network follows changes of the address book."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import pytest

from unit.peers.harness import HOST, A, B, Broker, both_loops, on_loop, started, until

NewLoop = Callable[[], asyncio.AbstractEventLoop]


def test_new_address_is_dialed_at_once() -> None:
    """Neither a long delay nor a dial that hangs postpones it."""

    async def body() -> None:
        one, two = Broker(A), Broker(B)
        async with started(one, two, meet=False):
            two.book.update({A: one.address})
            with socket.create_server((HOST, 0)) as hole:  # it never replies
                one.book.update({B: hole.getsockname()})
                dialer = one.network._dialers[B]
                await until(lambda: dialer._connection is not None and dialer._connection._transport is not None)
                dialer._backoff._next_s = 1e6
                one.book.update({B: two.address})
                await one.until_connected(B)
                await until(lambda: len(one.network._dials) == 1)  # the other dial was cancelled

    on_loop(body)


def test_name_is_resolved_for_each_dial(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod that moved keeps its name and gets another address."""
    resolve, answers = socket.getaddrinfo, ["127.0.0.2", "127.0.0.2", HOST]

    def moving(host: str, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the function it stands in for
        if host == "broker.test":
            host = answers.pop(0) if len(answers) > 1 else answers[0]
        return resolve(host, *args, **kwargs)

    async def body() -> None:
        one, two = Broker(A), Broker(B)
        async with started(one, two, meet=False):
            two.book.update({A: one.address})
            one.book.update({B: ("broker.test", two.network.port)})
            await one.until_connected(B)
            assert answers == [HOST]

    monkeypatch.setattr(socket, "getaddrinfo", moving)
    on_loop(body, asyncio.new_event_loop)  # the other event loop resolves names elsewhere


def test_new_address_keeps_a_working_connection() -> None:
    async def body() -> None:
        one, two, moved = Broker(A), Broker(B), Broker(B)
        async with started(one, two), started(moved, meet=False):
            moved.book.update({A: one.address})
            one.book.update({B: moved.address})
            one.network.send(B, [b"to the old place"])
            await two.until_kinds("connected", "frame")
            assert one.kinds == ["connected"]
            await two.network.close()
            await moved.until_connected(A)

    on_loop(body)


@both_loops
def test_removed_peer_is_disconnected_and_rejected(new_loop: NewLoop) -> None:
    async def body() -> None:
        one, two = Broker(A), Broker(B)
        async with started(one, two):
            two.book.update({})
            assert two.kinds == ["connected", "disconnected"]
            await one.until_kinds("connected", "disconnected")
            dialer = one.network._dialers[B]
            await until(lambda: "during the handshake" in dialer._logged)
            two.book.update({A: one.address})
            await one.until_connected(B)
            one.book.update({})
            assert one.kinds[-1] == "disconnected"
            assert not one.network._dialers
            await until(lambda: not one.network._dials)
            await two.until_kinds("connected", "disconnected")

    on_loop(body, new_loop)
