"""Cache of the topology: the last snapshot of the database.

The version is polled every second, and on a cache miss. The snapshot is loaded again if the version has changed. While
the database is unavailable, the cached snapshot stays in use.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from flotilla.protocol.errors import Refusal
from flotilla_manager.metadata.errors import MetadataError
from flotilla_manager.model import Broker, Snapshot, Topic, TopicState

logger = logging.getLogger(__name__)

POLL_S = 1.0
_PAUSE_S = 0.05  # shortest interval of polls


class MetadataCache:
    """Last snapshot, with lookups and refresh."""

    def __init__(self, load: Callable[[int], Awaitable[Snapshot | None]], clock: Callable[[], float]) -> None:
        """`load` returns the snapshot, or None if it still has the given version."""
        self._load = load
        self._clock = clock
        self._refreshing: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None
        self._wanted = asyncio.Event()
        self.snapshot: Snapshot | None = None
        self.heard_at: float | None = None  # time of the last response of the database
        self.last_error: str | None = None

    def require_snapshot(self) -> Snapshot:
        """Return the cached topology. Raises Refusal if it was not loaded yet."""
        if self.snapshot is None:
            raise Refusal("unavailable", "The metadata is not loaded yet; try again.")
        return self.snapshot

    def topic(self, name: str) -> Topic | None:
        """Return a cached ready topic by name."""
        return None if self.snapshot is None else self.snapshot.ready.get(name)

    def topic_by_id(self, id_: str) -> Topic | None:
        """Return a cached ready topic by id."""
        topic = None if self.snapshot is None else self.snapshot.topics_by_id.get(id_)
        return topic if topic is not None and topic.state == TopicState.READY else None

    def broker(self, id_: str) -> Broker | None:
        """Return a cached broker."""
        return None if self.snapshot is None else self.snapshot.brokers_by_id.get(id_)

    async def find_topic(self, name: str) -> Topic | None:
        """Return a ready topic by name; refresh on a miss. Raises MetadataError."""
        topic = self.topic(name)
        if topic is None:
            await self.refresh()
            topic = self.topic(name)
        return topic

    async def refresh(self) -> None:
        """Refresh from the database. Concurrent calls share a query. Raises MetadataError.

        A query that was started before the call is not shared: its result may be older than the caller's knowledge.
        """
        if self._refreshing is None:
            self._refreshing = self._start(None)
            await asyncio.shield(self._refreshing)
            return
        if self._next is None:
            self._next = self._start(self._refreshing)
        await asyncio.shield(self._next)

    async def refresh_after_change(self) -> bool:
        """Refresh after a committed change; return whether that worked. A failure is logged: a poll follows."""
        try:
            await self.refresh()
        except MetadataError as error:
            logger.info("metadata refresh failed after a change error=%r", str(error))
            return False
        return True

    def _start(self, before: "asyncio.Task[None] | None") -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(self._refresh_after(before))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())  # awaiting callers see the exception
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
            if self.last_error is None:
                logger.warning("database unavailable error=%r", str(error))
            self.last_error = str(error)
            raise
        if self.last_error is not None:
            logger.info("database available")
        self.last_error, self.heard_at = None, self._clock()
        if found is not None:
            self.snapshot = found

    def refresh_soon(self) -> None:
        """Schedule a refresh without waiting for it."""
        self._wanted.set()

    async def follow(self) -> None:
        """Poll for changes, until cancelled."""
        while True:
            try:
                await self.refresh()
            except MetadataError:
                logger.debug("metadata refresh failed", exc_info=True)
            await asyncio.sleep(_PAUSE_S)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_S):  # wait_for can lose a concurrent cancellation
                    await self._wanted.wait()
            self._wanted.clear()
