"""Backpressure: a peer that reads slower than it is written to."""

import asyncio
from collections.abc import Callable

from unit.peers.harness import MIB, QUICK, A, B, Broker, both_loops, on_loop, started

NewLoop = Callable[[], asyncio.AbstractEventLoop]
CHUNK = bytes(MIB // 4)


@both_loops
def test_paused_reader_makes_the_peer_unwritable_until_it_resumes(new_loop: NewLoop) -> None:
    """For a sender that checks first, at most the high-water mark and one frame are buffered."""

    async def body() -> None:
        one, two = Broker(A), Broker(B)
        async with started(one, two):
            two.transport(A).pause_reading()
            sent = 0
            while one.network.writable(B):
                assert one.network.send(B, [CHUNK])
                sent += 1
                await asyncio.sleep(0)
                assert sent < 200
            assert one.transport(B).get_write_buffer_size() <= QUICK.write_bytes_high + 2 * len(CHUNK)
            assert one.kinds == ["connected"]
            two.transport(A).resume_reading()
            await one.until_kinds("connected", "writable")
            assert one.network.writable(B)
            await two.until(lambda: len(two.events) == 1 + sent)
            assert one.kinds == ["connected", "writable"]

    on_loop(body, new_loop)


@both_loops
def test_sender_that_does_not_check_is_rejected_at_the_limit(new_loop: NewLoop) -> None:
    """Memory is bounded by `write_bytes_max`, and frames queued before still arrive complete."""

    async def body() -> None:
        one, two = Broker(A), Broker(B)
        async with started(one, two):
            two.transport(A).pause_reading()
            sent = 0
            while one.network.send(B, [CHUNK[:-4], sent.to_bytes(4, "little")]):
                sent += 1
                await asyncio.sleep(0)
                assert sent < 200
            assert one.transport(B).get_write_buffer_size() <= QUICK.write_bytes_max + len(CHUNK)
            two.transport(A).resume_reading()
            await two.until(lambda: len(two.events) == 1 + sent)
            assert [int.from_bytes(frame[-4:], "little") for frame in two.frames] == list(range(sent))
            assert one.network.send(B, [b"more"])
            await two.until(lambda: two.frames[-1] == b"more")

    on_loop(body, new_loop)


def test_disconnected_unwritable_peer_is_never_reported_writable() -> None:
    async def body() -> None:
        one, two = Broker(A), Broker(B)
        async with started(one, two):
            two.transport(A).pause_reading()
            while one.network.writable(B):
                one.network.send(B, [CHUNK])
                await asyncio.sleep(0)
            connection = one.connection(B)
            one.book.update({})
            connection.resume_writing()  # as an event loop might
            assert one.kinds == ["connected", "disconnected"]
            two.transport(A).resume_reading()
            await two.until_kinds("disconnected")
            assert one.kinds == ["connected", "disconnected"]

    on_loop(body)
