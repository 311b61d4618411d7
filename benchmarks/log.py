"""The log compared with the raw disk: MB/s and CPU per MB, in one run on one machine.

`raw append` is write and fdatasync at the end of a growing file; `raw in place` the same in space that was written
before. `log` is the whole log under its asyncio driver: frames, checksums, index, background jobs. A group commit is
the data that one fdatasync covers: one or more frames of one or more partitions. With one frame, the log waits for
each, as `raw` does. With several, it queues the next group commit during a sync, as a broker under load does. CPU is
the user and system time of the whole process. Measurements of a row alternate, and each figure is the median of several
rounds.
"""

import argparse
import asyncio
import os
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from flotilla_broker.log import Durable, LogConfig, LogDriver, open_folder

MIB = 1 << 20


@dataclass(frozen=True)
class Case:
    """One row of the table."""

    frame_bytes: int
    frames_per_commit: int
    partitions: int


@dataclass(frozen=True)
class Figure:
    """One measurement."""

    mb_per_s: float
    cpu_ms_per_mb: float
    turns_per_s: float


CASES = (
    Case(4 << 10, 1, 1),
    Case(4 << 10, 64, 1),
    Case(4 << 10, 64, 64),
    Case(64 << 10, 1, 1),
    Case(64 << 10, 64, 1),
    Case(64 << 10, 64, 64),
    Case(MIB, 1, 1),
    Case(MIB, 8, 1),
    Case(MIB, 64, 1),
    Case(MIB, 64, 64),
)


def cpu_seconds() -> float:
    """Return the CPU time of this process, with all threads."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measure(commit_bytes: int, commits: Callable[[float], int], seconds: float) -> Figure:
    """Run group commits for some seconds."""
    cpu, started = cpu_seconds(), time.perf_counter()
    count = commits(started + seconds)
    elapsed, used = time.perf_counter() - started, cpu_seconds() - cpu
    total_mb = count * commit_bytes / 1e6
    return Figure(total_mb / elapsed, used * 1e3 / total_mb, count / elapsed)


def raw(folder: Path, case: Case, seconds: float, *, in_place: bool) -> Figure:
    """Write and sync only."""
    payload = os.urandom(case.frame_bytes)
    commit = [payload] * case.frames_per_commit
    commit_bytes = case.frame_bytes * case.frames_per_commit
    path = folder / "raw"
    prepared = 512 * MIB if in_place else 0
    fd = os.open(path, os.O_CREAT | os.O_RDWR | os.O_TRUNC)
    for position in range(0, prepared, MIB):
        os.pwrite(fd, bytes(MIB), position)
    os.fsync(fd)

    def commits(until: float) -> int:
        count = position = 0
        while time.perf_counter() < until:
            if in_place and position + commit_bytes > prepared:
                position = 0
            os.pwritev(fd, commit, position)
            os.fdatasync(fd)
            position += commit_bytes
            count += 1
        return count

    figure = measure(commit_bytes, commits, seconds)
    os.close(fd)
    path.unlink()
    return figure


class Load:
    """Appends a group commit when the previous one is durable, and trims old entries to limit disk usage."""

    def __init__(self, case: Case) -> None:
        self._driver: LogDriver
        self._numbers: list[int] = []
        self._case = case
        self._payload = os.urandom(case.frame_bytes)
        self._keep = max(1, 256 * MIB // (case.frame_bytes * case.partitions))
        self._durable_lsn = 0
        self._waiter: asyncio.Future[None] | None = None

    def start(self, driver: LogDriver) -> None:
        """Create the partitions."""
        self._driver = driver
        self._numbers = [driver.log.create_group(b"") for _ in range(self._case.partitions)]
        for number in self._numbers:
            driver.log.provide_state(number, lambda n=number: (driver.log.group(n).durable_index, b""))  # type: ignore[misc]

    def on_durable(self, durable: Durable) -> None:
        """Allow the next group commit."""
        self._durable_lsn = durable.lsn
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def commits(self, until: float) -> int:
        """Run group commits until the deadline."""
        ahead = 0 if self._case.frames_per_commit == 1 else 1
        lsns: deque[int] = deque()
        count = 0
        while time.perf_counter() < until:
            lsns.append(self._append_commit())
            self._driver.wake()
            if len(lsns) > ahead:
                await self._durable(lsns.popleft())
            count += 1
        if lsns:
            await self._durable(lsns[-1])
        return count

    async def _durable(self, lsn: int) -> None:
        while self._durable_lsn < lsn:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    def _append_commit(self) -> int:
        log, lsn = self._driver.log, 0
        for at in range(self._case.frames_per_commit):
            number = self._numbers[at % len(self._numbers)]
            group = log.group(number)
            index = group.last_index + 1
            if index - group.first_index > 2 * self._keep:
                log.trim(number, index - self._keep)
            lsn = log.append(number, index, 1, self._payload, index, index)
        return lsn


def through_log(folder: Path, case: Case, seconds: float) -> Figure:
    """Write through the log."""

    async def run() -> Figure:
        def fail(error: BaseException) -> None:
            sys.exit(f"the log failed: {error}")

        load = Load(case)
        driver = LogDriver(open_folder(folder / "log", LogConfig()), load.on_durable, fail)
        load.start(driver)
        await load.commits(time.perf_counter() + seconds / 3)  # spares are created, caches are warm
        cpu, started = cpu_seconds(), time.perf_counter()
        count = await load.commits(started + seconds)
        elapsed, used = time.perf_counter() - started, cpu_seconds() - cpu
        await driver.close()
        total_mb = count * case.frame_bytes * case.frames_per_commit / 1e6
        return Figure(total_mb / elapsed, used * 1e3 / total_mb, count / elapsed)

    figure = asyncio.run(run())
    shutil.rmtree(folder / "log")
    return figure


def median(figures: list[Figure]) -> Figure:
    """Return the figure with the median throughput."""
    middle = statistics.median_low([figure.mb_per_s for figure in figures])
    return next(figure for figure in figures if figure.mb_per_s == middle)


def main() -> None:
    """Measure every case and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=None, help="where to write (default: a temporary folder)")
    parser.add_argument("--seconds", type=float, default=3.0, help="per measurement (default: 3)")
    parser.add_argument("--rounds", type=int, default=3, help="measurements per figure (default: 3)")
    arguments = parser.parse_args()
    print("frame  frames per  parti-        raw append          raw in place               log            log, in % of")
    print(
        "bytes    commit    tions      MB/s  ms CPU/MB      MB/s  ms CPU/MB      MB/s  ms CPU/MB      append  in place"
    )
    with tempfile.TemporaryDirectory(dir=arguments.folder) as scratch:
        folder = Path(scratch)
        for case in CASES:
            rows: list[list[Figure]] = [[], [], []]
            for _ in range(arguments.rounds):
                rows[0].append(raw(folder, case, arguments.seconds, in_place=False))
                rows[1].append(raw(folder, case, arguments.seconds, in_place=True))
                rows[2].append(through_log(folder, case, arguments.seconds))
            append, in_place, log = map(median, rows)
            cells = "".join(f"{f.mb_per_s:12.0f}  {f.cpu_ms_per_mb:9.2f}" for f in (append, in_place, log))
            shape = f"{case.frame_bytes >> 10:4}K  {case.frames_per_commit:7}  {case.partitions:8}"
            ratios = f"{log.mb_per_s / append.mb_per_s:12.0%}  {log.mb_per_s / in_place.mb_per_s:8.0%}"
            print(shape + cells + ratios, flush=True)


if __name__ == "__main__":
    main()
