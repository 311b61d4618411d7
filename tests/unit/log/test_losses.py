"""Losses that could go unnoticed: each is detected or repaired."""

import pytest

from flotilla_broker.log import (
    Durability,
    EntryDamaged,
    LogConfig,
)
from flotilla_broker.log.frames import HEADER_BYTES, Kind
from flotilla_broker.log.index import ROW_BYTES
from support.logmodel import read_all
from support.logtools import append, crash, find_frame, idle, make_log, run_job, spoil
from support.simdisk import SimDisk


@pytest.mark.parametrize("payload_only", [True, False])
def test_truncated_entry_does_not_reappear_if_its_replacement_is_damaged(payload_only: bool) -> None:
    """Guarantee 4: a replaced entry stays replaced, also if the segment is read without its index."""
    disk = SimDisk()
    log = make_log(disk)
    number = log.create_group(b"")
    append(log, number, 5)
    log.flush()
    log.truncate(number, 4)
    append(log, number, 40, term=2)
    log.flush()
    crash(disk)
    file, position = find_frame(disk, Kind.ENTRY, 4, 2)
    spoil(file, position + HEADER_BYTES if payload_only else position)
    log = make_log(disk)
    assert log.damage
    assert log.group(number).quarantined


def test_damaged_index_row_is_not_trusted() -> None:
    """Offsets and times are read from the entry; its index row is only a position."""
    disk = SimDisk()
    log = make_log(disk)
    number = log.create_group(b"")
    append(log, number, 40)
    idle(log)
    name = log._maintenance.segment(log.group(number).runs[0].segment).index_name
    file = disk.open(name)
    spoil(file, file.size() - ROW_BYTES * log.group(number).runs[0].count + ROW_BYTES + 16, 1)
    assert log.read(number, 1, bytes_max=1)[0].next_offset == 1
    with pytest.raises(EntryDamaged, match="entry 2 is damaged"):
        log.truncate(number, 3)
    assert log.group(number).quarantined
    assert log.group(number).last_index == 40, "nothing was changed"


@pytest.mark.parametrize("how", ["deleted", "zeroed"])
def test_loss_of_the_newest_segment_is_detected(how: str) -> None:
    """A store that has lost its newest state must not vote."""
    disk = SimDisk()
    log = make_log(disk)
    number = log.create_group(b"")
    append(log, number, 40)
    log.set_term(number, 7, b"somebody")
    idle(log)
    disk.sync_folder()
    crash(disk)
    newest = max(name for name in disk.names() if name.endswith(".log"))
    if how == "deleted":
        disk.unlink(newest)
    else:
        file = disk.open(newest)
        file.data = file.stable = bytearray(file.size())
    log = make_log(disk)
    assert "is missing" in log.damage[0]
    assert log.group(number).quarantined


def test_change_from_os_to_fsync_syncs_unsynced_segments() -> None:
    disk = SimDisk()
    log = make_log(disk, LogConfig(segment_bytes=8192, entry_bytes_max=2000, durability=Durability.OS))
    number = log.create_group(b"")
    for _ in range(40):
        append(log, number)
        log.flush()
    log = make_log(disk)  # only the process died
    assert log.group(number).durable_index == 40
    crash(disk)
    log = make_log(disk)
    assert log.damage == ()
    assert len(read_all(log, number)) == 40


def test_page_cache_of_a_killed_process_is_synced_before_its_entries_count() -> None:
    disk = SimDisk()
    log = make_log(disk)
    number = log.create_group(b"")
    append(log, number)
    log.flush()
    append(log, number)
    flush = log.begin_flush()
    assert flush is not None
    flush.steps[0].file.write(flush.steps[0].position, flush.steps[0].buffers)  # killed before the sync
    log = make_log(disk)
    assert log.group(number).durable_index == 2
    crash(disk)
    log = make_log(disk)
    assert log.damage == ()
    assert len(read_all(log, number)) == 2


def test_several_flushes_in_a_segment_without_checkpoint_are_not_treated_as_one_torn_flush() -> None:
    """Only the last flush may be truncated; a segment with several flushes cannot be torn as a whole."""
    disk = SimDisk()
    log = make_log(disk)
    number = log.create_group(b"")
    append(log, number, 5)
    log.flush()
    log._writer._take_checkpoint = lambda: iter(())
    log._writer.roll()
    for _ in range(3):
        append(log, number)
        log.flush()
    crash(disk)
    log = make_log(disk)
    assert "is incomplete" in log.damage[0]
    assert log.group(number).quarantined


def test_damaged_replacement_does_not_revive_the_replaced_group() -> None:
    """Guarantee 1: a replaced group must not vote again with its old state."""
    disk = SimDisk()
    log = make_log(disk)
    old, new = log.create_group(b"old"), log.create_group(b"copy")
    log.replace_group(old, new, b"new")
    log.flush()
    log.mark()
    log.flush()
    crash(disk)
    file, position = find_frame(disk, Kind.REPLACE, old, 0)
    spoil(file, position + HEADER_BYTES)
    log = make_log(disk)
    assert all(group.quarantined for group in log.groups.values())


def test_group_number_is_never_reused() -> None:
    disk = SimDisk()
    log = make_log(disk)
    number = log.create_group(b"")
    append(log, number)
    log.flush()
    append(log, number)
    log.flush()
    crash(disk)
    file, position = find_frame(disk, Kind.OPEN, 0, 0)
    spoil(file, position + HEADER_BYTES)
    log = make_log(disk)
    assert len(log.damage) == 1
    assert log.create_group(b"") > number


def test_rebuilt_index_is_used() -> None:
    disk = SimDisk()
    log = make_log(disk)
    number = log.create_group(b"")
    append(log, number, 60)
    idle(log)
    log.close()
    name = next(name for name in disk.names() if name.endswith(".index"))
    disk.create(name).write(0, [b"damaged"])
    log = make_log(disk)
    while run_job(log) is not None:
        log.flush()
    assert bytes(disk.open(name).data[:4]) == b"FLX1"
    assert len(read_all(log, number)) == 60
