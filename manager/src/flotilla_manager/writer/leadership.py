"""Whether this manager is the writer: it takes over when there is none, and gives way when there is another.

Safety does not depend on this: the database checks the epoch in every transaction, brokers check it in every order.
What is here only keeps two that may both be the writer from taking over from each other again and again: one that
finds another writer alive stands by, and takes over when that one's beat has not changed for some seconds. Clocks of
other machines do not matter. Seconds in which this manager slept, or in which the database did not answer, say nothing
about the other one: between two looks, only a little time counts.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from flotilla_manager.metadata import AsyncMetadata
from flotilla_manager.metadata.errors import Fenced, MetadataError
from flotilla_manager.model import Writer

logger = logging.getLogger(__name__)

BEAT_S = 1.0
SILENT_S = 4.0  # a writer whose beat has not changed for this long is not there any more
_STEP_S_MAX = 2 * BEAT_S  # of silence, from one look to the next: what is longer was our own or the database's


@dataclass(frozen=True)
class Watched:
    """Another writer, and for how long it has been seen to do nothing."""

    writer: Writer
    at: float
    silent_s: float = 0.0

    def again(self, writer: Writer, asked_at: float, now: float) -> "Watched":
        """Look once more. What is answered may be as old as the question, so silence ends with the question."""
        if writer != self.writer:
            return Watched(writer, now)
        step_s = min(max(asked_at - self.at, 0.0), _STEP_S_MAX)
        return Watched(writer, now, self.silent_s + step_s)


class Leadership:
    """This manager's claim to be the writer."""

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
        """Be the writer, or stand by, until cancelled."""
        trouble = ""
        while True:
            try:
                await self.look()
                trouble = ""
            except MetadataError as error:
                if str(error) != trouble:
                    logger.warning("the writer's place could not be looked after: %s", error)
                trouble = str(error)
            await asyncio.sleep(BEAT_S)

    async def look(self) -> None:
        """Beat if this is the writer; take over if nobody is. Raises MetadataError."""
        if self._is_retired:
            return
        if self.epoch is not None:
            try:
                await self._database.call(self._database.store.beat, self.epoch)
            except Fenced as error:
                self.lose(error.epoch, str(error))
            return
        asked_at = self._clock()
        writer = await self._database.call(self._database.store.writer)
        if self._may_take_over(writer, asked_at):
            epoch = await self._database.call(self._database.store.take_over, self._url)
            self._take(epoch)

    def _take(self, epoch: int) -> None:
        if self._is_retired:  # meanwhile
            return
        self.epoch, self.since, self._has_led, self._watched = epoch, self._clock(), True, None
        logger.info("this manager is the writer now, with epoch %d", epoch)
        self._on_taken()

    def lose(self, epoch: int, reason: str) -> None:
        """Stop deciding: there is another writer. What an earlier epoch of this manager meets with says nothing."""
        if self.epoch == epoch:
            logger.warning("this manager is not the writer any more: %s; it stands by", reason)
            self.epoch = self._watched = None

    def retire(self) -> None:
        """Decide nothing any more, for good: this manager is about to end."""
        self._is_retired = True
        self.epoch = None

    def _may_take_over(self, writer: Writer, asked_at: float) -> bool:
        """Tell whether there is no living writer. One that was started at the same address has replaced the old one."""
        if not writer.epoch or not writer.url or (writer.url == self._url and not self._has_led):
            return True
        now = self._clock()
        if self._watched is None:
            logger.info("the manager at %s is the writer, with epoch %d; standing by", writer.url, writer.epoch)
            self._watched = Watched(writer, now)
        else:
            self._watched = self._watched.again(writer, asked_at, now)
        return self._watched.silent_s > SILENT_S
