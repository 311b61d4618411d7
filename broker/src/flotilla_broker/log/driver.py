"""The threads of the log: one for flushes, one for background jobs, under an event loop.

The log itself stays on the event loop. Code that queues frames calls `wake`. One flush runs at a time, and the next one
covers everything that was queued meanwhile. When the log is idle, a mark proves that the last flush was complete.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue

from flotilla_broker.log.config import READS_MAX
from flotilla_broker.log.errors import EntryDamaged
from flotilla_broker.log.flush import Durable, Flush
from flotilla_broker.log.jobs import Job
from flotilla_broker.log.reading import Entry
from flotilla_broker.log.store import Log

_IDLE_S = 1.0  # also the delay until space freed by other processes is used


class Worker:
    """A thread that runs one task at a time and reports to the event loop.

    An executor does the same with two layers of futures, which cost as much time as a sync.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str) -> None:
        self._loop = loop
        self._queue: SimpleQueue[tuple[Callable[[], None], Callable[[BaseException | None], None]] | None]
        self._queue = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        """Run `work` in the thread, then `done` on the event loop, with the error if any."""
        self._queue.put((work, done))

    def stop(self) -> None:
        """Stop the thread after the queued tasks."""
        self._queue.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (item := self._queue.get()) is not None:
            work, done = item
            error: BaseException | None = None
            try:
                work()
            except BaseException as raised:  # noqa: BLE001 - reported to the event loop
                error = raised
            self._loop.call_soon_threadsafe(done, error)


class LogDriver:
    """Runs a log until it is closed.

    `on_durable` is called on the event loop after each flush. `on_failure` is called once, when a write, a sync or a
    job failed. The process must exit then, because nothing more becomes durable.
    """

    def __init__(
        self, log: Log, on_durable: Callable[[Durable], None], on_failure: Callable[[BaseException], None]
    ) -> None:
        self.log = log
        self._on_durable = on_durable
        self._on_failure = on_failure
        self.flush_s = 0.0  # duration of the last flush
        self._loop = asyncio.get_running_loop()
        self._flusher = Worker(self._loop, "log-flush")
        self._worker = Worker(self._loop, "log-job")
        self._reads = asyncio.Semaphore(READS_MAX)
        self._idle_event = asyncio.Event()  # no flush or job is running
        self._flushing = self._working = False
        self._woken = False
        self._closing = self._failed = False
        self._marked_lsn = log.last_lsn
        self._idle = self._loop.call_later(_IDLE_S, self._on_idle)
        self.wake()

    def wake(self) -> None:
        """Flush queued frames at the end of this iteration of the event loop."""
        if not self._woken:
            self._woken = True
            self._loop.call_soon(self._turn)

    async def read(self, number: int, index: int, *, bytes_max: int, count_max: int = 1 << 20) -> list[Entry]:
        """Read entries without blocking the event loop."""
        async with self._reads:  # each read keeps files open
            while True:
                plan = self.log.plan_read(number, index, bytes_max=bytes_max, count_max=count_max)
                try:
                    return await asyncio.to_thread(plan.run)
                except EntryDamaged as error:
                    self.log.quarantine_damaged(error)
                    self.wake()
                    if self.log.group(number).quarantined:
                        raise

    async def close(self) -> None:
        """Wait for the flush and the job in progress, sync unless the log has failed, and close the log."""
        self._closing = True
        self._idle.cancel()
        while self._flushing or self._working:
            self._idle_event.clear()
            await self._idle_event.wait()
        self._flusher.stop()
        self._worker.stop()
        await asyncio.to_thread(self.log.close)

    def _turn(self) -> None:
        self._woken = False
        if not self._closing:
            with self._failing():
                self._start_flush()
                self._start_job()
                self._start_flush()  # a job may have queued a frame

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Report any error of the log as a failure: without flushes the process must exit."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - reported to on_failure
            self._fail(error)

    def _start_flush(self) -> None:
        flush = None if self._flushing else self.log.begin_flush()
        if flush is not None:
            self._flushing = True
            self._flusher.run(lambda: self._run_flush(flush), lambda error: self._end_flush(flush, error))

    def _run_flush(self, flush: Flush) -> None:
        began = time.perf_counter()
        flush.run()
        self.flush_s = time.perf_counter() - began

    def _end_flush(self, flush: Flush, error: BaseException | None) -> None:
        self._flushing = False
        self._idle_event.set()
        if error is not None:
            self._fail(error)
            return
        durable = None
        with self._failing():
            durable = self.log.end_flush(flush)
            self.wake()
        if durable is not None:
            self._on_durable(durable)

    def _start_job(self) -> None:
        job = None if self._working else self.log.next_job()
        if job is not None:
            self._working = True
            self._worker.run(job.run, lambda error: self._end_job(job, error))

    def _end_job(self, job: Job, error: BaseException | None) -> None:
        self._working = False
        self._idle_event.set()
        if error is not None:
            self._fail(error)
            return
        with self._failing():
            self.log.end_job(job)
            self.wake()

    def _on_idle(self) -> None:
        self._idle = self._loop.call_later(_IDLE_S, self._on_idle)
        with self._failing():
            if self.log.last_lsn != self._marked_lsn and self.log.durable_lsn == self.log.last_lsn:
                self._marked_lsn = self.log.mark()
            self.log.check_for_work()
            self.wake()

    def _fail(self, error: BaseException) -> None:
        self.log.fail(error)
        self._closing = True
        self._idle.cancel()
        if not self._failed:
            self._failed = True
            self._on_failure(error)
