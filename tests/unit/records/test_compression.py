"""Untrusted zstd frames: declared sizes are checked before memory is allocated, and enforced."""

import struct

import pytest
import zstandard

from flotilla.records import BadBody, Compression, DecompressionFailed, check, decode, encode
from unit.records.forge import MIB, ZSTD, batch_around, memory_below, with_fields, zstd_frame

BLOCK = 128 * 1024
EMPTY_VALUES_OF_A_BLOCK = BLOCK // 4 - 1
GIB_BLOCKS = 8192


def packed(frame: bytes, *, body_bytes: int = BLOCK, count: int = EMPTY_VALUES_OF_A_BLOCK) -> bytearray:
    return batch_around(frame, attributes=ZSTD, count=count, body_bytes=body_bytes)


def test_forged_frame_with_correct_sizes_is_accepted() -> None:
    """The other tests forge frames in the same way, so only the wrong size makes them fail."""
    assert decode(packed(zstd_frame(BLOCK, 1))).values == [b""] * EMPTY_VALUES_OF_A_BLOCK
    assert len(decode(packed(zstd_frame(BLOCK, 1, window_exponent=25)))) == EMPTY_VALUES_OF_A_BLOCK


@pytest.mark.parametrize(
    ("frame", "text"),
    [
        (zstd_frame(BLOCK, GIB_BLOCKS), "not one zstd frame"),
        (
            zstd_frame(GIB_BLOCKS * BLOCK, GIB_BLOCKS),
            "declares 1073741824 bytes; the batch header declares 131072",
        ),
        (zstd_frame(2**32 - 1, 1), "declares 4294967295 bytes"),
        (zstd_frame(BLOCK, 1, window_exponent=31), "has a window of 2147483648 bytes"),
        (zstd_frame(BLOCK, 1, window_exponent=26), "has a window of 67108864 bytes"),
    ],
    ids=["expands further than declared", "declares more", "declares most", "huge window", "large window"],
)
def test_decompression_bomb_is_refused_without_allocating(frame: bytes, text: str) -> None:
    """A few KiB that declare, or expand to, gigabytes."""
    batch = packed(frame)
    with memory_below(MIB), pytest.raises(DecompressionFailed, match=text):
        decode(batch)


def test_frame_without_declared_size_is_refused_without_allocating() -> None:
    compressor = zstandard.ZstdCompressor().compressobj()
    frame = b"".join([compressor.compress(bytes(MIB)) for _ in range(64)]) + compressor.flush()
    batch = packed(frame)
    with memory_below(MIB), pytest.raises(DecompressionFailed, match="does not declare its content size"):
        decode(batch)


def test_frame_smaller_than_declared_is_refused() -> None:
    with pytest.raises(DecompressionFailed, match="not one zstd frame"):
        decode(packed(zstd_frame(2 * BLOCK, 1), body_bytes=2 * BLOCK))


@pytest.mark.parametrize("body_bytes", [BLOCK - 8, BLOCK + 8])
def test_wrong_body_size_in_the_header_is_refused(body_bytes: int) -> None:
    with pytest.raises(DecompressionFailed, match=f"declares 131072 bytes; the batch header declares {body_bytes}"):
        decode(packed(zstd_frame(BLOCK, 1), body_bytes=body_bytes, count=1))


@pytest.mark.parametrize(
    "tail",
    [b"\0" * 9, zstd_frame(BLOCK, 1), struct.pack("<II", 0x184D2A50, 0)],
    ids=["zeros", "another frame", "a skippable frame"],
)
def test_data_after_the_frame_is_refused(tail: bytes) -> None:
    with pytest.raises(DecompressionFailed, match="unused data"):
        decode(packed(zstd_frame(BLOCK, 1) + tail))


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"not zstd at all",
        struct.pack("<II", 0x184D2A50, BLOCK) + bytes(BLOCK - 16),
        struct.pack("<II", 0x184D2A50, 0) + zstd_frame(BLOCK, 1),
    ],
    ids=["nothing", "something else", "a skippable frame", "a skippable frame first"],
)
def test_non_data_frame_is_refused(frame: bytes) -> None:
    with pytest.raises(DecompressionFailed):
        decode(packed(frame))


def test_frame_with_a_dictionary_is_refused() -> None:
    frame = struct.pack("<IBBI", 0xFD2FB528, 0b1010_0001, 7, BLOCK) + zstd_frame(BLOCK, 1)[9:]
    with pytest.raises(DecompressionFailed, match="needs dictionary 7"):
        decode(packed(frame))


def test_truncated_frame_is_refused() -> None:
    batch = encode([b"again and again", b"and again"] * 50, compression=Compression.ZSTD)
    header = check(batch)
    frame = bytes(batch[96 : 96 + header.stored_bytes])
    for length in range(len(frame)):
        with pytest.raises(DecompressionFailed):
            decode(packed(frame[:length], body_bytes=header.body_bytes, count=header.count))


def test_compressed_body_is_checked() -> None:
    with pytest.raises(BadBody, match="the sections end at byte"):
        decode(packed(zstd_frame(BLOCK, 1), count=EMPTY_VALUES_OF_A_BLOCK // 2))


def test_frame_with_a_checksum_is_accepted() -> None:
    """Clients in other languages may not be able to omit it."""
    plain = encode([b"again and again"] * 50)
    frame = zstandard.ZstdCompressor(write_checksum=True).compress(plain[96:])
    batch = packed(frame, body_bytes=len(plain) - 96, count=50)
    assert decode(batch).values == [b"again and again"] * 50
    corrupt = bytearray(batch)
    corrupt[96 + len(frame) - 1] ^= 1
    with pytest.raises(DecompressionFailed):
        decode(with_fields(corrupt))
