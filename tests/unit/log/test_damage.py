"""Damage on disk: it is detected, reported with its location, and never returned to readers.

A crash may leave the last flush torn; it is truncated, since nothing of it was acknowledged. Anything else that is
missing had been synced: its group is quarantined, or all groups if the owner of the data is unknown.
"""

import itertools
import random
from contextlib import suppress

import pytest

from flotilla_broker.log import (
    EntryDamaged,
    GroupQuarantined,
    Log,
    LogConfig,
    StoreUnreadable,
    frames,
    open_log,
)
from flotilla_broker.log.frames import HEADER_BYTES, frame_bytes
from support.logmodel import read_all
from support.logtools import idle
from support.simdisk import Crash, SimDisk, SimFile

CONFIG = LogConfig(segment_bytes=8192, entry_bytes_max=2000)


def make_log(disk: SimDisk) -> Log:
    return open_log(disk, CONFIG, random_u32=lambda: 99)


def payload(number: int, index: int) -> bytes:
    return f"<{number}:{index}>".encode() * 20


def append(log: Log, number: int, count: int = 1) -> None:
    for _ in range(count):
        index = log.group(number).last_index + 1
        log.append(number, index, 1, payload(number, index), index, index)


def newest_segment(disk: SimDisk) -> SimFile:
    return disk.open(max(name for name in disk.names() if name.endswith(".log")))


def crash(disk: SimDisk) -> None:
    """Lose what was not synced, and nothing else."""
    disk.reboot(random.Random(0), survive=0)


def damage(file: SimFile, position: int, content: bytes) -> None:
    file.stable[position : position + len(content)] = content
    file.data[position : position + len(content)] = content


def check_content(log: Log, number: int, last_index: int) -> None:
    expected = [(i, 1, i, i, payload(number, i)) for i in range(1, last_index + 1)]
    assert read_all(log, number) == expected


def filled_disk() -> tuple[SimDisk, int]:
    """Create a log with entry 1 of groups 1 and 2 in flush 1, entry 2 in flush 2; return where flush 2 starts."""
    disk = SimDisk()
    log = make_log(disk)
    for meta in (b"a", b"b"):
        log.create_group(meta)
    position = 0
    for _ in range(2):
        position = log._writer.active.end
        append(log, 1)
        append(log, 2)
        log.flush()
    crash(disk)
    return disk, position


def test_last_flush_torn_at_any_byte_loses_only_its_torn_frames() -> None:
    """Guarantee 1: the log is truncated at the first incomplete frame; all frames before it are served."""
    disk, start = filled_disk()
    one = frame_bytes(len(payload(1, 2)))
    whole = bytes(newest_segment(disk).data)
    for cut in range(start, start + 2 * one):
        disk, _ = filled_disk()
        damage(newest_segment(disk), cut, bytes(len(whole) - cut))
        log = make_log(disk)
        assert log.damage == ()
        for number in (1, 2):
            payload_end = start + (number - 1) * one + HEADER_BYTES + len(payload(number, 2))
            check_content(log, number, 2 if cut >= payload_end else 1)


def torn_disk() -> SimDisk:
    """Create a log whose last flush lost the first of its three frames."""
    disk, start = filled_disk()
    log = make_log(disk)
    start = log._writer.active.end
    append(log, 1, 3)
    log.flush()
    crash(disk)
    damage(newest_segment(disk), start, bytes(HEADER_BYTES))
    return disk


def test_torn_frames_stay_truncated_if_opening_is_interrupted() -> None:
    """Frames after the torn one must not return under the sequence numbers that the next run assigns."""
    reference = torn_disk()
    before = reference.steps
    check_content(make_log(reference), 1, 2)
    steps = range(reference.steps - before)
    for first, second, survive in itertools.product(steps, steps, (0.0, 0.5, 1.0)):
        disk = torn_disk()
        for step in (first, second):
            disk.crash_in = step
            with suppress(Crash):  # the second opening may have less to do
                make_log(disk)
            disk.reboot(random.Random(first + second), survive)
        log = make_log(disk)
        assert log.damage == ()
        check_content(log, 1, 2)
        check_content(log, 2, 2)


def test_gap_before_a_later_flush_quarantines_all_groups_if_the_header_is_lost() -> None:
    """Missing synced data is never treated as a torn write."""
    disk, start = filled_disk()
    damage(newest_segment(disk), start - 2 * frame_bytes(len(payload(1, 1))), bytes(HEADER_BYTES))
    log = make_log(disk)
    assert len(log.damage) == 1
    assert "all groups: synced frames are missing" in log.damage[0]
    for number in (1, 2):
        with pytest.raises(GroupQuarantined, match="read another replica"):
            log.read(number, 1, bytes_max=100)
        with pytest.raises(GroupQuarantined):
            append(log, number)


def test_damaged_payload_before_a_later_flush_quarantines_only_its_group() -> None:
    disk, start = filled_disk()
    damage(newest_segment(disk), start - frame_bytes(len(payload(2, 1))) + HEADER_BYTES, b"\xff\xff")
    log = make_log(disk)
    assert [text.split(":")[0] for text in log.damage] == ["group 2"]
    check_content(log, 1, 2)
    with pytest.raises(GroupQuarantined):
        log.read(2, 1, bytes_max=100)


def test_quarantine_survives_restarts_until_the_group_is_replaced() -> None:
    disk, start = filled_disk()
    damage(newest_segment(disk), start - frame_bytes(len(payload(2, 1))) + HEADER_BYTES, b"\xff\xff")
    make_log(disk)
    crash(disk)
    log = make_log(disk)
    assert log.damage == ()  # reported once; the group remembers it
    with pytest.raises(GroupQuarantined):
        log.read(2, 1, bytes_max=100)
    new = log.create_group(b"copy", anchor_index=2, anchor_term=1, first_offset=2)
    log.replace_group(2, new, b"b")
    append(log, new)
    idle(log)
    crash(disk)
    log = make_log(disk)
    assert set(log.groups) == {1, new}
    assert read_all(log, new) == [(3, 1, 3, 3, payload(new, 3))]


def test_damage_to_the_last_flush_before_a_clean_shutdown_is_detected() -> None:
    disk = SimDisk()
    log = make_log(disk)
    log.create_group(b"a")
    start = log._writer.active.end
    append(log, 1)
    log.close()
    damage(newest_segment(disk), start + HEADER_BYTES, b"\xff\xff")
    assert "is damaged" in make_log(disk).group(1).quarantined


def test_crash_while_opening_a_damaged_log_does_not_hide_the_damage() -> None:
    """The evidence of the damage is kept until the new checkpoint is durable."""
    reference, start = filled_disk()
    damage(newest_segment(reference), start - 2 * frame_bytes(len(payload(1, 1))), bytes(HEADER_BYTES))
    before = reference.steps
    make_log(reference)
    for step in range(reference.steps - before):
        disk, start = filled_disk()
        damage(newest_segment(disk), start - 2 * frame_bytes(len(payload(1, 1))), bytes(HEADER_BYTES))
        disk.crash_in = step
        with pytest.raises(Crash):
            make_log(disk)
        disk.reboot(random.Random(step))
        log = make_log(disk)
        assert all(group.quarantined for group in log.groups.values())


def test_every_flipped_byte_is_detected_or_harmless() -> None:
    """Guarantee 4: an entry is read as it was written, or not at all; no synced entry disappears silently."""
    reference, _ = filled_disk()
    size = len(newest_segment(reference).data)
    for position in range(size):
        disk, start = filled_disk()
        file = newest_segment(disk)
        damage(file, position, bytes([file.data[position] ^ 0x41]))
        try:
            log = make_log(disk)
        except StoreUnreadable:
            assert position < start, "only the checkpoint can make the whole log unreadable"
            continue
        for number, group in log.groups.items():
            if group.quarantined:
                continue
            check_content(log, number, group.last_index)
            assert group.last_index >= (1 if position >= start else 2)


def test_zeroed_page_in_a_sealed_segment_is_detected_on_read() -> None:
    disk = SimDisk()
    log = make_log(disk)
    log.create_group(b"a")
    log.create_group(b"b")
    for _ in range(30):
        append(log, 1)
        append(log, 2)
        log.flush()
    idle(log)
    place = log.plan_read(1, 5, bytes_max=1).locations[0]
    file = disk.open(log._maintenance.segment(place.segment).name)
    damage(file, place.position + HEADER_BYTES, bytes(16))
    with pytest.raises(EntryDamaged, match="entry 5 is damaged"):
        log.read(1, 5, bytes_max=1)
    with pytest.raises(GroupQuarantined, match="entry 5 is damaged"):
        log.read(1, 1, bytes_max=1)
    check_content(log, 2, 30)
    log.flush()
    crash(disk)
    assert make_log(disk).group(1).quarantined


def test_cleaner_does_not_copy_damaged_frames() -> None:
    disk = SimDisk()
    log = make_log(disk)
    for meta in (b"a", b"b"):
        number = log.create_group(meta)
        log.provide_state(number, lambda number=number: (log.group(number).durable_index, b""))  # type: ignore[misc]
    append(log, 1)
    for _ in range(40):
        append(log, 2)
        log.flush()
    place = log.plan_read(1, 1, bytes_max=1).locations[0]
    damage(disk.open(log._maintenance.segment(place.segment).name), place.position + HEADER_BYTES, b"??")
    log.trim(2, 35)
    idle(log)
    assert "entry 1 is damaged" in log.group(1).quarantined
    assert place.segment in log._maintenance._segments
    assert [e[0] for e in read_all(log, 2)] == list(range(35, 41))


def sealed_log(disk: SimDisk) -> str:
    """Create a log with several indexed segments; return the name of one in the middle."""
    log = make_log(disk)
    log.create_group(b"a")
    for _ in range(120):
        append(log, 1)
        log.flush()
    idle(log)
    disk.sync_folder()
    crash(disk)
    names = [name for name in disk.names() if name.endswith(".log")]
    return names[len(names) // 2]


@pytest.mark.parametrize("content", [b"", b"FLX1", b"\0" * 5000, None])
def test_damaged_or_missing_index_is_rebuilt_from_its_segment(content: bytes | None) -> None:
    disk = SimDisk()
    name = sealed_log(disk).replace(".log", ".index")
    disk.unlink(name)
    if content is not None:
        disk.create(name).write(0, [content])
    log = make_log(disk)
    assert log.damage == ()
    check_content(log, 1, 120)


def test_missing_segment_quarantines_all_groups() -> None:
    disk = SimDisk()
    disk.unlink(sealed_log(disk))
    log = make_log(disk)
    assert any("is missing" in text for text in log.damage)
    with pytest.raises(GroupQuarantined, match=r"segment \d+ is missing"):
        log.read(1, 1, bytes_max=1)


def test_shortened_segment_quarantines_all_groups() -> None:
    disk = SimDisk()
    disk.open(sealed_log(disk)).truncate(3000)
    with pytest.raises(GroupQuarantined, match=r"segment \d+ has no frame at"):
        make_log(disk).read(1, 1, bytes_max=1)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "store.json is damaged"),
        (b"{}", "store.json is damaged"),
        (b'{"format": 2}', "has format 2; this version of Flotilla supports format 1"),
        (b'{"format": 1, "salt": "x"}', "store.json is damaged"),
    ],
)
def test_unreadable_store_file_is_rejected_with_the_reason(content: bytes, message: str) -> None:
    disk, _ = filled_disk()
    disk.create("store.json").write(0, [content])
    with pytest.raises(StoreUnreadable, match=message):
        make_log(disk)


def test_segments_without_a_store_file_are_not_treated_as_a_new_log() -> None:
    disk, _ = filled_disk()
    disk.unlink("store.json")
    with pytest.raises(StoreUnreadable, match=r"segments but no store.json"):
        make_log(disk)


def test_log_without_a_readable_checkpoint_is_rejected() -> None:
    disk, _ = filled_disk()
    for name in disk.names():
        if name.endswith(".log"):
            damage(disk.open(name), 0, bytes(200))
    with pytest.raises(StoreUnreadable, match="no segment starts with a complete checkpoint"):
        make_log(disk)


def test_frame_inside_a_payload_is_not_treated_as_a_frame() -> None:
    """Guarantee 7: bytes of clients cannot pose as frames of the log, even after a torn write."""
    disk = SimDisk()
    log = make_log(disk)
    log.create_group(b"a")
    append(log, 1)
    log.flush()
    forged = frames.pack(0, log._writer.active.id, 10_000, 10_000, 1, frames.Kind.ENTRY, 9, 9, 9, 9, 0, 0)
    start = log._writer.active.end
    log.append(1, 2, 1, forged * 4, 2, 2)
    log.flush()
    crash(disk)
    damage(newest_segment(disk), start, bytes(8))
    log = make_log(disk)
    assert log.damage == ()
    check_content(log, 1, 1)
