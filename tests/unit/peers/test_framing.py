"""Frames, split at any byte."""

import struct
import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flotilla_broker.peers import FrameDamaged, FrameTooLarge
from flotilla_broker.peers.framing import HEAD_BYTES, PING, FrameReader, encode_head

MIB = 1 << 20
SIZES = st.one_of(st.integers(0, 40), st.sampled_from([4096, 16383, 16384, 16385, 65527, 65528, 65529, 70000]))


def frame(body: bytes) -> bytes:
    return struct.pack("<II", len(body), zlib.crc32(body)) + body


def feed(reader: FrameReader, stream: bytes, piece_bytes_max: int = 1 << 30) -> list[memoryview]:
    """Feed the stream to a reader as a socket would: at most as much as it asked for, and one piece at a time."""
    bodies: list[memoryview] = []
    rest = memoryview(stream)
    while rest:
        buffer = reader.buffer()
        count = min(len(buffer), len(rest), piece_bytes_max)
        assert count
        buffer[:count] = rest[:count]
        rest = rest[count:]
        bodies += reader.received(count)
    return bodies


def body_of(size: int, seed: int) -> bytes:
    return (seed.to_bytes(4, "little") * (size // 4 + 1))[:size]


@given(st.lists(SIZES, max_size=12), st.one_of(st.integers(1, 50), st.integers(1000, 200_000)))
def test_any_split_of_the_stream_gives_the_same_frames(sizes: list[int], piece_bytes_max: int) -> None:
    """Bodies that are kept do not change while more is read."""
    bodies = [body_of(size, seed) for seed, size in enumerate(sizes)]
    reader = FrameReader(MIB)
    if sum(sizes) > 50_000:
        piece_bytes_max = max(piece_bytes_max, 100)  # equivalent, and faster
    found = feed(reader, b"".join(map(frame, bodies)), piece_bytes_max)
    assert found == bodies
    assert all(body.readonly for body in found)


@pytest.mark.parametrize("size", [MIB, MIB + 1, 4 * MIB, 4 * MIB + 1, 20 * MIB])
def test_frames_that_grow_while_they_arrive_are_complete(size: int) -> None:
    body = body_of(size, 0x01020304)
    found = feed(FrameReader(32 * MIB), frame(body) + frame(b"next"), 300_000)
    assert found == [body, b"next"]


@given(st.lists(st.binary(max_size=300), max_size=20), st.data())
def test_pieces_of_any_length_give_the_same_frames(bodies: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(map(frame, bodies))
    cuts = sorted(data.draw(st.sets(st.integers(0, len(stream)), max_size=20)))
    reader, found = FrameReader(300), []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += feed(reader, stream[start:end])
    assert found == bodies


@given(st.lists(st.binary(max_size=50), max_size=5))
def test_header_of_many_buffers_is_that_of_one(buffers: list[bytes]) -> None:
    head, size = encode_head([memoryview(buffer) for buffer in buffers])
    body = b"".join(buffers)
    assert size == len(body)
    assert head + body == frame(body)


def test_ping_is_a_frame_with_an_empty_body() -> None:
    assert frame(b"") == PING
    assert feed(FrameReader(1), PING) == [b""]


@pytest.mark.parametrize("size", [1, 100, 20_000, 100_000, 3 * MIB])
@pytest.mark.parametrize("place", ["crc", "first", "last"])
def test_changed_bit_is_detected(size: int, place: str) -> None:
    stream = bytearray(frame(bytes(size)))
    stream[{"crc": 4, "first": HEAD_BYTES, "last": -1}[place]] ^= 0x10
    with pytest.raises(FrameDamaged, match=f"frame of {size} bytes has checksum"):
        feed(FrameReader(4 * MIB), bytes(stream))


def test_frames_before_a_damaged_one_are_returned() -> None:
    reader = FrameReader(100)
    stream = frame(b"good") + frame(b"bad")[:-1] + b"?"
    reader.buffer()[: len(stream)] = stream
    bodies = reader.received(len(stream))
    assert bytes(next(bodies)) == b"good"
    with pytest.raises(FrameDamaged):
        next(bodies)


def test_frame_of_the_maximal_size_is_read_and_a_larger_one_is_rejected() -> None:
    assert feed(FrameReader(100_000), frame(bytes(100_000))) == [bytes(100_000)]
    with pytest.raises(FrameTooLarge, match="frame has 100001 bytes, the limit is 100000"):
        feed(FrameReader(100_000), frame(bytes(100_001))[:HEAD_BYTES])


def test_limit_may_change_between_two_frames() -> None:
    reader = FrameReader(4)
    stream = frame(b"four") + frame(b"longer")
    reader.buffer()[: len(stream)] = stream
    bodies = reader.received(len(stream))
    assert bytes(next(bodies)) == b"four"
    reader.frame_bytes_max = 6
    assert list(bodies) == [b"longer"]


def test_memory_follows_the_received_bytes_and_not_the_claimed_size() -> None:
    """A header that claims 32 MiB allocates 1 MiB until the bytes arrive."""
    reader = FrameReader(32 * MIB)
    tracemalloc.start()
    try:
        feed(reader, struct.pack("<II", 32 * MIB, 0) + bytes(1000))
        assert tracemalloc.get_traced_memory()[1] < 1.2 * MIB
        feed(reader, bytes(MIB))
        assert tracemalloc.get_traced_memory()[0] < 4.2 * MIB
    finally:
        tracemalloc.stop()


def test_large_frame_is_read_into_the_returned_memory() -> None:
    """The only copies are those of growing: the last result of `buffer` is part of the body."""
    reader = FrameReader(32 * MIB)
    feed(reader, struct.pack("<II", MIB, zlib.crc32(bytes(MIB))) + bytes(10))
    last = reader.buffer()
    (body,) = reader.received(len(last))
    assert body.obj is last.obj


def test_small_frames_do_not_keep_the_read_buffer_alive() -> None:
    (body,) = feed(FrameReader(100), frame(b"small"))
    assert isinstance(body.obj, bytes)
    assert len(body.obj) == 5
