"""What is on the disk is not what was written: it is noticed, named, and never passed on.

A crash may leave the last flush torn; that is cut, since nothing of it was acknowledged. Anything else that is
missing had been synced: the group it belongs to is quarantined, or all groups if nothing tells whose it was.
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
    """Make a log in which flush 1 holds entry 1 of groups 1 and 2, and flush 2 entry 2; tell where flush 2 is."""
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


def test_the_last_flush_cut_at_every_byte_loses_only_what_is_cut() -> None:
    """Guarantee 1: a torn write is cut at the first frame that is not whole; everything before it is served."""
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
    """Make a log whose last flush lost the first of its three frames."""
    disk, start = filled_disk()
    log = make_log(disk)
    start = log._writer.active.end
    append(log, 1, 3)
    log.flush()
    crash(disk)
    damage(newest_segment(disk), start, bytes(HEADER_BYTES))
    return disk


def test_what_was_cut_stays_cut_when_opening_is_interrupted() -> None:
    """Frames behind the torn one must not come back under the numbers that the next run gives to its own."""
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


def test_a_gap_before_a_later_flush_quarantines_every_group_if_the_header_is_gone() -> None:
    """Synced data that is missing is never taken for a torn write."""
    disk, start = filled_disk()
    damage(newest_segment(disk), start - 2 * frame_bytes(len(payload(1, 1))), bytes(HEADER_BYTES))
    log = make_log(disk)
    assert len(log.damage) == 1
    assert "all groups: synced frames are missing" in log.damage[0]
    for number in (1, 2):
        with pytest.raises(GroupQuarantined, match="has to be rebuilt from another replica"):
            log.read(number, 1, bytes_max=100)
        with pytest.raises(GroupQuarantined):
            append(log, number)


def test_a_damaged_payload_before_a_later_flush_quarantines_its_own_group_only() -> None:
    disk, start = filled_disk()
    damage(newest_segment(disk), start - frame_bytes(len(payload(2, 1))) + HEADER_BYTES, b"\xff\xff")
    log = make_log(disk)
    assert [text.split(":")[0] for text in log.damage] == ["group 2"]
    check_content(log, 1, 2)
    with pytest.raises(GroupQuarantined):
        log.read(2, 1, bytes_max=100)


def test_a_quarantine_survives_restarts_and_ends_when_the_group_is_replaced() -> None:
    disk, start = filled_disk()
    damage(newest_segment(disk), start - frame_bytes(len(payload(2, 1))) + HEADER_BYTES, b"\xff\xff")
    make_log(disk)
    crash(disk)
    log = make_log(disk)
    assert log.damage == ()  # told once; the group remembers
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


def test_damage_to_the_last_flush_before_an_orderly_end_is_noticed() -> None:
    disk = SimDisk()
    log = make_log(disk)
    log.create_group(b"a")
    start = log._writer.active.end
    append(log, 1)
    log.close()
    damage(newest_segment(disk), start + HEADER_BYTES, b"\xff\xff")
    assert "is damaged" in make_log(disk).group(1).quarantined


def test_a_crash_while_opening_a_damaged_log_does_not_hide_the_damage() -> None:
    """What proves the damage outlives a crash before the new checkpoint is on disk."""
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


def test_every_flipped_byte_is_noticed_or_harmless() -> None:
    """Guarantee 4: an entry is read as it was written, or not at all; and nothing synced disappears silently."""
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


def test_a_zeroed_page_in_a_sealed_segment_is_noticed_when_it_is_read() -> None:
    disk = SimDisk()
    log = make_log(disk)
    log.create_group(b"a")
    log.create_group(b"b")
    for _ in range(30):
        append(log, 1)
        append(log, 2)
        log.flush()
    idle(log)
    place = log.plan_read(1, 5, bytes_max=1).places[0]
    file = disk.open(log._upkeep.segment(place.segment).name)
    damage(file, place.position + HEADER_BYTES, bytes(16))
    with pytest.raises(EntryDamaged, match="entry 5 is damaged"):
        log.read(1, 5, bytes_max=1)
    with pytest.raises(GroupQuarantined, match="entry 5 is damaged"):
        log.read(1, 1, bytes_max=1)
    check_content(log, 2, 30)
    log.flush()
    crash(disk)
    assert make_log(disk).group(1).quarantined


def test_the_cleaner_does_not_copy_damage() -> None:
    disk = SimDisk()
    log = make_log(disk)
    for meta in (b"a", b"b"):
        number = log.create_group(meta)
        log.provide_state(number, lambda number=number: (log.group(number).durable_index, b""))  # type: ignore[misc]
    append(log, 1)
    for _ in range(40):
        append(log, 2)
        log.flush()
    place = log.plan_read(1, 1, bytes_max=1).places[0]
    damage(disk.open(log._upkeep.segment(place.segment).name), place.position + HEADER_BYTES, b"??")
    log.trim(2, 35)
    idle(log)
    assert "entry 1 is damaged" in log.group(1).quarantined
    assert place.segment in log._upkeep._segments
    assert [e[0] for e in read_all(log, 2)] == list(range(35, 41))


def sealed_log(disk: SimDisk) -> str:
    """Fill a log with several indexed segments; return the name of one in the middle."""
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
def test_a_damaged_or_missing_index_is_rebuilt_from_its_segment(content: bytes | None) -> None:
    disk = SimDisk()
    name = sealed_log(disk).replace(".log", ".index")
    disk.unlink(name)
    if content is not None:
        disk.create(name).write(0, [content])
    log = make_log(disk)
    assert log.damage == ()
    check_content(log, 1, 120)


def test_a_missing_segment_quarantines_all_groups() -> None:
    disk = SimDisk()
    disk.unlink(sealed_log(disk))
    log = make_log(disk)
    assert any("is missing" in text for text in log.damage)
    with pytest.raises(GroupQuarantined, match=r"segment \d+ is missing"):
        log.read(1, 1, bytes_max=1)


def test_a_shortened_segment_quarantines_all_groups() -> None:
    disk = SimDisk()
    disk.open(sealed_log(disk)).truncate(3000)
    with pytest.raises(GroupQuarantined, match=r"segment \d+ has no frame at"):
        make_log(disk).read(1, 1, bytes_max=1)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "store.json is damaged"),
        (b"{}", "store.json is damaged"),
        (b'{"format": 2}', "says format 2; this version of Flotilla reads format 1"),
        (b'{"format": 1, "salt": "x"}', "store.json is damaged"),
    ],
)
def test_a_store_file_that_cannot_be_read_is_refused_with_the_reason(content: bytes, message: str) -> None:
    disk, _ = filled_disk()
    disk.create("store.json").write(0, [content])
    with pytest.raises(StoreUnreadable, match=message):
        make_log(disk)


def test_segments_without_a_store_file_are_not_taken_for_a_new_log() -> None:
    disk, _ = filled_disk()
    disk.unlink("store.json")
    with pytest.raises(StoreUnreadable, match=r"there are segments but no store.json"):
        make_log(disk)


def test_a_log_without_a_readable_checkpoint_is_refused() -> None:
    disk, _ = filled_disk()
    for name in disk.names():
        if name.endswith(".log"):
            damage(disk.open(name), 0, bytes(200))
    with pytest.raises(StoreUnreadable, match="no segment opens with a whole checkpoint"):
        make_log(disk)


def test_a_frame_inside_of_a_payload_is_not_taken_for_a_frame_of_the_log() -> None:
    """Guarantee 7: what clients send cannot pose as the log's own, even behind a torn write."""
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
