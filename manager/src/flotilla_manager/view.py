"""What this manager knows of the topology, without asking the database for every request.

The snapshot is read anew when its version has changed, which is looked up every second, and when a request names
something that is not in it. While the database is away, what is known stays in use.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from flotilla_manager.metadata.errors import MetadataError
from flotilla_manager.model import Broker, Snapshot, Topic, TopicState

logger = logging.getLogger(__name__)

POLL_S = 1.0
_PAUSE_S = 0.05  # however often somebody asks for it


class View:
    """The last snapshot, and how to get a newer one."""

    def __init__(self, load: Callable[[int], Awaitable[Snapshot | None]], clock: Callable[[], float]) -> None:
        """Make a view. `load` is given a version, and returns the snapshot if it has another one."""
        self._load = load
        self._clock = clock
        self._refreshing: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None
        self._wanted = asyncio.Event()
        self.snapshot: Snapshot | None = None
        self.heard_at: float | None = None  # when the database last answered
        self.trouble: str | None = None

    def topic(self, name: str) -> Topic | None:
        """Find a topic that can be used, as far as is known here."""
        return None if self.snapshot is None else self.snapshot.ready.get(name)

    def topic_by_id(self, id_: str) -> Topic | None:
        """Find a topic by its id, unless it is being removed."""
        topic = None if self.snapshot is None else self.snapshot.topics_by_id.get(id_)
        return topic if topic is not None and topic.state == TopicState.READY else None

    def broker(self, id_: str) -> Broker | None:
        """Find a broker."""
        return None if self.snapshot is None else self.snapshot.brokers_by_id.get(id_)

    async def find_topic(self, name: str) -> Topic | None:
        """Find a topic; ask the database if it is not known here. Raises MetadataError."""
        topic = self.topic(name)
        if topic is None:
            await self.refresh()
            topic = self.topic(name)
        return topic

    async def refresh(self) -> None:
        """Ask the database now; those who ask at the same time share an answer. Raises MetadataError.

        An answer that was asked for before this call may be older than what the caller was told: it does not count.
        """
        if self._refreshing is None:
            self._refreshing = self._start(None)
            await asyncio.shield(self._refreshing)
            return
        if self._next is None:
            self._next = self._start(self._refreshing)
        await asyncio.shield(self._next)

    def _start(self, before: "asyncio.Task[None] | None") -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(self._refresh_after(before))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())  # those who wait for it see it
        return task

    async def _refresh_after(self, before: "asyncio.Task[None] | None") -> None:
        if before is not None:
            await asyncio.wait((before,))
            self._refreshing, self._next = self._next, None
        try:
            await self._refresh()
        finally:
            if self._next is None:
                self._refreshing = None

    async def _refresh(self) -> None:
        try:
            found = await self._load(-1 if self.snapshot is None else self.snapshot.version)
        except MetadataError as error:
            if self.trouble is None:
                logger.warning("the database does not answer: %s", error)
            self.trouble = str(error)
            raise
        if self.trouble is not None:
            logger.info("the database answers again")
        self.trouble, self.heard_at = None, self._clock()
        if found is not None:
            self.snapshot = found

    def refresh_soon(self) -> None:
        """Ask the database, without waiting for it."""
        self._wanted.set()

    async def follow(self) -> None:
        """Stay up to date, until cancelled."""
        while True:
            try:
                await self.refresh()
            except MetadataError:
                logger.debug("the snapshot could not be refreshed", exc_info=True)
            await asyncio.sleep(_PAUSE_S)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_S):  # `wait_for` may lose a cancellation that comes with the event
                    await self._wanted.wait()
            self._wanted.clear()
