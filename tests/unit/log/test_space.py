"""Disk space: entries are rejected before a write could fail; and failures of writes."""

import errno
import random

import pytest

from flotilla_broker.log import DiskFull, EntryDamaged, Log, LogConfig, LogFailed, StoreUnreadable, open_log
from flotilla_broker.log.space import Space, growth
from support.logmodel import read_all
from support.logtools import idle, run_job
from support.simdisk import SimDisk

SEGMENT = 8192
CONFIG = LogConfig(segment_bytes=SEGMENT, entry_bytes_max=1000)


@pytest.mark.parametrize(
    ("free", "used", "limit", "segments"),
    [(100, 0, None, 10), (99, 0, None, 9), (100, 50, 80, 3), (100, 90, 80, 0), (5, 0, None, 0), (-5, 0, None, 0)],
)
def test_growth_is_limited_by_free_space_and_by_the_setting(
    free: int, used: int, limit: int | None, segments: int
) -> None:
    assert growth(free, used, limit, segment_bytes=10) == segments


@pytest.mark.parametrize(
    ("active", "spares", "more", "admitted"),
    [
        (50, 2, 0, True),  # it fits into the active segment
        (49, 2, 0, False),  # it would need a segment of the reserve
        (49, 3, 0, True),
        (49, 0, 3, True),  # segments that can still be created count like existing ones
        (500, 1, 0, False),  # the active segment is part of the reserve
        (500, 1, 1, True),
        (-3, 2, 1, True),  # a segment that was not preallocated has no space of its own
    ],
)
def test_entries_never_use_the_reserve(active: int, spares: int, more: int, admitted: bool) -> None:
    space = Space(active_bytes=active, spares=spares, growth=more, reserve=2, usable_bytes=100)
    assert space.admits(50) is admitted
    assert not space.admits(501), "it would not even fit into a segment"


def fill(log: Log, number: int) -> int:
    """Append until an entry is rejected; return the number of entries."""
    count = 0
    while True:
        try:
            log.admit(900)
        except DiskFull:
            return count
        index = log.group(number).last_index + 1
        log.append(number, index, 1, bytes(900), index, index)
        idle(log)
        count += 1


def make_log(disk: SimDisk, config: LogConfig = CONFIG) -> tuple[Log, int]:
    log = open_log(disk, config)
    number = next(iter(log.groups), None) or log.create_group(b"")
    log.provide_state(number, lambda: (log.group(number).durable_index, b""))
    idle(log)
    return log, number


@pytest.mark.parametrize(
    "config", [CONFIG, LogConfig(segment_bytes=SEGMENT, entry_bytes_max=1000, log_bytes_max=20 * SEGMENT)]
)
def test_full_disk_rejects_entries_and_still_stores_terms_and_votes(config: LogConfig) -> None:
    """The reserve is for leadership transfers and for the cleaner."""
    disk = SimDisk(capacity_bytes=(20 if config is CONFIG else 40) * SEGMENT)
    log, number = make_log(disk, config)
    assert 60 < fill(log, number) < 160
    with pytest.raises(DiskFull, match="no disk space for an entry of 900 bytes: only the reserve of 2 segments"):
        log.admit(900)
    for term in range(1, 60):
        log.set_term(number, term, b"somebody")
        idle(log)
    index = log.group(number).last_index + 1
    log.append(number, index, 60, b"no-op", log.group(number).next_offset, index)
    idle(log)
    assert log.durable_lsn == log.last_lsn
    disk.reboot(random.Random(0), survive=0)
    log, number = make_log(disk, config)
    assert log.group(number).last_index == index
    assert log.group(number).term == 59


def test_full_log_accepts_entries_after_a_trim() -> None:
    disk = SimDisk(capacity_bytes=20 * SEGMENT)
    log, number = make_log(disk)
    fill(log, number)
    last = log.group(number).last_index
    log.trim(number, last - 5)
    idle(log)
    assert fill(log, number) > 30
    assert len(read_all(log, number)) > 30


def test_cleaner_works_on_a_full_disk() -> None:
    """Half of each segment is dead: only copying into the reserve frees space."""
    disk = SimDisk(capacity_bytes=24 * SEGMENT)
    log, number = make_log(disk)
    other = log.create_group(b"")
    log.provide_state(other, lambda: (log.group(other).durable_index, b""))
    turn = 0
    while True:
        try:
            log.admit(900)
        except DiskFull:
            break
        target = (number, other)[turn % 2]
        index = log.group(target).last_index + 1
        log.append(target, index, 1, bytes([turn % 251]) * 900, index, index)
        idle(log)
        turn += 1
    kept = read_all(log, number)
    log.drop_group(other)
    idle(log)
    log.admit(900)
    assert read_all(log, number) == kept
    assert fill(log, number) > 30


def test_space_freed_by_other_programs_is_used() -> None:
    disk = SimDisk(capacity_bytes=20 * SEGMENT)
    log, number = make_log(disk)
    fill(log, number)
    disk.capacity_bytes *= 2
    log.admit(900)
    assert fill(log, number) > 60


@pytest.mark.parametrize("kind", ["write", "sync"])
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_failed_write_or_sync_is_never_retried(kind: str, code: int) -> None:
    """Guarantee 1: after a failed sync the kernel may mark the lost pages clean, so nothing more is acknowledged."""
    disk = SimDisk()
    log, number = make_log(disk)
    log.append(number, 1, 1, b"first", 1, 1)
    log.flush()
    log.append(number, 2, 1, b"second", 2, 2)
    disk.fail = lambda asked: code if asked == kind else None
    with pytest.raises(LogFailed, match="log write failed"):
        log.flush()
    disk.fail = lambda _: None
    assert log.group(number).durable_index == 1
    for attempt in (
        lambda: log.append(number, 3, 1, b"third", 3, 3),
        log.flush,
        log.begin_flush,
        log.next_job,
        lambda: log.set_term(number, 5, b""),
        lambda: log.create_group(b""),
    ):
        with pytest.raises(LogFailed, match="accepts nothing more"):
            attempt()
    assert bytes(log.read(number, 1, bytes_max=1)[0].payload) == b"first", "reading goes on"
    disk.reboot(random.Random(0), survive=0)
    log, number = make_log(disk)
    assert [entry[4] for entry in read_all(log, number)] == [b"first"]


@pytest.mark.parametrize("kind", ["create", "preallocate", "write"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_job_without_free_space_is_not_a_failure_at_any_step(kind: str, code: int) -> None:
    disk = SimDisk()
    log, number = make_log(disk)
    for index in range(1, 30):
        log.append(number, index, 1, bytes(500), index, index)
        log.flush()
    disk.fail = lambda asked: code if asked == kind else None
    for _ in range(20):
        run_job(log)
    disk.fail = lambda _: None
    disk.capacity_bytes *= 2
    log.check_for_work()
    idle(log)
    assert len(read_all(log, number)) == 29
    assert not any(name.endswith(".tmp") for name in disk.names())


def test_unreadable_sector_quarantines_its_groups() -> None:
    """An unreadable entry takes its group out of service, but does not end the process or restart it in a loop."""
    disk = SimDisk()
    log, number = make_log(disk)
    other = log.create_group(b"")
    for index in range(1, 60):
        for target in (number, other):
            log.append(target, index, 1, bytes(300), index, index)
        log.flush()
    idle(log)
    place = log.plan_read(number, 3, bytes_max=1).locations[0]
    assert place.file is not None
    original = place.file.read

    def unreadable(position: int, size: int) -> bytes:
        if position <= place.position < position + size:
            raise OSError(errno.EIO, "simulated")
        return original(position, size)

    place.file.read = unreadable  # type: ignore[method-assign]
    with pytest.raises(EntryDamaged, match="simulated"):
        log.read(number, 3, bytes_max=1)
    assert log.group(number).quarantined
    log.drop_group(number)
    idle(log)
    assert log.read(other, 59, bytes_max=1)[0].index == 59
    place.file.read = original  # type: ignore[method-assign]


def test_log_with_an_unreadable_newest_segment_is_rejected_with_the_reason() -> None:
    disk = SimDisk()
    make_log(disk)
    disk.fail = lambda asked: errno.EIO if asked == "read" else None
    with pytest.raises(OSError, match="simulated failure"):
        open_log(disk, CONFIG)
    newest = disk.open(max(name for name in disk.names() if name.endswith(".log")))

    def unreadable(position: int, size: int) -> bytes:
        raise OSError(errno.EIO, f"simulated at {position}, {size}")

    disk.fail = lambda _: None
    newest.read = unreadable  # type: ignore[method-assign]
    with pytest.raises(StoreUnreadable, match=r"is unreadable .*rebuild its replicas from other brokers"):
        open_log(disk, CONFIG)


def test_full_disk_while_indexing_is_not_a_failure() -> None:
    disk = SimDisk()
    log, number = make_log(disk)
    for index in range(1, 60):
        log.append(number, index, 1, bytes(500), index, index)
        log.flush()
    disk.capacity_bytes = 0
    for _ in range(20):
        if (job := log.next_job()) is not None:
            job.run()
            log.end_job(job)
    assert len(read_all(log, number)) == 59
    disk.capacity_bytes = 1 << 30
    log.check_for_work()
    idle(log)
    assert any(name.endswith(".index") for name in disk.names())
    assert len(read_all(log, number)) == 59


def test_restart_frees_the_unused_rest_of_the_segment() -> None:
    disk = SimDisk()
    log, number = make_log(disk)
    log.append(number, 1, 1, b"little", 1, 1)
    log.flush()
    name = log._writer.active.name
    assert disk.open(name).size() == SEGMENT
    disk.reboot(random.Random(0), survive=0)
    open_log(disk, CONFIG)
    assert disk.open(name).size() < 1000


@pytest.mark.parametrize(
    ("pending", "admitted"), [(0, True), (50, True), (51, True), (550, True), (551, False), (5000, False)]
)
def test_admitted_but_unwritten_entries_count(pending: int, admitted: bool) -> None:
    """Concurrent requests must not all be admitted to the same free space."""
    space = Space(active_bytes=100, spares=1, growth=2, reserve=2, usable_bytes=500)
    assert space.admits(50, pending) is admitted
