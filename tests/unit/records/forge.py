"""Builds batches with exactly one fault and a correct checksum.

It is written from the specification of the format and shares no code with the package under test, so that a bug there
is not repeated here.
"""

import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from tracemalloc import get_traced_memory, reset_peak
from tracemalloc import start as start_tracing
from tracemalloc import stop as stop_tracing

MIB = 1024 * 1024

FIELDS = {
    "magic": (0, "<I"),
    "version": (4, "<B"),
    "attributes": (5, "<B"),
    "header_bytes": (6, "<H"),
    "base_offset": (8, "<q"),
    "append_time_ms": (16, "<q"),
    "crc": (24, "<I"),
    "total_bytes": (28, "<I"),
    "producer_epoch": (48, "<q"),
    "base_sequence": (56, "<q"),
    "count": (64, "<I"),
    "body_bytes": (68, "<I"),
    "stored_bytes": (72, "<I"),
    "reserved": (76, "<I"),
    "timestamp_min_ms": (80, "<q"),
    "timestamp_max_ms": (88, "<q"),
}

ZSTD = 0b0000_0001
KEYS = 0b0000_0100
NULLS = 0b0000_1000
HEADERS = 0b0001_0000
TIMESTAMPS = 0b0010_0000


def with_fields(batch: bytes | bytearray, **fields: int) -> bytearray:
    """Copy `batch` with changed header fields and a correct checksum."""
    changed = bytearray(batch)
    for name, number in fields.items():
        at, form = FIELDS[name]
        struct.pack_into(form, changed, at, number)
    struct.pack_into("<I", changed, 24, zlib.crc32(changed[28:], zlib.crc32(changed[:8])))
    return changed


def batch_around(stored: bytes, *, count: int = 1, attributes: int = 0, body_bytes: int | None = None) -> bytearray:
    """Make a batch with a header and a checksum that match any stored body."""
    batch = bytearray(96) + pad(stored)
    return with_fields(
        batch,
        magic=int.from_bytes(b"FLTB", "little"),
        version=1,
        attributes=attributes,
        header_bytes=96,
        total_bytes=len(batch),
        count=count,
        body_bytes=len(stored) if body_bytes is None else body_bytes,
        stored_bytes=len(stored),
        timestamp_min_ms=-1,
        timestamp_max_ms=-1,
    )


def pad(section: bytes) -> bytes:
    """Pad a section with zeros."""
    return section + bytes(-len(section) % 8)


def offsets(*numbers: int) -> bytes:
    """Return the section of a column's offsets."""
    return pad(struct.pack(f"<{len(numbers)}i", *numbers))


def zstd_frame(content_bytes: int, blocks: int, *, window_exponent: int | None = None) -> bytes:
    """Make a zstd frame that declares `content_bytes` and expands to `blocks` times 128 KiB of zeros.

    Each block is a run of one byte, encoded in four bytes. So a gibibyte takes 32 KiB, without a compressor.
    """
    if window_exponent is None:  # a single segment: no window is declared, it is as large as the content
        head = struct.pack("<IBI", 0xFD2FB528, 0b1010_0000, content_bytes)
    else:
        head = struct.pack("<IBBI", 0xFD2FB528, 0b1000_0000, (window_exponent - 10) << 3, content_bytes)
    run, last = (128 * 1024) << 3 | 1 << 1, 1
    block = run.to_bytes(3, "little") + b"\0"
    return head + block * (blocks - 1) + (run | last).to_bytes(3, "little") + b"\0"


@contextmanager
def memory_below(limit_bytes: int) -> Iterator[None]:
    """Fail if the block allocates more than `limit_bytes` of Python memory at once."""
    start_tracing()
    try:
        reset_peak()
        before, _ = get_traced_memory()
        yield
        _, peak = get_traced_memory()
    finally:
        stop_tracing()
    assert peak - before < limit_bytes, f"{peak - before} bytes were taken at once"
