"""Gives the log threads: one for flushes, one for jobs, under an asyncio loop.

The log itself stays on the loop. Whatever queues frames calls `wake`; one flush is under way at a time, and the
next one covers everything that was queued meanwhile. When nothing was queued for a while, a mark proves that the
last flush was whole.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from flotilla_broker.log.errors import EntryDamaged, LogFailed
from flotilla_broker.log.flush import Durable, Flush
from flotilla_broker.log.jobs import Job
from flotilla_broker.log.reading import Entry
from flotilla_broker.log.store import Log

_IDLE_S = 1.0  # also how soon space that others freed is noticed


class LogDriver:
    """Runs a log until it is closed.

    `on_durable` is called on the loop after each flush. `on_failure` is called once, when a write, a sync or a
    job failed: the process should end then, because nothing more will become durable.
    """

    def __init__(
        self, log: Log, on_durable: Callable[[Durable], None], on_failure: Callable[[BaseException], None]
    ) -> None:
        self.log = log
        self._on_durable = on_durable
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._flusher = ThreadPoolExecutor(1, "log-flush")
        self._worker = ThreadPoolExecutor(1, "log-job")
        self._flush: asyncio.Future[None] | None = None
        self._job: asyncio.Future[None] | None = None
        self._woken = False
        self._closing = False
        self._marked_lsn = log.last_lsn
        self._idle = self._loop.call_later(_IDLE_S, self._on_idle)
        self.wake()

    def wake(self) -> None:
        """Flush what is queued, at the end of this turn of the loop."""
        if not self._woken:
            self._woken = True
            self._loop.call_soon(self._turn)

    async def read(self, number: int, index: int, *, bytes_max: int, count_max: int = 1 << 20) -> list[Entry]:
        """Read entries without holding up the loop."""
        plan = self.log.plan_read(number, index, bytes_max=bytes_max, count_max=count_max)
        try:
            return await asyncio.to_thread(plan.run)
        except EntryDamaged as error:
            self.log.quarantine_damaged(error)
            self.wake()
            raise

    async def close(self) -> None:
        """Finish what is under way, sync everything, and close the log."""
        self._closing = True
        self._idle.cancel()
        while waiting := [future for future in (self._flush, self._job) if future is not None]:
            await asyncio.wait(waiting)
        await self._loop.run_in_executor(self._flusher, self.log.close)
        self._flusher.shutdown()
        self._worker.shutdown()

    def _turn(self) -> None:
        self._woken = False
        if self._closing:
            return
        try:
            self._start_job()  # may queue a frame
            self._start_flush()
        except LogFailed as error:
            self._fail(error)

    def _start_flush(self) -> None:
        flush = None if self._flush is not None else self.log.begin_flush()
        if flush is not None:
            self._flush = self._loop.run_in_executor(self._flusher, flush.run)
            self._flush.add_done_callback(lambda future: self._end_flush(flush, future))

    def _end_flush(self, flush: Flush, future: "asyncio.Future[None]") -> None:
        self._flush = None
        error = future.exception()
        if error is not None:
            self._fail(error)
            return
        durable = self.log.end_flush(flush)
        self.wake()
        self._on_durable(durable)

    def _start_job(self) -> None:
        job = None if self._job is not None else self.log.next_job()
        if job is not None:
            self._job = self._loop.run_in_executor(self._worker, job.run)
            self._job.add_done_callback(lambda future: self._end_job(job, future))

    def _end_job(self, job: Job, future: "asyncio.Future[None]") -> None:
        self._job = None
        error = future.exception()
        if error is not None:
            self._fail(error)
            return
        self.log.end_job(job)
        self.wake()

    def _on_idle(self) -> None:
        self._idle = self._loop.call_later(_IDLE_S, self._on_idle)
        if self.log.last_lsn != self._marked_lsn and self.log.durable_lsn == self.log.last_lsn:
            self._marked_lsn = self.log.mark()
        self.wake()

    def _fail(self, error: BaseException) -> None:
        if self._closing:
            return
        self._closing = True
        self._idle.cancel()
        self.log.fail(error)
        self._on_failure(error)
