"""Frames: the content of segments.

A frame is an 80-byte header and a payload, padded to 8 bytes. The header has the segment, the log sequence number
(lsn), and the lsn of the first frame of the same flush. Two CRCs cover the frame. Old data in preallocated space,
files of another log, and payloads of clients are never mistaken for a frame of this segment: the header's CRC starts
with a random number of this log (`salt`), which clients do not know.

Everything here is pure: it decides what a scan of a segment means, and reads no file.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

import msgspec
from isal.isal_zlib import crc32

MAGIC = b"FLF1"
ALIGN = 8

# segment, lsn, flush, group, kind, index, term, next_offset, time_ms, payload size, payload crc
_FIELDS = struct.Struct("<QQQIBxxxQQqqII")
_PREFIX = struct.Struct("<4sI")
HEADER_BYTES = _PREFIX.size + _FIELDS.size
_PADDING = tuple(bytes(n) for n in range(ALIGN))


class Kind(IntEnum):
    """Kind of a frame."""

    ENTRY = 1
    TERM = 2  # term, and the vote as payload
    TRUNCATE = 3  # index: the first entry removed; term, next offset: of the one before it
    TRIM = 4  # index: the first entry kept; term, next offset: of the one before it
    OPEN = 5  # payload: a GroupRecord
    DROP = 6
    META = 7  # payload: the group's new meta
    REPLACE = 8  # the group takes the place of group `index`, which is dropped; payload: its new meta
    QUARANTINE = 9  # payload: why
    CHECKPOINT_BEGIN = 10  # payload: a CheckpointHead; opens each segment
    CHECKPOINT_GROUP = 11  # payload: a GroupRecord
    CHECKPOINT_END = 12
    CLEANED = 13  # payload: a Cleaned
    STATE = 14  # index, payload: the caller's state
    MARK = 15  # no content; proves that the previous flush was complete


class Frame(msgspec.Struct, frozen=True, gc=False):
    """A frame's header, and its position in the segment."""

    position: int
    segment: int
    lsn: int
    flush: int
    group: int
    kind: int
    index: int
    term: int
    next_offset: int
    time_ms: int
    size: int
    payload_crc: int

    @property
    def end(self) -> int:
        """Position after the frame."""
        return self.position + frame_bytes(self.size)

    @property
    def payload_position(self) -> int:
        """Position of the payload."""
        return self.position + HEADER_BYTES


def frame_bytes(size: int) -> int:
    """Return the size on disk of a frame with a payload of `size` bytes."""
    return HEADER_BYTES + (size + ALIGN - 1) // ALIGN * ALIGN


def padding(size: int) -> bytes:
    """Return the zeros after a payload of `size` bytes."""
    return _PADDING[-size % ALIGN]


def pack(
    salt: int,
    segment: int,
    lsn: int,
    flush: int,
    group: int,
    kind: int,
    index: int,
    term: int,
    next_offset: int,
    time_ms: int,
    size: int,
    payload_crc: int,
) -> bytes:
    """Build a header."""
    fields = _FIELDS.pack(segment, lsn, flush, group, kind, index, term, next_offset, time_ms, size, payload_crc)
    return _PREFIX.pack(MAGIC, crc32(fields, salt)) + fields


def parse(buffer: bytes | memoryview, position: int, segment: int, salt: int) -> Frame | None:
    """Parse the header at `position`; None if there is no valid one of this segment.

    A payload that exceeds the buffer makes the header invalid as well.
    """
    if position + HEADER_BYTES > len(buffer):
        return None
    magic, crc = _PREFIX.unpack_from(buffer, position)
    if magic != MAGIC:
        return None
    start = position + _PREFIX.size
    if crc32(memoryview(buffer)[start : position + HEADER_BYTES], salt) != crc:
        return None
    frame = Frame(position, *_FIELDS.unpack_from(buffer, start))
    return frame if frame.segment == segment and frame.end <= len(buffer) else None


def payload_of(frame: Frame, buffer: bytes | memoryview, origin: int = 0) -> memoryview:
    """Cut the payload out of a buffer that starts at `origin` of the segment."""
    start = frame.payload_position - origin
    return memoryview(buffer)[start : start + frame.size]


def payload_is_intact(frame: Frame, buffer: bytes | memoryview, origin: int = 0) -> bool:
    """Compare the payload with its CRC."""
    return crc32(payload_of(frame, buffer, origin)) == frame.payload_crc


@dataclass(frozen=True, slots=True)
class Scan:
    """All frames found in one segment, by position."""

    segment: int
    good: tuple[Frame, ...]
    damaged: tuple[Frame, ...]  # a valid header with a damaged payload

    def first_gap(self, end: int) -> int | None:
        """Return the first position before `end` that is not part of a frame."""
        position = 0
        for frame in sorted((*self.good, *self.damaged), key=lambda frame: frame.position):
            if frame.position != position:
                break
            position = frame.end
        return position if position < end else None

    @property
    def has_checkpoint(self) -> bool:
        """Whether the segment starts with a complete checkpoint."""
        if not self.good or self.good[0].kind != Kind.CHECKPOINT_BEGIN or self.good[0].position != 0:
            return False
        for previous, frame in zip(self.good, self.good[1:], strict=False):
            if frame.lsn != previous.lsn + 1 or frame.kind not in (
                Kind.CHECKPOINT_GROUP,
                Kind.CHECKPOINT_END,
            ):
                return False
            if frame.kind == Kind.CHECKPOINT_END:
                return True
        return False


def scan(buffer: bytes, segment: int, salt: int) -> Scan:
    """Find all frames of the segment, also after damaged parts."""
    good: list[Frame] = []
    damaged: list[Frame] = []
    for frame in _headers(buffer, segment, salt):
        (good if payload_is_intact(frame, buffer) else damaged).append(frame)
    return Scan(segment, tuple(good), tuple(damaged))


def _headers(buffer: bytes, segment: int, salt: int) -> Iterator[Frame]:
    position = 0
    while position >= 0:
        frame = parse(buffer, position, segment, salt)
        if frame is None:
            position = _next_magic(buffer, position + ALIGN)
        else:
            yield frame
            position = frame.end


def _next_magic(buffer: bytes, position: int) -> int:
    while (position := buffer.find(MAGIC, position)) >= 0 and position % ALIGN:
        position += 1
    return position


ALL_GROUPS = 0  # no group has this number
MISSING = "synced frames are missing"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The frames after the last checkpoint, classified."""

    kept: tuple[Frame, ...]
    cut: tuple[Frame, ...]
    damage: dict[int, str]  # reason by group; ALL_GROUPS: the group of missing frames is unknown


def classify(scans: Sequence[Scan], expected_lsn: int) -> Verdict:
    """Decide which frames from `expected_lsn` on are valid.

    Lsns have no gaps. If one is missing in the last flush, everything from there on is cut: a crash tore that flush,
    and nothing of it was acknowledged. If a frame of a later flush exists, the missing frame had been synced and may
    have been acknowledged: its group is damaged, or all groups if its group is unknown.
    """
    found = [(frame, True) for s in scans for frame in s.good if frame.lsn >= expected_lsn]
    found += [(frame, False) for s in scans for frame in s.damaged if frame.lsn >= expected_lsn]
    found.sort(key=lambda item: item[0].lsn)
    last_flush = max((frame.flush for frame, _ in found), default=expected_lsn)
    kept: list[Frame] = []
    damage: dict[int, str] = {}
    for at, (frame, intact) in enumerate(found):
        if frame.lsn == expected_lsn and intact:
            kept.append(frame)
        elif expected_lsn >= last_flush:
            return Verdict(tuple(kept), tuple(f for f, _ in found[at:]), damage)
        elif frame.lsn != expected_lsn:
            damage[ALL_GROUPS] = (
                f"{MISSING}: lsn {expected_lsn} to {frame.lsn - 1}, before segment {frame.segment} at {frame.position}"
            )
            return Verdict(tuple(kept), tuple(f for f, _ in found[at:]), damage)
        else:
            for group in (frame.group, frame.index) if frame.kind == Kind.REPLACE else (frame.group,):
                damage[group] = f"the frame in segment {frame.segment} at {frame.position} is damaged"
        expected_lsn = frame.lsn + 1
    return Verdict(tuple(kept), (), damage)
