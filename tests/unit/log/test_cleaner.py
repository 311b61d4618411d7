"""The cleaner: frees the space of dead frames, and copies live ones unchanged."""

import random
from itertools import pairwise

import pytest

from flotilla_broker.log import Log, LogConfig, open_log
from flotilla_broker.log.cleaner import Clean, choose
from flotilla_broker.log.jobs import Job, Remove, WriteIndex
from flotilla_broker.log.reading import EntryLocation
from flotilla_broker.log.segments import Segment
from support.logmodel import read_all
from support.logtools import idle, run_job
from support.simdisk import Crash, SimDisk

CONFIG = LogConfig(segment_bytes=8192, entry_bytes_max=2000)


@pytest.mark.parametrize(
    ("segments", "chosen"),
    [
        ([], []),
        ([(8000, 8000), (8000, 5000)], []),  # more than half of each is live
        ([(8000, 0), (8000, 3000), (8000, 0)], [1, 3]),  # dead ones cost nothing, so they are first
        ([(8000, 3000), (8000, 1000), (8000, 2000)], [2, 3, 1]),  # the most dead bytes first
        ([(8000, 3500), (8000, 3600), (8000, 3700)], [1, 2]),  # as many as fit into one new segment
        ([(500, 500)] * 7, []),  # a few small ones may stay
        ([(500, 500)] * 8, [1, 2, 3, 4, 5, 6, 7, 8]),  # many are merged
    ],
)
def test_segments_with_most_dead_bytes_are_cleaned_first(segments: list[tuple[int, int]], chosen: list[int]) -> None:
    made = [Segment(at, cold=False, end=end, live_bytes=live) for at, (end, live) in enumerate(segments, start=1)]
    assert [segment.id for segment in choose(made, 8192, 0.5, grows=True)] == chosen


@pytest.mark.parametrize(
    ("segments", "chosen"),
    [
        ([(8000, 3000)], []),  # takes a spare of 8192 bytes, frees less
        ([(8000, 3000), (8000, 3000)], [1, 2]),
        ([(8000, 0)], [1]),  # takes nothing
        ([(8000, 800)] * 3 + [(500, 500)] * 8, [1, 2, 3]),  # small ones do not block
    ],
)
def test_cleaning_without_free_space_must_free_more_than_it_takes(
    segments: list[tuple[int, int]], chosen: list[int]
) -> None:
    made = [Segment(at, cold=False, end=end, live_bytes=live) for at, (end, live) in enumerate(segments, start=1)]
    assert [segment.id for segment in choose(made, 8192, 0.5, grows=False)] == chosen


def test_cleaner_leaves_the_writer_a_spare_or_free_space() -> None:
    disk = SimDisk()
    log = make_log(disk)
    idle(log)
    numbers = interleaved(log, rounds=70)
    idle(log)
    log.drop_group(numbers[1])
    log.drop_group(numbers[2])
    log.flush()
    disk.capacity_bytes = 0  # no more spares can be created
    del log._maintenance.spares[1:]
    log._writer.active.file_bytes = log._writer.active.end + CONFIG.segment_bytes // 2
    assert log.next_job() is None
    log._writer.active.file_bytes += 1
    log.check_for_work()
    assert isinstance(log.next_job(), Clean)


def make_log(disk: SimDisk) -> Log:
    log = open_log(disk, CONFIG)
    for number in log.groups:
        provide_state(log, number)
    return log


def provide_state(log: Log, number: int) -> None:
    log.provide_state(number, lambda: (log.group(number).durable_index, b""))


def append(log: Log, number: int, count: int = 1, term: int = 1) -> None:
    for _ in range(count):
        index = log.group(number).last_index + 1
        log.append(number, index, term, f"{number}.{index}.{term}".encode() * 12, index, index)


def interleaved(log: Log, groups: int = 3, rounds: int = 80) -> list[int]:
    """Fill segments with entries of several groups in turn."""
    numbers = [log.create_group(b"") for _ in range(groups)]
    for number in numbers:
        provide_state(log, number)
    for _ in range(rounds):
        for number in numbers:
            append(log, number)
        log.flush()
    return numbers


def crash(disk: SimDisk) -> None:
    disk.reboot(random.Random(0), survive=0)


def test_space_of_a_dropped_group_is_freed() -> None:
    disk = SimDisk()
    log = make_log(disk)
    numbers = interleaved(log, rounds=300)
    idle(log)
    before, live_before = log.used_bytes, log.disk_usage().live_bytes
    for number in numbers[1:]:
        log.drop_group(number)
    live = log.disk_usage().live_bytes
    assert abs(live - live_before / len(numbers)) < live_before / 20, "before the cleaner has freed anything"
    kept = read_all(log, numbers[0])
    jobs = idle(log)
    assert any(isinstance(job, Clean) for job in jobs)
    assert log.used_bytes < before / 2
    assert log.disk_usage().live_bytes == live, "copies have the same size"
    assert read_all(log, numbers[0]) == kept
    log.close()
    assert read_all(make_log(disk), numbers[0]) == kept


def all_locations(log: Log, number: int) -> list[EntryLocation]:
    """Return read plans for all entries of a group; one plan covers some segments."""
    locations: list[EntryLocation] = []
    while len(locations) < log.group(number).last_index:
        locations += log.plan_read(number, len(locations) + 1, bytes_max=1 << 20).locations
    return locations


def test_copies_are_sorted_by_group_and_keep_their_sequence_numbers() -> None:
    disk = SimDisk()
    log = make_log(disk)
    numbers = interleaved(log, groups=6)
    idle(log)
    lsns = {number: [location.lsn for location in all_locations(log, number)] for number in numbers[:2]}
    for number in numbers[2:]:
        log.drop_group(number)
    idle(log)
    for number in numbers[:2]:
        locations = all_locations(log, number)
        assert [location.lsn for location in locations] == lsns[number]
        cold = [location for location in locations if log._maintenance.segment(location.segment).cold]
        assert len(cold) > len(locations) / 2
        assert all(a.end == b.position for a, b in pairwise(cold) if a.segment == b.segment)


def test_copy_of_a_replaced_entry_stays_dead_after_a_restart() -> None:
    """Frames are ordered by sequence number, not by segment: copies are in newer segments than their replacement."""
    disk = SimDisk()
    log = make_log(disk)
    numbers = interleaved(log)
    first = numbers[0]
    log._groups[first].take_state = None  # so that its entries may still be truncated
    idle(log)
    append(log, first, 5, term=1)
    idle(log)
    log.truncate(first, 83)
    append(log, first, 6, term=2)
    log.flush()
    interleaved(log, groups=1, rounds=60)
    for number in numbers[1:]:
        log.drop_group(number)
    expected = read_all(log, first)
    idle(log)
    assert read_all(log, first) == expected
    disk.sync_folder()
    for indexed in (True, False):
        crash(disk)
        if not indexed:
            for name in [name for name in disk.names() if name.endswith(".index")]:
                disk.unlink(name)
        log = make_log(disk)
        assert log.damage == ()
        assert read_all(log, first) == expected


def test_cleaned_segments_are_removed_only_after_the_retiring_frame_is_durable() -> None:
    """Guarantee 1: a segment is removed only when the copies and the frame that names them are synced."""
    disk = SimDisk()
    log = make_log(disk)
    numbers = interleaved(log)
    idle(log)
    log.drop_group(numbers[1])
    log.drop_group(numbers[2])
    expected = read_all(log, numbers[0])
    segments = {name for name in disk.names() if name.endswith(".log")}
    for _ in range(10):  # jobs, but no flush
        run_job(log)
    assert segments <= set(disk.names())
    disk.sync_folder()  # a file that was removed would stay removed
    crash(disk)
    log = make_log(disk)
    assert log.damage == ()
    assert set(log.groups) == set(numbers), "the drops were never flushed"
    assert read_all(log, numbers[0]) == expected


def test_crash_at_any_step_of_cleaning_loses_nothing() -> None:
    for step in range(200):
        disk = SimDisk()
        log = make_log(disk)
        numbers = interleaved(log, rounds=30)
        idle(log)
        log.drop_group(numbers[1])
        log.drop_group(numbers[2])
        log.flush()
        expected = read_all(log, numbers[0])
        disk.crash_in = step
        try:
            idle(log)
        except Crash:
            disk.reboot(random.Random(step))
            log = make_log(disk)
            assert log.damage == ()
            assert read_all(log, numbers[0]) == expected
            continue
        assert step > 5, "nothing was cleaned"
        return
    pytest.fail("cleaning takes more steps than were tried")


@pytest.mark.parametrize("kind", [WriteIndex, Clean])
def test_entries_truncated_while_they_are_copied_stay_dead(kind: type[Job]) -> None:
    disk = SimDisk()
    log = make_log(disk)
    numbers = interleaved(log, groups=6)
    if kind is Clean:
        idle(log)
        for number in numbers[2:]:
            log.drop_group(number)
        log.flush()
    while True:
        job = log.next_job()
        assert job is not None
        job.run()
        if isinstance(job, kind):
            break
        log.end_job(job)
        log.flush()
    log.trim(numbers[0], 31)
    log.drop_group(numbers[1])
    log.end_job(job)
    assert [entry[0] for entry in read_all(log, numbers[0])] == list(range(31, 81))
    idle(log)
    assert [entry[0] for entry in read_all(log, numbers[0])] == list(range(31, 81))
    log.close()
    assert [entry[0] for entry in read_all(make_log(disk), numbers[0])] == list(range(31, 81))


def test_many_restarts_do_not_leave_many_files() -> None:
    disk = SimDisk()
    log = make_log(disk)
    number = log.create_group(b"")
    for _ in range(60):
        append(log, number)
        idle(log)
        log.close()
        log = make_log(disk)
    idle(log)
    assert len(read_all(log, number)) == 60
    assert len(disk.names()) < 40


def test_files_are_removed_in_the_background() -> None:
    disk = SimDisk()
    log = make_log(disk)
    numbers = interleaved(log)
    for number in numbers:
        log.drop_group(number)
    before = len(disk.names())
    log.flush()
    assert len(disk.names()) >= before
    assert any(isinstance(job, Remove) for job in idle(log))
