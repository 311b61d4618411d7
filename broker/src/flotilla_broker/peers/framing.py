"""Frames on the byte stream between two brokers.

    u32 length of the body | u32 CRC-32 of the body | body          (little endian)

A frame with an empty body is a ping. The checksum catches what TCP's own is too weak for; it proves nothing about
who sent it.

Reading: small frames are taken, many per read, out of one buffer that is used again, each as a copy of its own. The
body of a large frame is read straight into memory of its own. So whoever gets a body may keep it, and a small one
keeps nothing large alive. What a length claims is compared with the limit before anything else happens, and the
memory for a large body grows as the body arrives.
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
_SMALL_BYTES_MAX = 16 << 10  # a longer body that is not there yet gets memory of its own
_FIRST_BYTES_MAX = 1 << 20  # of that memory; then it grows
_GROWTH = 4


def encode_head(buffers: Sequence[Buffer]) -> tuple[bytes, int]:
    """Return the head of a frame whose body is all buffers (of single bytes) together, and the body's size."""
    size = crc = 0
    for buffer in buffers:
        size += len(buffer)
        crc = crc32(buffer, crc)
    return _HEAD.pack(size, crc), size


class FrameReader:
    """Turns what arrives into bodies of frames.

    The caller fills (a part of) `buffer()`, tells how much with `received`, and takes all bodies from the iterator
    it returns before the next `buffer()`. It may change `frame_bytes_max` between two bodies. After an error, or an
    iterator that was left, the reader is of no use any more.
    """

    def __init__(self, frame_bytes_max: int) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._inbox = memoryview(bytearray(_INBOX_BYTES))
        self._end = 0  # of what waits in the inbox
        self._body: bytearray | None = None  # of the large frame that is being read
        self._size = self._filled = 0
        self._crc = self._crc_found = 0

    def buffer(self) -> memoryview:
        """Return where to put what arrives next; never empty."""
        if self._body is None:
            return self._inbox[self._end :]
        if self._filled == len(self._body):
            self._body = self._grown(self._body)
        return memoryview(self._body)[self._filled :]

    def received(self, count: int) -> Iterator[memoryview]:
        """Take note of `count` bytes put into the buffer, and yield the bodies that are complete now."""
        if self._body is None:
            self._end += count
            return self._take_frames()
        return self._take_part(self._body, count)

    def _take_frames(self) -> Iterator[memoryview]:
        inbox, start, end = self._inbox, 0, self._end
        while end - start >= HEAD_BYTES:
            size, crc = _HEAD.unpack_from(inbox, start)
            if size > self.frame_bytes_max:
                raise FrameTooLarge(f"a frame of {size} bytes, {self.frame_bytes_max} is the limit")
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
        self._body = bytearray(min(size, _FIRST_BYTES_MAX))  # more than the inbox, so the part fits
        self._body[: len(part)] = part
        self._size, self._filled = size, len(part)
        self._crc, self._crc_found = crc, crc32(part)

    def _take_part(self, body: bytearray, count: int) -> Iterator[memoryview]:
        start, self._filled = self._filled, self._filled + count
        view = memoryview(body)
        self._crc_found = crc32(view[start : self._filled], self._crc_found)  # while it is still in the CPU's cache
        if self._filled == self._size:
            _check(self._crc_found, self._crc, self._size)
            self._body = None
            yield view.toreadonly()

    def _grown(self, body: bytearray) -> bytearray:
        # A new one, because whoever read into the old one may still hold a view of it, which forbids resizing.
        grown = bytearray(min(self._size, _GROWTH * len(body)))
        grown[: len(body)] = body
        return grown


def _check(found: int, expected: int, size: int) -> None:
    if found != expected:
        raise FrameDamaged(f"a frame of {size} bytes has the checksum {found:08x}, not {expected:08x}")
