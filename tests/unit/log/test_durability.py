"""The three durability modes, and what each survives."""

import random
from pathlib import Path

import pytest

from flotilla_broker.log import (
    Durability,
    GroupQuarantined,
    Log,
    LogConfig,
    LogFailed,
    LogInUse,
    open_folder,
    open_log,
)
from support.logmodel import read_all
from support.logtools import idle
from support.simdisk import SimDisk

OS = LogConfig(segment_bytes=8192, entry_bytes_max=2000, durability=Durability.OS)
MEMORY = LogConfig(segment_bytes=8192, entry_bytes_max=2000, durability=Durability.MEMORY)


def fill(log: Log, count: int = 100) -> int:
    number = log.create_group(b"")
    log.provide_state(number, lambda: (log.group(number).durable_index, b""))
    for index in range(1, count + 1):
        log.append(number, index, 1, f"{index}".encode() * 30, index, index)
        log.flush()
    return number


def test_without_fsync_nothing_is_synced_and_a_killed_process_loses_nothing() -> None:
    disk = SimDisk()
    number = fill(open_log(disk, OS))
    synced: list[str] = []
    disk.fail = synced.append
    log = open_log(disk, OS)  # the same boot: only the process died
    assert log.damage == ()
    expected = read_all(log, number)
    assert len(expected) == 100
    del synced[:]
    log.append(number, 101, 1, b"", 101, 101)
    log.flush()
    assert "write" in synced
    assert "sync" not in synced


def test_without_fsync_a_reboot_quarantines_all_groups() -> None:
    """A store that may have lost its newest state must not vote."""
    disk = SimDisk()
    number = fill(open_log(disk, OS))
    disk.reboot(random.Random(0), survive=1)
    log = open_log(disk, OS)
    assert "machine restarted without a clean shutdown under durability 'os'" in log.damage[0]
    with pytest.raises(GroupQuarantined):
        log.read(number, 1, bytes_max=1)


def test_without_fsync_a_clean_shutdown_survives_a_reboot() -> None:
    disk = SimDisk()
    log = open_log(disk, OS)
    number = fill(log)
    expected = read_all(log, number)
    log.close()
    disk.reboot(random.Random(0), survive=0)
    log = open_log(disk, OS)
    assert log.damage == ()
    assert read_all(log, number) == expected


def test_in_memory_log_works_and_keeps_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    log = open_folder(folder, MEMORY)
    number = fill(log, 500)
    log.trim(number, 400)
    idle(log)
    assert len(read_all(log, number)) == 101
    log.close()
    assert not folder.exists()
    assert open_folder(folder, MEMORY).fresh


def test_folder_is_locked_by_one_process(tmp_path: Path) -> None:
    log = open_folder(tmp_path)
    with pytest.raises(LogInUse, match="locked by another process: stop that process"):
        open_folder(tmp_path)
    log.close()
    open_folder(tmp_path).close()


def test_closed_log_rejects_calls(tmp_path: Path) -> None:
    log = open_folder(tmp_path)
    log.close()
    with pytest.raises(LogFailed, match="the log is closed"):
        log.create_group(b"")


def test_log_in_a_real_folder_returns_what_was_written(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=1 << 16, entry_bytes_max=1 << 12)
    log = open_folder(tmp_path, config)
    number = fill(log, 1500)
    log.trim(number, 300)
    jobs = idle(log)
    expected = read_all(log, number)
    assert len(expected) == 1201
    assert {type(job).__name__ for job in jobs} >= {"Preallocate", "WriteIndex", "Remove"}
    log.close()
    log = open_folder(tmp_path, config)
    assert read_all(log, number) == expected
    log.close()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"segment_bytes": 1000}, "segment_bytes must be from .*two of the largest entries"),
        ({"segment_bytes": 1 << 40}, "segment_bytes must be from"),
        ({"segment_bytes": (64 << 20) + 1}, "segment_bytes must be a multiple of 4096"),
        ({"reserve_segments": 1}, "reserve_segments must be from 2 to 64"),
        ({"ahead_segments": -1}, "ahead_segments must be from 0 to 64"),
        ({"entry_bytes_max": 0}, "entry_bytes_max must be at least 1"),
        ({"log_bytes_max": 1 << 20}, "log_bytes_max must be at least .* .the reserve and two segments"),
        ({"clean_below": 1.0}, "clean_below must be between 0 and 1"),
        ({"open_files_max": 1}, "open_files_max must be at least 8"),
    ],
)
def test_invalid_setting_is_rejected_by_name(settings: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LogConfig(**settings)  # type: ignore[arg-type]
