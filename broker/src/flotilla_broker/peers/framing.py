"""Frames on the byte stream between two brokers.

    u32 length of the body | u32 CRC-32 of the body | body          (little endian)

A frame with an empty body is a ping. The checksum detects errors that the checksum of TCP misses; it does not
authenticate the sender.

Small frames are copied out of one reused buffer, many per read. The body of a large frame is read directly into its own
memory. So the receiver may keep a body, and a small one keeps no large buffer alive. The length is compared with the
limit first, and the memory of a large body grows as the body arrives.
"""

from collections.abc import Iterator, Sequence
from struct import Struct

from isal.isal_zlib import crc32

from flotilla_broker.peers.errors import FrameDamaged, FrameTooLarge

Buffer = bytes | bytearray | memoryview

_HEAD = Struct("<II")
HEAD_BYTES = _HEAD.size
PING = _HEAD.pack(0, crc32(b""))

_INBOX_BYTES = 64 << 10
_SMALL_BYTES_MAX = 16 << 10  # a longer, incomplete body gets its own memory
_FIRST_BYTES_MAX = 1 << 20  # of that memory; then it grows
_GROWTH = 4


def encode_head(buffers: Sequence[Buffer]) -> tuple[bytes, int]:
    """Return the head of a frame with these buffers as body, and the body's size."""
    size = crc = 0
    for buffer in buffers:
        size += len(buffer)
        crc = crc32(buffer, crc)
    return _HEAD.pack(size, crc), size


class FrameReader:
    """Splits a byte stream into bodies of frames.

    The caller fills (a part of) `buffer()`, calls `received` with the number of bytes, and consumes the returned
    iterator before the next `buffer()`. It may change `frame_bytes_max` between two bodies. After an error, or an
    iterator that was not consumed, the reader must not be used any more.
    """

    def __init__(self, frame_bytes_max: int) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._inbox = memoryview(bytearray(_INBOX_BYTES))
        self._end = 0  # of the data in the inbox
        self._body: bytearray | None = None  # of the current large frame
        self._size = self._filled = 0
        self._crc = self._crc_found = 0

    def buffer(self) -> memoryview:
        """Return the buffer for the next read; never empty."""
        if self._body is None:
            return self._inbox[self._end :]
        if self._filled == len(self._body):
            self._body = self._grown(self._body)
        return memoryview(self._body)[self._filled :]

    def received(self, count: int) -> Iterator[memoryview]:
        """Process `count` new bytes in the buffer, and yield the complete bodies."""
        if self._body is None:
            self._end += count
            return self._take_frames()
        return self._take_part(self._body, count)

    def _take_frames(self) -> Iterator[memoryview]:
        inbox, start, end = self._inbox, 0, self._end
        while end - start >= HEAD_BYTES:
            size, crc = _HEAD.unpack_from(inbox, start)
            if size > self.frame_bytes_max:
                raise FrameTooLarge(f"frame has {size} bytes, the limit is {self.frame_bytes_max}")
            body_start, body_end = start + HEAD_BYTES, start + HEAD_BYTES + size
            if body_end > end:
                if size > _SMALL_BYTES_MAX:
                    self._begin_large(inbox[body_start:end], size, crc)
                    start = end
                break
            body = bytes(inbox[body_start:body_end])
            _check(crc32(body), crc, size)
            start = body_end
            yield memoryview(body)
        inbox[: end - start] = inbox[start:end]
        self._end = end - start

    def _begin_large(self, part: memoryview, size: int, crc: int) -> None:
        self._body = bytearray(min(size, _FIRST_BYTES_MAX))  # larger than the inbox
        self._body[: len(part)] = part
        self._size, self._filled = size, len(part)
        self._crc, self._crc_found = crc, crc32(part)

    def _take_part(self, body: bytearray, count: int) -> Iterator[memoryview]:
        start, self._filled = self._filled, self._filled + count
        view = memoryview(body)
        self._crc_found = crc32(view[start : self._filled], self._crc_found)  # while it is in the CPU's cache
        if self._filled == self._size:
            _check(self._crc_found, self._crc, self._size)
            self._body = None
            yield view.toreadonly()

    def _grown(self, body: bytearray) -> bytearray:
        # Not resized in place: a view of the old one may still exist.
        grown = bytearray(min(self._size, _GROWTH * len(body)))
        grown[: len(body)] = body
        return grown


def _check(found: int, expected: int, size: int) -> None:
    if found != expected:
        raise FrameDamaged(f"frame of {size} bytes has checksum {found:08x}, expected {expected:08x}")
