"""Writer role of this manager: take over if there is no live writer, stand by otherwise.

Safety does not depend on it: the database checks the epoch in every transaction, and brokers in every command. This
module prevents two candidates from replacing each other repeatedly. A standby takes over when the writer's heartbeat
counter has not changed for `TAKEOVER_S`, by its own clock. Pauses of this process and of the database do not count:
each check adds at most `_STEP_S_MAX`.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from flotilla.protocol.errors import Refusal
from flotilla_manager.metadata import AsyncMetadata
from flotilla_manager.metadata.errors import Fenced, MetadataError
from flotilla_manager.model import Writer

logger = logging.getLogger(__name__)

HEARTBEAT_S = 1.0
TAKEOVER_S = 4.0  # without a heartbeat of the writer
_STEP_S_MAX = 2 * HEARTBEAT_S  # longest silence counted between two checks


@dataclass(frozen=True)
class Watched:
    """Another writer, and the time since its last heartbeat."""

    writer: Writer
    observed_at: float
    silent_s: float = 0.0

    def with_observation(self, writer: Writer, asked_at: float, now: float) -> "Watched":
        """Add an observation. Silence counts up to the start of the query, because the result may be as old as that."""
        if writer != self.writer:
            return Watched(writer, now)
        step_s = min(max(asked_at - self.observed_at, 0.0), _STEP_S_MAX)
        return Watched(writer, now, self.silent_s + step_s)


class WriterElection:
    """Writer role of this manager. `epoch` is None while it is not the writer."""

    def __init__(
        self,
        database: AsyncMetadata,
        url: str,
        *,
        clock: Callable[[], float],
        on_taken: Callable[[], None],
    ) -> None:
        self._database = database
        self._url = url
        self._clock = clock
        self._on_taken = on_taken
        self._watched: Watched | None = None
        self._has_led = False
        self._is_retired = False
        self.epoch: int | None = None
        self.since = 0.0

    async def run(self) -> None:
        """Send heartbeats as the writer, or stand by, until cancelled."""
        last_error = ""
        while True:
            try:
                await self.step()
                last_error = ""
            except MetadataError as error:
                if str(error) != last_error:
                    logger.warning("writer election failed error=%r", str(error))
                last_error = str(error)
            await asyncio.sleep(HEARTBEAT_S)

    async def step(self) -> None:
        """Send a heartbeat as the writer; otherwise take over if there is no live writer. Raises MetadataError."""
        if self._is_retired:
            return
        if self.epoch is not None:
            try:
                await self._database.call(self._database.store.heartbeat, self.epoch)
            except Fenced as error:
                self.lose(error.epoch, str(error))
            return
        asked_at = self._clock()
        writer = await self._database.call(self._database.store.writer)
        if not self._is_vacant(writer):
            self._watch(writer, asked_at)
        if self._may_take_over(writer):
            epoch = await self._database.call(self._database.store.take_over, self._url)
            self._take(epoch)

    def _take(self, epoch: int) -> None:
        if self._is_retired:  # during the call
            return
        self.epoch, self.since, self._has_led, self._watched = epoch, self._clock(), True, None
        logger.info("became writer epoch=%d", epoch)
        self._on_taken()

    def lose(self, epoch: int, reason: str) -> None:
        """Give up the role because another writer took over. Ignored if `epoch` is not the current one."""
        if self.epoch == epoch:
            logger.warning("lost writer role, standing by epoch=%d reason=%r", epoch, reason)
            self.epoch = self._watched = None

    def require_epoch(self) -> int:
        """Return the writer's epoch. Raises Refusal if this manager is not the writer."""
        if self.epoch is None:
            raise Refusal("unavailable", "No writer is active; try again.")
        return self.epoch

    def retire(self) -> None:
        """Give up the role permanently, before the process ends."""
        self._is_retired = True
        self.epoch = None

    def _watch(self, writer: Writer, asked_at: float) -> None:
        """Record an observation of another writer. Logs the first one."""
        now = self._clock()
        if self._watched is None:
            logger.info("standing by writer=%s epoch=%d", writer.url, writer.epoch)
            self._watched = Watched(writer, now)
        else:
            self._watched = self._watched.with_observation(writer, asked_at, now)

    def _is_vacant(self, writer: Writer) -> bool:
        """Return whether no other process has the role. A restart at the same URL replaces the old process."""
        return not writer.epoch or not writer.url or (writer.url == self._url and not self._has_led)

    def _may_take_over(self, writer: Writer) -> bool:
        """Return whether there is no live writer."""
        return self._is_vacant(writer) or (self._watched is not None and self._watched.silent_s > TAKEOVER_S)
