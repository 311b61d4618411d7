"""Fill a log on a small file system, in namespaces of its own. Run by tests/system.

Usage: fulldisk.py FOLDER       (FOLDER is on a file system of a few MiB)
"""

import errno
import os
import sys
from pathlib import Path

import pytest

from flotilla_broker.log import DiskFull, Log, LogConfig, LogFailed, open_folder
from support.logmodel import read_all
from support.logtools import idle

CONFIG = LogConfig(segment_bytes=1 << 20, entry_bytes_max=1 << 16)
ENTRY_BYTES = 50_000


def open_log(folder: Path) -> tuple[Log, int]:
    log = open_folder(folder, CONFIG)
    number = next(iter(log.groups), None) or log.create_group(b"")
    log.provide_state(number, lambda: (log.group(number).durable_index, b""))
    idle(log)
    return log, number


def append(log: Log, number: int) -> None:
    index = log.group(number).last_index + 1
    log.append(number, index, 1, index.to_bytes(8, "big") * (ENTRY_BYTES // 8), index, index)


def fill(log: Log, number: int) -> int:
    """Append as long as the log admits entries; return their number."""
    for count in range(10_000):
        try:
            log.admit(ENTRY_BYTES)
        except DiskFull:
            return count
        append(log, number)
        idle(log)
    raise AssertionError("the disk never got full")


def check_entries(log: Log, number: int) -> None:
    for index, _, _, _, payload in read_all(log, number, bytes_max=1 << 20):
        assert payload == index.to_bytes(8, "big") * (ENTRY_BYTES // 8)


def rejects_appends_before_the_disk_is_full_and_still_accepts_terms_and_trims(folder: Path) -> None:
    log, number = open_log(folder)
    assert fill(log, number) > 50
    log.set_term(number, 7, b"voted on a full disk")
    idle(log)
    assert log.durable_lsn == log.last_lsn
    log.close()
    log, number = open_log(folder)
    assert log.damage == ()
    assert log.group(number).vote == b"voted on a full disk"
    check_entries(log, number)
    log.trim(number, log.group(number).last_index - 10)
    idle(log)
    assert fill(log, number) > 50
    check_entries(log, number)
    log.close()


def fails_if_another_program_fills_the_reserve(folder: Path) -> None:
    """Append without `admit`: the write fails, nothing is acknowledged, and a restart is clean."""
    log, number = open_log(folder)
    confirmed = 0
    with pytest.raises(LogFailed) as failure:  # noqa: PT012 - one of many appends fails
        for _ in range(10_000):
            append(log, number)
            log.flush()
            confirmed = log.group(number).durable_index
    assert isinstance(failure.value.__cause__, OSError)
    assert failure.value.__cause__.errno == errno.ENOSPC
    assert log.group(number).durable_index == confirmed
    log._fs.close()
    ballast = folder.parent / "ballast"
    ballast.unlink(missing_ok=True)
    log, number = open_log(folder)
    assert log.damage == ()
    assert log.group(number).last_index >= confirmed
    check_entries(log, number)
    log.close()


if __name__ == "__main__":
    place = Path(sys.argv[1])
    rejects_appends_before_the_disk_is_full_and_still_accepts_terms_and_trims(place / "first")
    for left in (place / "first").iterdir():
        left.unlink()
    ballast = place / "ballast"
    ballast.write_bytes(os.urandom(1 << 20))
    fails_if_another_program_fills_the_reserve(place / "second")
