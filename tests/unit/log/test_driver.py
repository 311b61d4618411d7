"""The log driver under asyncio, with real threads and a real folder."""

import asyncio
import errno
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from flotilla_broker.log import Durable, EntryDamaged, LogConfig, LogDriver, LogFailed, open_folder, open_log
from flotilla_broker.log.frames import HEADER_BYTES
from support.logmodel import read_all
from support.simdisk import SimDisk

CONFIG = LogConfig(segment_bytes=1 << 16, entry_bytes_max=1 << 12)


def on_loop(body: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a coroutine of a test with a timeout."""

    async def bounded() -> None:
        async with asyncio.timeout(60):
            await body()

    asyncio.run(bounded())


class Durables:
    """Collects the durable indexes that the driver reports, and lets a test wait for them."""

    def __init__(self) -> None:
        self.indexes: dict[int, int] = {}
        self.failures: list[BaseException] = []
        self.flushes = 0
        self._changed = asyncio.Event()

    def on_durable(self, durable: Durable) -> None:
        self.flushes += 1
        self.indexes.update(durable.indexes)
        self._changed.set()

    def on_failure(self, error: BaseException) -> None:
        self.failures.append(error)
        self._changed.set()

    async def until(self, reached: Callable[[], bool]) -> None:
        while not reached():
            self._changed.clear()
            await self._changed.wait()


def test_many_appends_share_few_flushes_and_all_become_durable(tmp_path: Path) -> None:
    async def body() -> None:
        seen = Durables()
        driver = LogDriver(open_folder(tmp_path, CONFIG), seen.on_durable, seen.on_failure)
        log = driver.log
        numbers = [log.create_group(b"") for _ in range(20)]
        for index in range(1, 201):
            for number in numbers:
                log.append(number, index, 1, bytes(200), index, index)
            driver.wake()
            if index % 10 == 0:
                await asyncio.sleep(0)
        await seen.until(lambda: seen.indexes == dict.fromkeys(numbers, 200))
        assert seen.flushes < 100
        assert [e.index for e in await driver.read(numbers[0], 150, bytes_max=600)] == [150, 151, 152]
        await driver.close()
        assert seen.failures == []
        log = open_folder(tmp_path, CONFIG)
        assert log.torn_frames == 0
        assert all(len(read_all(log, number)) == 200 for number in numbers)
        log.close()

    on_loop(body)


def test_background_jobs_create_spares_and_indexes_and_free_space(tmp_path: Path) -> None:
    async def body() -> None:
        seen = Durables()
        driver = LogDriver(open_folder(tmp_path, CONFIG), seen.on_durable, seen.on_failure)
        log = driver.log
        number = log.create_group(b"")
        log.provide_state(number, lambda: (log.group(number).durable_index, b""))
        for index in range(1, 1001):
            log.append(number, index, 1, bytes(1000), index, index)
            driver.wake()
            await seen.until(lambda index=index: seen.indexes.get(number, 0) >= index - 50)  # type: ignore[misc]
        log.trim(number, 990)
        driver.wake()
        await seen.until(lambda: log.used_bytes <= 8 * CONFIG.segment_bytes)
        assert len(log._maintenance.spares) >= CONFIG.reserve_segments
        await driver.close()
        assert seen.failures == []

    on_loop(body)


def test_idle_log_marks_its_last_flush_as_complete() -> None:
    """Once the log has been idle, damage to the newest entries can be distinguished from a torn write."""

    async def body() -> None:
        disk = SimDisk()
        seen = Durables()
        driver = LogDriver(open_log(disk, CONFIG), seen.on_durable, seen.on_failure)
        number = driver.log.create_group(b"")
        lsn = driver.log.append(number, 1, 1, b"payload", 1, 1)
        driver.wake()
        await seen.until(lambda: driver.log.durable_lsn > lsn)
        assert driver.log.durable_lsn == lsn + 1
        place = driver.log.plan_read(number, 1, bytes_max=1).locations[0]
        file = disk.open(driver.log._maintenance.segment(place.segment).name)
        file.data[place.position + HEADER_BYTES] ^= 1
        with pytest.raises(EntryDamaged):
            await driver.read(number, 1, bytes_max=1)
        assert driver.log.group(number).quarantined
        await driver.close()
        assert open_log(disk, CONFIG).group(number).quarantined

    on_loop(body)


def test_flush_that_fails_while_closing_is_not_retried() -> None:
    """Guarantee 1: after a failed sync nothing is synced on that file again, not even for a clean shutdown."""

    async def body() -> None:
        disk = SimDisk()
        log = open_log(disk, CONFIG)
        syncs, started, proceed = [], threading.Event(), threading.Event()

        def fail(kind: str) -> int | None:
            if kind != "sync":
                return None
            syncs.append(kind)
            started.set()
            proceed.wait()
            return errno.EIO

        disk.fail = fail
        seen = Durables()
        driver = LogDriver(log, seen.on_durable, seen.on_failure)
        log.create_group(b"")
        driver.wake()
        await asyncio.to_thread(started.wait)
        closing = asyncio.create_task(driver.close())
        await asyncio.sleep(0)
        proceed.set()
        await closing
        assert len(seen.failures) == len(syncs) == 1

    on_loop(body)


@pytest.mark.parametrize("kind", ["sync", "preallocate"])
def test_failure_is_reported_once_and_closes_the_log(kind: str) -> None:
    async def body() -> None:
        disk = SimDisk()
        log = open_log(disk, CONFIG)
        disk.fail = lambda asked: errno.EIO if asked == kind else None
        seen = Durables()
        driver = LogDriver(log, seen.on_durable, seen.on_failure)
        number = log.create_group(b"")
        driver.wake()
        await seen.until(lambda: bool(seen.failures))
        with pytest.raises(LogFailed):
            log.append(number, 1, 1, b"", 1, 1)
        driver.wake()
        await asyncio.sleep(0)
        assert len(seen.failures) == 1
        assert isinstance(seen.failures[0], OSError)
        await driver.close()

    on_loop(body)
