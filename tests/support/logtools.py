"""Small helpers for tests of the log."""

import random

from flotilla_broker.log import Log, LogConfig, frames, open_log
from flotilla_broker.log.frames import Kind
from flotilla_broker.log.jobs import Job
from support.simdisk import SimDisk, SimFile

CONFIG = LogConfig(segment_bytes=8192, entry_bytes_max=2000)
SALT = 5


def run_job(log: Log) -> Job | None:
    """Run one background job, if there is one."""
    job = log.next_job()
    if job is not None:
        job.run()
        log.end_job(job)
    return job


def idle(log: Log) -> list[Job]:
    """Flush and run jobs like a broker without load; return the jobs."""
    jobs = []
    while True:
        job, flushed = run_job(log), log.flush()  # a job may queue a frame
        if job is not None:
            jobs.append(job)
        elif flushed is None:
            return jobs


def make_log(disk: SimDisk, config: LogConfig = CONFIG) -> Log:
    """Open a log with small segments and a known salt."""
    return open_log(disk, config, random_u32=lambda: SALT)


def append(log: Log, number: int, count: int = 1, term: int = 1, size: int = 500) -> None:
    """Append entries that contain their index and term."""
    for _ in range(count):
        index = log.group(number).last_index + 1
        log.append(number, index, term, f"{index}.{term} ".encode() + bytes(size), index, index * 10)


def crash(disk: SimDisk) -> None:
    """Lose everything that was not synced."""
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
    """Change some bytes on the disk."""
    for data in (file.stable, file.data):
        data[position : position + size] = bytes(byte ^ 0x55 for byte in data[position : position + size])
