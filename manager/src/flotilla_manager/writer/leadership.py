"""Whether this manager is the writer: it takes over when there is none, and gives way when there is another.

Safety does not depend on this: the database checks the epoch in every transaction, brokers check it in every order.
What is here only keeps two that may both be the writer from taking over from each other again and again: one that
finds another writer alive stands by, and takes over when that one's beat has not changed for some seconds. Clocks of
other machines do not matter.
"""

import asyncio
import logging
from collections.abc import Callable

from flotilla_manager.metadata import AsyncMetadata
from flotilla_manager.metadata.errors import Fenced, MetadataError
from flotilla_manager.model import Writer

logger = logging.getLogger(__name__)

BEAT_S = 1.0
SILENT_S = 4.0  # a writer whose beat has not changed for this long is not there any more


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
        self._seen: tuple[Writer, float] | None = None
        self._is_first_look = True
        self.epoch: int | None = None
        self.since = 0.0

    async def run(self) -> None:
        """Be the writer, or stand by, until cancelled."""
        while True:
            try:
                await self.look()
            except MetadataError as error:
                logger.warning("the writer's place could not be looked after: %s", error)
            await asyncio.sleep(BEAT_S)

    async def look(self) -> None:
        """Beat if this is the writer; take over if nobody is. Raises MetadataError."""
        if self.epoch is not None:
            try:
                await self._database.call(self._database.store.beat, self.epoch)
            except Fenced as error:
                self.lose(str(error))
        elif self._may_take_over(await self._database.call(self._database.store.writer)):
            self.epoch = await self._database.call(self._database.store.take_over, self._url)
            self.since = self._clock()
            logger.info("this manager is the writer now, with epoch %d", self.epoch)
            self._on_taken()

    def lose(self, reason: str) -> None:
        """Stop deciding: there is another writer."""
        if self.epoch is not None:
            logger.warning("this manager is not the writer any more: %s; it stands by", reason)
        self.epoch = self._seen = None

    def _may_take_over(self, writer: Writer) -> bool:
        """Tell whether there is no living writer. One that was started at the same address has replaced the old one."""
        first, self._is_first_look = self._is_first_look, False
        if not writer.epoch or not writer.url or (first and writer.url == self._url):
            return True
        now = self._clock()
        if self._seen is None or self._seen[0] != writer:
            if self._seen is None:
                logger.info("the manager at %s is the writer, with epoch %d; standing by", writer.url, writer.epoch)
            self._seen = writer, now
        return now - self._seen[1] > SILENT_S
