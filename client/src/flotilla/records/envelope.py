"""Functions of servers: split, check and assign offsets to batches without decoding their bodies.

There are no copies: `split` returns views of its buffer, `check` reads in place, and `assign` writes 16 bytes in place.
Only these 16 bytes may change after `encode`, and the checksum does not cover them; so a stored batch has the bytes of
its producer otherwise, and stays valid.
"""

from collections.abc import Iterator

from isal.isal_zlib import crc32

from flotilla.records.errors import (
    AssignmentInvalid,
    BadMagic,
    BadPadding,
    BatchInvalid,
    BatchTruncated,
    CrcMismatch,
    TrailingBytes,
)
from flotilla.records.layout import (
    BASE_OFFSET_MAX,
    CRC_HEAD,
    CRC_REST,
    HEADER_BYTES,
    INT64_MAX,
    MAGIC,
    BatchHeader,
    Buffer,
    byte_view,
    write_assigned,
)


def check(buffer: Buffer) -> BatchHeader:
    """Check that `buffer` is exactly one intact batch; return its header.

    Raises:
        BatchInvalid: one of its subclasses, by cause.
    """
    view = byte_view(buffer)
    header = BatchHeader.from_bytes(view)
    if view.nbytes < header.total_bytes:
        raise BatchTruncated(f"the batch is truncated: it has {header.total_bytes} bytes, got {view.nbytes}")
    if view.nbytes > header.total_bytes:
        raise TrailingBytes(f"the batch has {header.total_bytes} bytes, got {view.nbytes}")
    crc = checksum(view)
    if crc != header.crc:
        raise CrcMismatch(f"the header has CRC {header.crc:08x}; the bytes have {crc:08x}")
    if any(view[HEADER_BYTES + header.stored_bytes :]):
        raise BadPadding(f"the bytes behind the {header.stored_bytes} stored ones are not all zero")
    return header


def assign(batch: bytearray | memoryview, base_offset: int, append_time_ms: int) -> None:
    """Write the offset of the first record and the append time into `batch`, in place.

    The batch must have been checked: this runs for every append, and checks only that it does not overwrite other data.

    Raises:
        AssignmentInvalid: the offset or the time is out of range; nothing was written.
        BatchTruncated: `batch` is shorter than a header; nothing was written.
        BadMagic: `batch` is not a batch; nothing was written.
    """
    if not 0 <= base_offset <= BASE_OFFSET_MAX:
        raise AssignmentInvalid(f"base_offset is {base_offset}; it must be in 0..{BASE_OFFSET_MAX}")
    if not 0 <= append_time_ms <= INT64_MAX:
        raise AssignmentInvalid(f"append_time_ms is {append_time_ms}; it must be in 0..{INT64_MAX}")
    view = byte_view(batch)
    if view.nbytes < HEADER_BYTES:
        raise BatchTruncated(f"a batch header has {HEADER_BYTES} bytes, got {view.nbytes}")
    if bytes(view[: len(MAGIC)]) != MAGIC:
        raise BadMagic(f"bad magic: a batch starts with {MAGIC.hex()}")
    write_assigned(view, base_offset, append_time_ms)


def split(buffer: Buffer) -> Iterator[memoryview]:
    """Yield the consecutive batches in `buffer`, as views of it; none for an empty buffer.

    Only headers are checked, one at a time: pass the batches to `check` or `decode`.

    Raises:
        BatchInvalid: one of its subclasses, by cause; `BatchTruncated` for an incomplete batch at the end. The message
            has the position.
    """
    view = byte_view(buffer)
    start = 0
    while start < view.nbytes:
        left = view.nbytes - start
        total_bytes = _total_bytes_at(view, start)
        if total_bytes > left:
            raise BatchTruncated(f"the batch at byte {start} is truncated: it has {total_bytes} bytes, got {left}")
        yield view[start : start + total_bytes]
        start += total_bytes


def checksum(view: memoryview) -> int:
    """Return the CRC-32, as in zlib, of the immutable parts of a batch."""
    crc: int = crc32(view[CRC_REST], crc32(view[CRC_HEAD]))
    return crc


def _total_bytes_at(view: memoryview, start: int) -> int:
    try:
        return BatchHeader.from_bytes(view[start:]).total_bytes
    except BatchInvalid as error:
        raise type(error)(f"the batch at byte {start}: {error}") from error
