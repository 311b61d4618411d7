"""Compression of bodies with zstd. Declared sizes are checked before memory is allocated.

A stored body is exactly one frame that declares its content size. `compress` writes no checksum (the batch has one) and
no dictionary. Frames are untrusted: a frame is decompressed only if its header agrees with that of the batch, into
exactly the declared number of bytes. A frame that expands further is an error, not an allocation.

A context per call costs about 25 µs and avoids shared state; contexts are not thread-safe.
"""

from typing import Final

import zstandard

from flotilla.records.errors import DecompressionFailed
from flotilla.records.layout import BODY_BYTES_MAX

LEVEL_MIN: Final = 1
LEVEL_MAX: Final = 19
LEVEL_DEFAULT: Final = 3
WINDOW_BYTES_MAX: Final = BODY_BYTES_MAX
"""Largest window of a frame; more than the largest body is never needed."""


def compress(body: bytes, level: int) -> bytes:
    """Compress a body to one zstd frame."""
    return zstandard.ZstdCompressor(level=level, write_content_size=True, write_checksum=False).compress(body)


def decompress(frame: memoryview, body_bytes: int) -> bytes:
    """Decompress a frame to `body_bytes` bytes.

    Raises:
        DecompressionFailed: `frame` is not exactly one zstd frame of that size.
    """
    _check_frame_header(frame, body_bytes)
    decompressor = zstandard.ZstdDecompressor(max_window_size=WINDOW_BYTES_MAX)
    try:
        # The library checks the declared size, which equals `body_bytes` here.
        return decompressor.decompress(frame, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise DecompressionFailed(f"the body of {frame.nbytes} stored bytes is not one zstd frame: {error}") from error


def _check_frame_header(frame: memoryview, body_bytes: int) -> None:
    try:
        parameters = zstandard.get_frame_parameters(frame)
    except zstandard.ZstdError as error:
        raise DecompressionFailed(f"the stored body does not start with a zstd frame: {error}") from error
    if parameters.content_size == zstandard.CONTENTSIZE_UNKNOWN:
        raise DecompressionFailed("the zstd frame does not declare its content size; it must")
    if parameters.content_size != body_bytes:
        raise DecompressionFailed(
            f"the zstd frame declares {parameters.content_size} bytes; the batch header declares {body_bytes}"
        )
    if parameters.window_size > WINDOW_BYTES_MAX:
        raise DecompressionFailed(
            f"the zstd frame has a window of {parameters.window_size} bytes; the limit is {WINDOW_BYTES_MAX}"
        )
    if parameters.dict_id != 0:
        raise DecompressionFailed(f"the zstd frame needs dictionary {parameters.dict_id}; none is supported")
