"""Failures in the middle of something, and losses that look like nothing happened."""

import asyncio
import errno
import random
from pathlib import Path

import pytest

from flotilla_broker.log import (
    DiskFull,
    Durability,
    EntryDamaged,
    Log,
    LogConfig,
    LogDriver,
    LogFailed,
    LogMisuse,
    StoreUnreadable,
    frames,
    open_folder,
    open_log,
)
from flotilla_broker.log.frames import HEADER_BYTES, Kind
from flotilla_broker.log.index import ROW_BYTES
from support.logmodel import read_all
from support.logtools import idle, run_job
from support.simdisk import SimDisk, SimFile

CONFIG = LogConfig(segment_bytes=8192, entry_bytes_max=2000)
SALT = 5


def make_log(disk: SimDisk, config: LogConfig = CONFIG) -> Log:
    return open_log(disk, config, random_u32=lambda: SALT)


def provide_state(log: Log, number: int) -> None:
    log.provide_state(number, lambda: (log.group(number).durable_index, b""))


def append(log: Log, number: int, count: int = 1, term: int = 1, size: int = 500) -> None:
    for _ in range(count):
        index = log.group(number).last_index + 1
        log.append(number, index, term, f"{index}.{term} ".encode() + bytes(size), index, index * 10)


def crash(disk: SimDisk) -> None:
    disk.reboot(random.Random(0), survive=0)


def find_frame(disk: SimDisk, kind: Kind, index: int, term: int) -> tuple[SimFile, int]:
    """Find a frame on the disk; return its file and position."""
    for name in disk.names():
        if name.endswith((".log", ".cold")):
            file = disk.open(name)
            for frame in frames.scan(bytes(file.data), int(name[:16]), SALT).good:
                if (frame.kind, frame.index, frame.term) == (kind, index, term):
                    return file, frame.position
    raise AssertionError("there is no such frame")


def spoil(file: SimFile, position: int, size: int = 2) -> None:
    for data in (file.stable, file.data):
        data[position : position + size] = bytes(byte ^ 0x55 for byte in data[position : position + size])


@pytest.mark.parametrize("kind", ["open", "create"])
def test_a_segment_that_cannot_be_started_ends_the_log(kind: str) -> None:
    """Guarantee 1: no frame is taken that would go to another segment than it says."""
    disk = SimDisk()
    log = make_log(disk)
    number = log.create_group(b"")
    append(log, number, 10)
    log.flush()
    if kind == "create":
        log._upkeep.spares.clear()
    else:
        idle(log)
    disk.fail = lambda asked: errno.EMFILE if asked == kind else None
    with pytest.raises(LogFailed, match="no new segment could be started"):
        append(log, number, 20)
    disk.fail = lambda _: None
    with pytest.raises(LogFailed):
        log.set_term(number, 9, b"me")
    with pytest.raises(LogFailed):
        log.flush()
    crash(disk)
    assert make_log(disk).group(number).last_index == 10


def test_a_state_that_cannot_be_taken_ends_the_log() -> None:
    disk = SimDisk()
    log = make_log(disk)
    number = log.create_group(b"")
    log.provide_state(number, lambda: 1 // 0)  # type: ignore[arg-type, return-value]
    with pytest.raises(LogFailed, match="modulo by zero"):
        append(log, number, 30)
    with pytest.raises(LogFailed):
        log.flush()


@pytest.mark.parametrize("change", ["truncate", "trim"])
def test_a_change_that_takes_effect_only_in_part_ends_the_log(change: str) -> None:
    disk = SimDisk()
    log = make_log(disk)
    number = log.create_group(b"")
    append(log, number, 30)
    idle(log)

    def fail(*_: int) -> None:
        raise OSError(errno.EIO, "half way")

    setattr(log.group(number), change, fail)
    with pytest.raises(LogFailed, match="took effect only in part"):
        getattr(log, change)(number, 3)
    with pytest.raises(LogFailed, match="half way"):
        append(log, number)
    with pytest.raises(LogFailed, match="half way"):
        log.flush()


def test_an_entry_that_cannot_be_read_stops_a_truncation_before_it_begins() -> None:
    disk = SimDisk()
    log = make_log(disk)
    number = log.create_group(b"")
    append(log, number, 30)
    idle(log)
    before = log.last_lsn
    disk.fail = lambda asked: errno.EIO if asked == "read" else None
    with pytest.raises(EntryDamaged):
        log.truncate(number, 3)
    disk.fail = lambda _: None
    assert log.group(number).last_index == 30
    assert log.last_lsn == before + 1, "the quarantine, and nothing else"


def test_too_many_open_files_are_no_damage() -> None:
    disk = SimDisk()
    log = make_log(disk)
    number = log.create_group(b"")
    append(log, number, 30)
    idle(log)
    log._files._open.clear()
    disk.fail = lambda asked: errno.EMFILE if asked == "open" else None
    with pytest.raises(OSError, match="simulated failure of open"):
        log.read(number, 1, bytes_max=1)
    disk.fail = lambda _: None
    assert not log.group(number).quarantined
    assert log.read(number, 1, bytes_max=1)[0].index == 1


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
    durable = log.group(number).durable_index
    crash(disk)
    assert make_log(disk).group(number).last_index >= durable


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


def test_work_that_cannot_be_planned_does_not_hold_up_flushes() -> None:
    """The driver goes on with what it can do: a cleaner without file handles is no reason to acknowledge nothing."""

    async def body() -> None:
        disk = SimDisk()
        log = make_log(disk)
        failures: list[BaseException] = []
        durable = asyncio.Event()
        driver = LogDriver(log, lambda _: durable.set(), failures.append)
        numbers = [log.create_group(b"") for _ in range(4)]
        for number in numbers:
            provide_state(log, number)
            append(log, number, 30)
        driver.wake()
        await durable.wait()

        def no_handles(_: object) -> None:
            raise OSError(errno.EMFILE, "too many open files")

        log._upkeep._plan_pieces = no_handles  # type: ignore[method-assign, assignment]
        for number in numbers[1:]:
            log.drop_group(number)
        for _ in range(5):
            lsn = log.set_term(numbers[0], log.group(numbers[0]).term + 1, b"me")
            driver.wake()
            while log.durable_lsn < lsn:  # the timeout ends the test if nothing is flushed
                durable.clear()
                await durable.wait()
        assert failures == []
        await driver.close()

    async def bounded() -> None:
        async with asyncio.timeout(30):
            await body()

    asyncio.run(bounded())


def test_a_full_log_is_cleaned_after_a_restart_too() -> None:
    """A restart takes a spare; the cleaner must still be able to begin."""
    config = LogConfig(segment_bytes=1 << 16, entry_bytes_max=2000)
    disk = SimDisk(capacity_bytes=16 << 16)
    log = make_log(disk, config)
    numbers = [log.create_group(b"") for _ in range(3)]
    turn = 0
    while True:
        try:
            log.admit(1500)
        except DiskFull:
            break
        append(log, numbers[turn % 3], size=1480)
        idle(log)
        turn += 1
    log.close()
    log = make_log(disk, config)
    for number in numbers[1:]:
        log.drop_group(number)
    for number in log.groups:
        provide_state(log, number)
    idle(log)
    log.admit(1500)
    assert len(log._upkeep.spares) >= config.reserve_segments


def test_a_checkpoint_larger_than_a_segment_is_no_reason_to_refuse_entries() -> None:
    disk = SimDisk()
    log = make_log(disk)
    number = log.create_group(b"")
    log.provide_state(number, lambda: (log.group(number).durable_index, bytes(20_000)))
    for _ in range(30):
        log.admit(500)
        append(log, number)
        idle(log)
    assert len(read_all(log, number)) == 30


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


def test_a_folder_that_cannot_be_opened_is_not_held(tmp_path: Path) -> None:
    open_folder(tmp_path).close()
    (tmp_path / "store.json").write_bytes(b"{}")
    for _ in range(2):
        with pytest.raises(StoreUnreadable):
            open_folder(tmp_path)


def test_closing_twice_does_no_harm(tmp_path: Path) -> None:
    log = open_folder(tmp_path)
    log.close()
    log.close()
    log = open_folder(tmp_path)
    assert log.damage == ()
    log.close()


def test_a_quarantine_needs_a_reason() -> None:
    log = make_log(SimDisk())
    number = log.create_group(b"")
    with pytest.raises(LogMisuse, match="needs a reason"):
        log.quarantine(number, "")


def test_what_waits_in_memory_is_counted() -> None:
    log = make_log(SimDisk())
    number = log.create_group(b"")
    log.flush()
    assert log.unflushed_bytes == 0
    append(log, number, 2)
    queued = log.unflushed_bytes
    assert queued > 1000
    flush = log.begin_flush()
    append(log, number)
    assert queued < log.unflushed_bytes < 2 * queued
    assert flush is not None
    flush.run()
    log.end_flush(flush)
    assert 0 < log.unflushed_bytes < queued
