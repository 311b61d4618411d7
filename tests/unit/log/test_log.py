"""The rules of the log, one by one."""

import random
from collections import Counter
from collections.abc import Callable

import pytest

from flotilla_broker.log import (
    EntryDamaged,
    EntryMissing,
    GroupUnknown,
    Log,
    LogConfig,
    LogMisuse,
    open_log,
)
from flotilla_broker.log.cleaner import Clean
from flotilla_broker.log.jobs import Job, Preallocate, WriteIndex
from support.logmodel import read_all
from support.logtools import idle
from support.simdisk import SimDisk

CONFIG = LogConfig(segment_bytes=8192, entry_bytes_max=2000)


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk()


@pytest.fixture
def log(disk: SimDisk) -> Log:
    return open_log(disk, CONFIG)


def append(log: Log, number: int, count: int, term: int = 1, size: int = 50) -> None:
    for _ in range(count):
        index = log.group(number).last_index + 1
        log.append(number, index, term, f"{index}.{term} ".encode() + bytes(size), index, index)


def test_new_log_is_empty_and_marked_as_new(disk: SimDisk, log: Log) -> None:
    assert log.fresh
    assert dict(log.groups) == {}
    disk.reboot(random.Random(0))
    assert not open_log(disk, CONFIG).fresh


def test_entries_can_be_read_before_they_are_flushed(log: Log) -> None:
    number = log.create_group(b"")
    append(log, number, 3)
    queued = read_all(log, number)
    flush = log.begin_flush()
    assert flush is not None
    assert read_all(log, number) == queued
    flush.run()
    assert read_all(log, number) == queued
    log.end_flush(flush)
    assert read_all(log, number) == queued


def test_flush_covers_the_frames_queued_when_it_began(log: Log) -> None:
    number = log.create_group(b"")
    append(log, number, 2)
    flush = log.begin_flush()
    append(log, number, 3)
    assert flush is not None
    assert log.begin_flush() is None, "one flush at a time"
    flush.run()
    assert log.end_flush(flush).indexes == {number: 2}
    assert log.group(number).durable_index == 2
    assert log.durable_lsn == log.last_lsn - 3
    durable = log.flush()
    assert durable is not None
    assert durable.indexes == {number: 5}
    assert log.durable_lsn == log.last_lsn
    assert log.flush() is None, "nothing is queued"


def test_flush_that_ends_after_a_truncation_does_not_make_replaced_entries_durable(log: Log) -> None:
    """Guarantee 1: an index that was written twice is durable only when the second entry is."""
    number = log.create_group(b"")
    append(log, number, 5, term=1)
    flush = log.begin_flush()
    assert flush is not None
    flush.run()
    log.truncate(number, 3)
    append(log, number, 3, term=2)
    assert log.end_flush(flush).indexes == {}
    assert log.group(number).durable_index == 0
    durable = log.flush()
    assert durable is not None
    assert durable.indexes == {number: 5}


def test_truncation_lowers_the_durable_index(log: Log) -> None:
    number = log.create_group(b"")
    append(log, number, 5)
    log.flush()
    log.truncate(number, 4)
    assert log.group(number).durable_index == 3


def test_terms_and_offsets_follow_truncation_and_trimming(log: Log) -> None:
    number = log.create_group(b"", anchor_index=10, anchor_term=2, first_offset=100)
    group = log.group(number)
    assert (group.last_index, group.last_term, group.next_offset) == (10, 2, 100)
    for index, (term, next_offset) in enumerate([(2, 105), (3, 105), (3, 110)], start=11):
        log.append(number, index, term, b"", next_offset, index)
    assert [log.term_of(number, index) for index in (10, 11, 12, 13)] == [2, 2, 3, 3]
    assert [log.find_offset(number, offset) for offset in (100, 104, 105, 109, 110)] == [11, 11, 13, 13, 14]
    assert [log.find_time(number, time_ms) for time_ms in (0, 11, 12, 13, 14)] == [11, 11, 12, 13, 14]
    log.trim(number, 13)
    assert (group.first_index, group.anchor_term, group.first_offset) == (13, 3, 105)
    log.truncate(number, 13)
    assert (group.last_index, group.last_term, group.next_offset) == (12, 3, 105)


@pytest.mark.parametrize(
    ("misuse", "message"),
    [
        (lambda log: log.append(1, 5, 1, b"", 9, 9), "cannot append entry 5 after 3"),
        (lambda log: log.append(1, 3, 1, b"", 9, 9), "cannot append entry 3 after 3"),
        (lambda log: log.append(1, 4, 0, b"", 9, 9), "cannot append entry 4 of term 0 after term 1"),
        (lambda log: log.append(1, 4, 1, b"", 2, 9), "entry 4 has next offset 2, below 3"),
        (lambda log: log.append(1, 4, 1, bytes(2001), 9, 9), "has 2001 bytes, the limit is 2000"),
        (lambda log: log.truncate(1, 4), "cannot truncate from entry 4, it has entries 1 to 3"),
        (lambda log: log.truncate(1, 0), "cannot truncate from entry 0"),
        (lambda log: log.trim(1, 5), "cannot trim to entry 5, it has entries 1 to 3"),
        (lambda log: log.trim(1, 0), "cannot trim to entry 0"),
        (lambda log: log.set_term(1, 1, b""), "term 1 is below the current term 2"),
        (lambda log: log.replace_group(1, 1, b""), "cannot replace itself"),
    ],
)
def test_invalid_call_is_rejected_and_changes_nothing(log: Log, misuse: Callable[[Log], int], message: str) -> None:
    """Guarantee 7: the error names the rule, and nothing is changed."""
    number = log.create_group(b"")
    append(log, number, 3)
    log.set_term(number, 2, b"me")
    log.flush()
    before = (log.last_lsn, read_all(log, number))
    with pytest.raises(LogMisuse, match=message):
        misuse(log)
    assert (log.last_lsn, read_all(log, number)) == before
    assert log.flush() is None


def test_entries_covered_by_the_saved_state_cannot_be_truncated(log: Log) -> None:
    number = log.create_group(b"")
    log.provide_state(number, lambda: (log.group(number).durable_index, b""))
    append(log, number, 5)
    log.flush()
    append(log, number, 200)  # more than one segment: a checkpoint saves the state at 5
    with pytest.raises(LogMisuse, match="the state covers 5"):
        log.truncate(number, 5)


def test_unknown_group_or_entry_is_named(log: Log) -> None:
    with pytest.raises(GroupUnknown, match="unknown group 9"):
        log.append(9, 1, 1, b"", 1, 1)
    number = log.create_group(b"")
    with pytest.raises(EntryMissing, match="no entry 1, it has entries 1 to 0"):
        log.read(number, 1, bytes_max=1)


def test_trimmed_entries_stay_readable_until_a_state_that_covers_them_is_saved(disk: SimDisk) -> None:
    """Guarantee 3: after a restart the producer table is rebuilt from the state and the entries after it."""
    log = open_log(disk, CONFIG)
    number = log.create_group(b"")
    log.provide_state(number, lambda: (log.group(number).durable_index, b"state"))
    append(log, number, 20)
    log.trim(number, 15)
    log.flush()
    disk.reboot(random.Random(1), survive=0)
    log = open_log(disk, CONFIG)
    group = log.group(number)
    assert (group.first_index, group.state_index) == (15, 0)
    entries = log.read(number, group.state_index + 1, bytes_max=1 << 20)
    assert [entry.index for entry in entries] == list(range(1, 21))


def test_trim_frees_space_without_waiting_for_a_checkpoint(disk: SimDisk) -> None:
    """On a full disk there is no next checkpoint."""
    log = open_log(disk, CONFIG)
    number = log.create_group(b"")
    log.provide_state(number, lambda: (log.group(number).durable_index, b"state"))
    append(log, number, 20)
    log.flush()
    log.trim(number, 15)
    log.flush()
    assert log.group(number).runs[0].first_index == 15
    disk.reboot(random.Random(1), survive=0)
    group = open_log(disk, CONFIG).group(number)
    assert (group.first_index, group.state_index, group.state) == (15, 20, b"state")


def test_read_stops_at_its_limits_and_returns_at_least_one_entry(log: Log) -> None:
    number = log.create_group(b"")
    append(log, number, 10, size=96)  # 100 or 101 bytes each
    assert len(log.read(number, 1, bytes_max=1)) == 1
    assert len(log.read(number, 1, bytes_max=350)) == 3
    assert len(log.read(number, 1, bytes_max=1 << 20, count_max=4)) == 4
    assert len(log.read(number, 8, bytes_max=1 << 20)) == 3


def test_late_read_plan_does_not_return_other_entries(disk: SimDisk) -> None:
    """Guarantee 4: a freed segment may be overwritten; a late reader gets an error, not other entries."""
    log = open_log(disk, CONFIG)
    number = log.create_group(b"")
    log.provide_state(number, lambda: (log.group(number).durable_index, b""))
    append(log, number, 100)
    log.flush()
    plan = log.plan_read(number, 1, bytes_max=500)
    for _ in range(10):
        append(log, number, 100)
        log.trim(number, log.group(number).last_index - 20)
        idle(log)
    with pytest.raises(EntryDamaged) as late:
        plan.run()
    log.quarantine_damaged(late.value)
    assert not log.group(number).quarantined, "the entry is not damaged, it was trimmed"


def test_dead_segments_are_reused(disk: SimDisk) -> None:
    """While trims keep up with appends, only the cleaner preallocates segments."""
    log = open_log(disk, CONFIG)
    number = log.create_group(b"")
    log.provide_state(number, lambda: (log.group(number).durable_index, b""))
    jobs: list[Job] = []
    for turn in range(60):
        append(log, number, 100)
        log.flush()
        log.trim(number, log.group(number).last_index)
        made = idle(log)
        jobs += made if turn > 5 else []
    kinds = Counter(type(job) for job in jobs)
    assert kinds[Preallocate] <= kinds[Clean] + 1
    assert kinds[Preallocate] < kinds[WriteIndex] / 3
    disk.reboot(random.Random(3), survive=0)
    log = open_log(disk, CONFIG)
    assert log.damage == ()
    assert [entry[0] for entry in read_all(log, number)] == [6000]


def test_checkpoint_may_be_larger_than_a_segment(disk: SimDisk) -> None:
    log = open_log(disk, CONFIG)
    number = log.create_group(b"")
    log.provide_state(number, lambda: (log.group(number).durable_index, bytes(20_000)))
    for _ in range(30):
        append(log, number, 20)
        log.flush()
    disk.reboot(random.Random(1), survive=0)
    log = open_log(disk, CONFIG)
    assert log.group(number).last_index == 600
    assert log.group(number).state == bytes(20_000)


def test_only_the_newest_segments_are_read_when_a_log_is_opened(disk: SimDisk) -> None:
    """A large log opens as fast as a small one: older segments are known by their index."""
    log = open_log(disk, CONFIG)
    number = log.create_group(b"")
    for _ in range(100):
        append(log, number, 20)
        log.flush()
        while (job := log.next_job()) is not None:
            job.run()
            log.end_job(job)
    log.close()
    total = sum(disk.open(name).size() for name in disk.names() if name.endswith(".log"))
    read = 0
    for name in disk.names():
        file = disk.open(name)

        def counted(position: int, size: int, original: Callable[[int, int], bytes] = file.read) -> bytes:
            nonlocal read
            data = original(position, size)
            read += len(data)
            return data

        file.read = counted  # type: ignore[method-assign]
    log = open_log(disk, CONFIG)
    assert log.group(number).last_index == 2000
    assert read < total / 10
