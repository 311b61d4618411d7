"""Failures half-way: the log fails if its state is uncertain; work that can wait is postponed."""

import asyncio
import errno
from dataclasses import replace
from pathlib import Path

import pytest

from flotilla_broker.log import (
    DiskFull,
    EntryDamaged,
    Log,
    LogConfig,
    LogDriver,
    LogFailed,
    LogMisuse,
    StoreUnreadable,
    cleaner,
    open_folder,
)
from flotilla_broker.log.cleaner import Clean
from support.logmodel import read_all
from support.logtools import CONFIG, append, crash, idle, make_log, run_job
from support.simdisk import SimDisk


def provide_state(log: Log, number: int) -> None:
    log.provide_state(number, lambda: (log.group(number).durable_index, b""))


@pytest.mark.parametrize("kind", ["open", "create"])
def test_segment_that_cannot_be_started_fails_the_log(kind: str) -> None:
    """Guarantee 1: no frame is accepted that would be written to another segment than the one it names."""
    disk = SimDisk()
    log = make_log(disk)
    number = log.create_group(b"")
    append(log, number, 10)
    log.flush()
    if kind == "create":
        log._maintenance.spares.clear()
    else:
        idle(log)
    disk.fail = lambda asked: errno.EMFILE if asked == kind else None
    with pytest.raises(LogFailed, match="cannot start a new segment"):
        append(log, number, 20)
    disk.fail = lambda _: None
    with pytest.raises(LogFailed):
        log.set_term(number, 9, b"me")
    with pytest.raises(LogFailed):
        log.flush()
    crash(disk)
    assert make_log(disk).group(number).last_index == 10


def test_exception_of_the_state_provider_fails_the_log() -> None:
    disk = SimDisk()
    log = make_log(disk)
    number = log.create_group(b"")
    log.provide_state(number, lambda: 1 // 0)  # type: ignore[arg-type, return-value]
    with pytest.raises(LogFailed, match="modulo by zero"):
        append(log, number, 30)
    with pytest.raises(LogFailed):
        log.flush()


@pytest.mark.parametrize("change", ["truncate", "trim"])
def test_partly_applied_change_fails_the_log(change: str) -> None:
    disk = SimDisk()
    log = make_log(disk)
    number = log.create_group(b"")
    append(log, number, 30)
    idle(log)

    def fail(*_: int) -> None:
        raise OSError(errno.EIO, "half way")

    setattr(log.group(number), change, fail)
    with pytest.raises(LogFailed, match="applied only partially"):
        getattr(log, change)(number, 3)
    with pytest.raises(LogFailed, match="half way"):
        append(log, number)
    with pytest.raises(LogFailed, match="half way"):
        log.flush()


def test_unreadable_entry_prevents_a_truncation() -> None:
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


def test_too_many_open_files_are_not_treated_as_damage() -> None:
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


def make_mostly_dead(log: Log) -> None:
    """Fill segments, three quarters of which then become dead."""
    numbers = [log.create_group(b"") for _ in range(4)]
    for _ in range(30):
        for number in numbers:
            append(log, number)
    idle(log)
    for number in numbers[1:]:
        log.drop_group(number)
    log.flush()


def test_cleaning_that_cannot_be_planned_is_postponed() -> None:
    log = make_log(SimDisk())
    make_mostly_dead(log)

    def no_handles(_: object) -> None:
        raise OSError(errno.EMFILE, "too many open files")

    plan = log._maintenance._plan_pieces
    log._maintenance._plan_pieces = no_handles  # type: ignore[method-assign, assignment]
    assert log.next_job() is None
    log._maintenance._plan_pieces = plan  # type: ignore[method-assign]
    log.check_for_work()
    assert isinstance(log.next_job(), Clean)


def test_copies_whose_index_does_not_fit_are_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SimDisk()
    log = make_log(disk)
    make_mostly_dead(log)
    disk.capacity_bytes = 0
    monkeypatch.setattr(cleaner, "write_index", lambda *_: None)
    jobs = [type(run_job(log)) for _ in range(20)]
    assert jobs.count(Clean) == 1


def test_job_that_cannot_be_planned_does_not_block_flushes() -> None:
    """A cleaner without file handles must not stop acknowledgements."""

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

        log._maintenance._plan_pieces = no_handles  # type: ignore[method-assign, assignment]
        for number in numbers[1:]:
            log.drop_group(number)
        for _ in range(5):
            lsn = log.set_term(numbers[0], log.group(numbers[0]).term + 1, b"me")
            driver.wake()
            while log.durable_lsn < lsn:  # the timeout fails the test if nothing is flushed
                durable.clear()
                await durable.wait()
        assert failures == []
        await driver.close()

    async def bounded() -> None:
        async with asyncio.timeout(30):
            await body()

    asyncio.run(bounded())


def test_full_log_is_cleaned_after_a_restart() -> None:
    """A restart takes a spare; the cleaner must still be able to start."""
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
    assert len(log._maintenance.spares) >= config.reserve_segments


def test_checkpoint_larger_than_a_segment_does_not_block_entries() -> None:
    disk = SimDisk()
    log = make_log(disk)
    number = log.create_group(b"")
    log.provide_state(number, lambda: (log.group(number).durable_index, bytes(20_000)))
    for _ in range(30):
        log.admit(500)
        append(log, number)
        idle(log)
    assert len(read_all(log, number)) == 30


def test_folder_that_cannot_be_opened_is_not_locked(tmp_path: Path) -> None:
    open_folder(tmp_path).close()
    (tmp_path / "store.json").write_bytes(b"{}")
    for _ in range(2):
        with pytest.raises(StoreUnreadable):
            open_folder(tmp_path)


def test_log_can_be_closed_twice(tmp_path: Path) -> None:
    log = open_folder(tmp_path)
    log.close()
    log.close()
    log = open_folder(tmp_path)
    assert log.damage == ()
    log.close()


def test_quarantine_requires_a_reason() -> None:
    log = make_log(SimDisk())
    number = log.create_group(b"")
    with pytest.raises(LogMisuse, match="reason must not be empty"):
        log.quarantine(number, "")


def test_unflushed_bytes_are_counted() -> None:
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


def test_exception_after_a_flush_fails_the_log() -> None:
    disk = SimDisk()
    log = make_log(disk)
    number = log.create_group(b"")
    provide_state(log, number)
    append(log, number, 20)

    def fail() -> None:
        raise OSError(errno.EIO, "half way")

    log.group(number).release = fail  # type: ignore[method-assign, assignment]
    with pytest.raises(LogFailed, match="half way"):
        log.flush()
    with pytest.raises(LogFailed, match="half way"):
        append(log, number)


def test_disk_usage_is_limited_by_the_file_system_or_by_the_setting() -> None:
    disk = SimDisk()
    log = make_log(disk)
    append(log, log.create_group(b""), 100)
    log.flush()
    usage = log.disk_usage()
    assert (usage.capacity_bytes, usage.free_bytes) == (disk.capacity_bytes, disk.free_bytes())
    assert 0 < usage.live_bytes < usage.used_bytes
    limit = 1 << 20
    limited = make_log(SimDisk(), replace(CONFIG, log_bytes_max=limit)).disk_usage()
    assert (limited.capacity_bytes, limited.free_bytes) == (limit, limit - limited.used_bytes)


def test_disk_usage_includes_index_files() -> None:
    disk = SimDisk()
    log = make_log(disk)
    number = log.create_group(b"")
    for _ in range(10):
        append(log, number, 100, size=10)
        idle(log)
    on_disk = sum(disk.open(name).size() for name in disk.names() if name != "store.json")
    assert abs(log.used_bytes - on_disk) <= 4096, "but for the last page of the segment that is being written"
