"""Frames: written frames are found, and nothing else is taken for one."""

import pytest
from isal.isal_zlib import crc32

from flotilla_broker.log import frames
from flotilla_broker.log.frames import ALL_GROUPS, HEADER_BYTES, Frame, Kind, Scan, frame_bytes

SALT = 77
SEGMENT = 3


def frame(lsn: int, flush: int, group: int = 1, payload: bytes = b"hello", segment: int = SEGMENT) -> bytes:
    crc = crc32(payload)
    header = frames.pack(SALT, segment, lsn, flush, group, Kind.ENTRY, lsn, 1, 0, 0, len(payload), crc)
    return header + payload + frames.padding(len(payload))


def test_format_on_disk_does_not_change_by_accident() -> None:
    """Format 1, byte for byte; another format needs another number and a way to read this one."""
    payload = b"payload"
    header = frames.pack(SALT, 3, 1001, 1000, 7, Kind.ENTRY, 42, 5, 4200, 1_700_000_000_000, 7, crc32(payload))
    assert HEADER_BYTES == 80
    assert header.hex(" ", 8) == (
        "464c4631 HEADCRC "
        "0300000000000000 e903000000000000 e803000000000000 0700000001000000 2a00000000000000 0500000000000000 "
        "6810000000000000 0068e5cf8b010000 07000000PAYLCRC"
    ).replace(" HEADCRC", header[4:8].hex()).replace("PAYLCRC", header[76:].hex())
    assert header[4:8] == crc32(header[8:], SALT).to_bytes(4, "little")


def test_frames_are_found_by_position_and_padded_to_eight_bytes() -> None:
    buffer = frame(1, 1, payload=b"") + frame(2, 1, payload=b"123456789") + bytes(500)
    found = frames.scan(buffer, SEGMENT, SALT)
    assert [(f.lsn, f.position, f.end) for f in found.good] == [(1, 0, 80), (2, 80, 176)]
    assert bytes(frames.payload_of(found.good[1], buffer)) == b"123456789"
    assert found.damaged == ()
    assert frame_bytes(9) == 96


@pytest.mark.parametrize(
    "buffer",
    [
        b"",
        bytes(4096),
        b"FLF1" * 100,
        frame(1, 1)[:79],
        frame(1, 1)[:-1][:84],
        frame(1, 1, segment=SEGMENT + 1),
        b"\0\0\0" + frame(1, 1) + bytes(5),
    ],
    ids=["empty", "zeros", "magic only", "cut header", "cut payload", "of another segment", "not aligned"],
)
def test_incomplete_or_foreign_frame_is_not_found(buffer: bytes) -> None:
    found = frames.scan(buffer, SEGMENT, SALT)
    assert found.good == found.damaged == ()


def test_frame_of_another_store_is_not_found() -> None:
    assert frames.scan(frame(1, 1), SEGMENT, SALT + 1).good == ()


def test_frames_after_damaged_bytes_are_found() -> None:
    buffer = bytearray(frame(1, 1) + frame(2, 1) + frame(3, 3))
    size = frame_bytes(5)
    buffer[size : size + 8] = bytes(8)
    assert [f.lsn for f in frames.scan(bytes(buffer), SEGMENT, SALT).good] == [1, 3]


def test_damaged_payload_is_distinguished_from_a_missing_frame() -> None:
    buffer = bytearray(frame(1, 1) + frame(2, 1))
    buffer[HEADER_BYTES] ^= 1
    found = frames.scan(bytes(buffer), SEGMENT, SALT)
    assert [f.lsn for f in found.damaged] == [1]
    assert [f.lsn for f in found.good] == [2]


def classify_frames(text: str) -> tuple[list[int], list[int], list[int]]:
    """Classify frames written as `lsn/flush`, or `lsn/flush!group` for a damaged payload; return kept, cut, damaged."""
    good: list[Frame] = []
    damaged: list[Frame] = []
    for word in text.split():
        place, _, group = word.partition("!")
        lsn, flush = map(int, place.split("/"))
        found = Frame(0, SEGMENT, lsn, flush, int(group or 1), Kind.ENTRY, 0, 0, 0, 0, 0, 0)
        (damaged if group else good).append(found)
    verdict = frames.classify([Scan(SEGMENT, tuple(good), tuple(damaged))], expected_lsn=10)
    return [f.lsn for f in verdict.kept], [f.lsn for f in verdict.cut], sorted(verdict.damage)


@pytest.mark.parametrize(
    ("found", "kept", "cut", "damaged"),
    [
        ("", [], [], []),
        ("10/10 11/10 12/12", [10, 11, 12], [], []),  # all complete
        ("10/10 11/10 13/12 14/12", [10, 11], [13, 14], []),  # 12 is of the last flush: torn
        ("10/10 11/10 12/12!5 13/12", [10, 11], [12, 13], []),  # the same with its header intact
        ("12/10 13/10", [], [12, 13], []),  # the first frames of the only flush are torn
        ("10/10 12/12", [10], [12], [ALL_GROUPS]),  # 11 was synced before flush 12 began
        ("10/10 11/10!5 12/12", [10, 12], [], [5]),  # so was this one, and its header names its group
        ("10/10!5 11/10!6 12/12", [12], [], [5, 6]),
        ("10/10!0 11/11", [11], [], [ALL_GROUPS]),  # a frame of the log itself
        ("10/10 11/10!5 12/12 14/13", [10, 12], [14], [5]),  # damage first, then a torn flush
        ("11/11", [], [11], [ALL_GROUPS]),
        ("13/10", [], [13], []),
    ],
)
def test_only_frames_of_the_last_flush_may_be_missing(
    found: str, kept: list[int], cut: list[int], damaged: list[int]
) -> None:
    """Guarantee 1: synced frames are never truncated as if they were torn."""
    assert classify_frames(found) == (kept, cut, damaged)
