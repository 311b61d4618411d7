"""Losses that look as if nothing had happened: each is noticed, or made good."""

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
def test_a_truncated_entry_does_not_show_through_where_its_successor_is_damaged(payload_only: bool) -> None:
    """Guarantee 4: an entry that was replaced stays replaced, also if the segment has to be read without its index."""
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


def test_a_damaged_index_row_is_not_believed() -> None:
    """Offsets and times come from the entry; its index row only tells where to look."""
    disk = SimDisk()
    log = make_log(disk)
    number = log.create_group(b"")
    append(log, number, 40)
    idle(log)
    name = log._upkeep.segment(log.group(number).runs[0].segment).index_name
    file = disk.open(name)
    spoil(file, file.size() - ROW_BYTES * log.group(number).runs[0].count + ROW_BYTES + 16, 1)
    assert log.read(number, 1, bytes_max=1)[0].next_offset == 1
    with pytest.raises(EntryDamaged, match="entry 2 is damaged"):
        log.truncate(number, 3)
    assert log.group(number).quarantined
    assert log.group(number).last_index == 40, "nothing was changed"


@pytest.mark.parametrize("how", ["deleted", "zeroed"])
def test_the_loss_of_the_newest_segment_is_noticed(how: str) -> None:
    """A store that is older than it was must not vote as if it remembered."""
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
    assert "is gone" in log.damage[0]
    assert log.group(number).quarantined


def test_a_change_from_os_to_fsync_syncs_what_nobody_synced() -> None:
    disk = SimDisk()
    log = make_log(disk, LogConfig(segment_bytes=8192, entry_bytes_max=2000, durability=Durability.OS))
    number = log.create_group(b"")
    for _ in range(40):
        append(log, number)
        log.flush()
    log = make_log(disk)  # the process died; the machine did not
    assert log.group(number).durable_index == 40
    crash(disk)
    log = make_log(disk)
    assert log.damage == ()
    assert len(read_all(log, number)) == 40


def test_what_a_killed_process_left_in_the_page_cache_is_synced_before_it_counts() -> None:
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


def test_flushes_in_a_segment_without_a_checkpoint_are_not_taken_for_one_torn_flush() -> None:
    """Only the last flush may be cut; a segment that holds more than one cannot have been torn as a whole."""
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
    assert "is not whole" in log.damage[0]
    assert log.group(number).quarantined


def test_a_damaged_replacement_revives_nobody() -> None:
    """Guarantee 1: a group that was replaced must not vote again with what it remembers."""
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


def test_a_group_number_is_never_used_twice() -> None:
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


def test_an_index_that_was_rebuilt_is_used() -> None:
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
