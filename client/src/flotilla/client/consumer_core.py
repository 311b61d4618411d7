"""The core of a consumer: assigned partitions, polling, positions and commits.

`AsyncConsumer` and `Consumer` call `poll`, which never waits, in their own thread; `wait` waits on the event loop until
there is something to return. So records are decoded where they are used, and the event loop only fetches.

A record counts as processed when the next one is requested. `commit` covers all returned records; automatic commits
cover the processed ones.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from flotilla.client.cluster import TopicInfo
from flotilla.client.config import ConsumerConfig
from flotilla.client.engine import Engine
from flotilla.client.errors import ClientClosed, ConfigInvalid, FlotillaError, TopicMissing, to_flotilla_error
from flotilla.client.fetcher import Fetcher
from flotilla.client.group_client import GroupClient
from flotilla.client.partition_fetch import BatchCursor, PartitionFetch
from flotilla.client.positions import (
    EARLIEST,
    LATEST,
    Start,
    Subscription,
    TopicIdPartition,
    TopicPartition,
    parse_start,
)

CLOSE_S = 10.0
_DISCOVERY_INTERVAL_S = 5.0  # interval of metadata refreshes that find new partitions

logger = logging.getLogger(__name__)


class ChangeKind(Enum):
    """How the assignment of partitions changed."""

    ASSIGNED = auto()
    REVOKED = auto()  # to be released when its records are processed
    LOST = auto()  # another member may own it already


@dataclass(frozen=True)
class AssignmentChange:
    """A change of assigned partitions. The consumer calls the user's callback, then `complete_change`."""

    kind: ChangeKind
    fetches: tuple[PartitionFetch, ...]

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions that changed."""
        return [fetch.topic_partition for fetch in self.fetches]

    def take_current(self) -> "AssignmentChange":
        """Return the change without outdated partitions, and mark the others as announced.

        The user may poll long after the change happened.
        """
        if self.kind is ChangeKind.LOST:
            return AssignmentChange(self.kind, tuple(fetch for fetch in self.fetches if fetch.is_announced))
        fetches = tuple(fetch for fetch in self.fetches if not fetch.is_lost)
        for fetch in fetches:
            fetch.is_announced = True
        return AssignmentChange(self.kind, fetches)


class ConsumerCore:
    """A consumer without group assignment. Methods run on the event loop unless they say otherwise."""

    retries_missing_topic = False  # whether fetches of a missing topic are retried

    def __init__(self, engine: Engine, config: ConsumerConfig, subscription: Subscription) -> None:
        self.engine = engine
        self.config = config
        self.subscription = subscription
        self.fetcher = Fetcher(
            engine.router,
            config,
            engine.clock,
            self.wake,
            self.interrupt,
            retries_missing_topic=self.retries_missing_topic,
        )
        self.group_client = None if subscription.group is None else GroupClient(engine.managers, subscription.group)
        self.changes: deque[AssignmentChange] = deque()
        self.error: FlotillaError | None = None
        self.polls = 0
        self.has_waiter = False  # a caller waits for a record
        self._loop = asyncio.get_running_loop()
        self._ready = asyncio.Event()
        self._cursor: BatchCursor | None = None
        self._is_started = self._is_stopping = self.is_closed = False
        self._starting = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []
        self._committing = asyncio.Lock()
        self._initial_partitions: frozenset[TopicIdPartition] = frozenset()
        self._committed: dict[PartitionFetch, int] = {}

    # -- start and close ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Find the partitions and their start offsets, once. Raises Refused, ServerUnreachable."""
        if not self._is_started:
            async with self._starting:
                await self._start()

    async def _start(self) -> None:
        if self._is_started:
            return
        await self.subscribe()
        self._is_started = True
        if self.group_client is not None and self.config.auto_commit_s is not None:
            self.run_in_background(self._auto_commit_loop(self.config.auto_commit_s))

    async def subscribe(self) -> None:
        """Open all partitions of the subscription. Raises Refused, ServerUnreachable."""
        partitions = await self.find_partitions()
        self.keep_initial_partitions(partitions)
        committed = (
            {} if self.group_client is None else await self.group_client.load_offsets(self.engine.config.request_s)
        )
        await self.open_partitions(partitions, committed, self.engine.config.request_s)
        if self.subscription.partitions is None:
            self.run_in_background(self._discover_partitions())

    def run_in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a background task until the consumer is closed; the next poll raises its error."""
        task = self._loop.create_task(work)
        self._tasks.append(task)
        task.add_done_callback(self._on_task_done)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.error = to_flotilla_error(error)
            self.wake()

    async def close(self, timeout_s: float = CLOSE_S, *, is_last_processed: bool = True) -> None:
        """Close the consumer, after a last automatic commit.

        `is_last_processed`: the record that was returned last is processed, too.

        A commit in progress is completed first: a server could still apply a cancelled one after the last commit, and
        the committed offset would go back.
        """
        if self.is_closed:
            return
        if is_last_processed:
            self.mark_processed()
        try:
            async with asyncio.timeout(timeout_s):
                async with self._committing:
                    self.cancel_tasks()
                if self.group_client is not None and self.config.auto_commit_s is not None and self.error is None:
                    await self.auto_commit(list(self.fetcher.fetches.values()))
                await self.leave()
        except TimeoutError:
            logger.warning("final commit timed out group=%s timeout_s=%s", self.subscription.group, timeout_s)
        finally:
            self.cancel_tasks()
            self.is_closed = True
            self.fetcher.close()
            self.wake()

    def cancel_tasks(self) -> None:
        """Cancel all background tasks."""
        for task in self._tasks:
            task.cancel()

    async def leave(self) -> None:
        """Leave the group. Without group assignment there is nothing to do."""

    # -- polling --------------------------------------------------------------------------------------------

    def poll(self) -> BatchCursor | AssignmentChange | None:
        """Return the next batch or change, or None if there is none yet. From any thread, one at a time.

        Raises ClientClosed, or the error of a partition or background task.
        """
        if self.is_closed:
            raise ClientClosed("the consumer is closed")
        self.mark_processed()
        self.polls += 1
        if (cursor := self._cursor) is not None:
            cursor.is_open = True  # before the checks for what may have closed it
        if self.changes:
            return self.changes.popleft()
        if self.error is not None:
            raise self.error
        if cursor is None or not cursor.is_valid or cursor.fetch.position >= cursor.batch.next_offset:
            cursor = self._cursor = self.fetcher.pop()
            if cursor is not None and not cursor.is_valid:
                cursor.is_open = False  # it was invalidated while it was decoded, before `interrupt` could see it
        return cursor

    def mark_processed(self) -> None:
        """Mark all returned records as processed."""
        if self._cursor is not None:
            self._cursor.fetch.mark_processed()

    async def wait(self, deadline: float | None) -> bool:
        """Wait until the next `poll` may return something; False after the deadline."""
        if self.is_closed or self._is_stopping or self.changes or self.error:
            return True
        self._ready.clear()
        if self.fetcher.has_any():
            return True
        self.has_waiter = True
        try:
            async with asyncio.timeout_at(deadline):
                return await self._ready.wait()
        except TimeoutError:
            return False
        finally:
            self.has_waiter = False

    def wake(self) -> None:
        """Wake the caller that waits for a record."""
        self._ready.set()

    def interrupt(self) -> None:
        """Make the iteration over the current batch poll before its next record."""
        if (cursor := self._cursor) is not None:
            cursor.is_open = False
        self.wake()

    def stop(self) -> None:
        """End the current iteration, or else the next one. From any thread."""
        self._is_stopping = True
        if (cursor := self._cursor) is not None:
            cursor.is_open = False
        self.call_soon(self.wake)

    def call_soon(self, function: Callable[[], None]) -> None:
        """Schedule a call on the event loop. From any thread."""
        self._loop.call_soon_threadsafe(function)

    def take_stop(self) -> bool:
        """Return whether `stop` was called, and reset it. From any thread."""
        was, self._is_stopping = self._is_stopping, False
        return was

    async def complete_change(self, change: AssignmentChange) -> None:
        """Continue after the user's callback for a change."""

    # -- positions ------------------------------------------------------------------------------------------

    def get_fetch(self, topic_partition: TopicPartition) -> PartitionFetch:
        """Return an assigned partition. Raises ConfigInvalid."""
        found = self.fetcher.fetches.get(topic_partition)
        if found is None:
            raise ConfigInvalid(f"{topic_partition} is not assigned to this consumer")
        return found

    def get_fetches(self, partitions: Iterable[TopicPartition] | None = None) -> list[PartitionFetch]:
        """Return these assigned partitions, or all. Raises ConfigInvalid."""
        if partitions is not None:
            return [self.get_fetch(TopicPartition(*tp)) for tp in partitions]
        return [fetch for fetch in self.fetcher.fetches.values() if not fetch.is_stopped]

    async def seek(self, topic_partition: TopicPartition, to: int | Start) -> None:
        """Continue at an offset, at a time, or at an end. Raises ConfigInvalid, Refused, ServerUnreachable."""
        fetch = self.get_fetch(topic_partition)
        if isinstance(to, int) and to >= 0:
            offset = to
        else:
            where = parse_start(to, "to", "an offset")
            offset = await self._resolve(fetch.topic, fetch.index, where, self.engine.config.request_s)
        self.fetcher.seek(fetch, offset)

    async def ends(self) -> dict[TopicPartition, int]:
        """Return the current next offset of each partition. Raises Refused, ServerUnreachable."""
        fetches, timeout_s = self.get_fetches(), self.engine.config.request_s
        found = await asyncio.gather(*(self._resolve(one.topic, one.index, LATEST, timeout_s) for one in fetches))
        return {fetch.topic_partition: end for fetch, end in zip(fetches, found, strict=True)}

    async def lag(self) -> dict[TopicPartition, int]:
        """Return the number of unread records of each partition. Raises Refused, ServerUnreachable."""
        ends = await self.ends()
        fetches = self.fetcher.fetches
        return {tp: max(0, end - fetches[tp].position) for tp, end in ends.items() if tp in fetches}

    def has_reached(self, ends: Mapping[TopicPartition, int]) -> bool:
        """Return whether all unpaused partitions are at or after these offsets. From any thread."""
        fetches = ((self.fetcher.fetches.get(tp), end) for tp, end in ends.items())
        return all(fetch is None or fetch.is_paused or fetch.position >= end for fetch, end in fetches)

    # -- commits --------------------------------------------------------------------------------------------

    async def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Commit all returned records, or the given offsets. Raises ConfigInvalid, Refused, ServerUnreachable."""
        if offsets is None:
            fetches = list(self.fetcher.fetches.values())  # including revoked ones: this is their last commit
            for fetch in fetches:
                fetch.mark_processed()
            await self.commit_processed(fetches)
        else:
            given = {self.get_fetch(TopicPartition(*tp)): offset for tp, offset in offsets.items()}
            async with self._committing:
                await self._commit(given)

    async def commit_processed(self, fetches: Iterable[PartitionFetch]) -> None:
        """Commit the processed offsets that changed since the last commit. Raises Refused, ServerUnreachable."""
        async with self._committing:
            changed = {fetch: fetch.processed for fetch in fetches if self._committed.get(fetch) != fetch.processed}
            if changed or self.group_client is None:
                await self._commit(changed)

    async def _commit(self, offsets: Mapping[PartitionFetch, int]) -> None:
        if self.group_client is None:
            raise ConfigInvalid("commit needs a consumer group: create the consumer with group='…'")
        partitions = {id_partition_of(fetch): offset for fetch, offset in offsets.items()}
        await self.send_commit(self.group_client, partitions)
        self._committed.update(offsets)

    async def send_commit(self, client: GroupClient, partitions: Mapping[TopicIdPartition, int]) -> None:
        """Send a commit. Raises Refused, ServerUnreachable."""
        await client.commit(partitions, None, self.engine.config.request_s)

    def remove(self, fetch: PartitionFetch) -> None:
        """Remove a partition."""
        self.fetcher.remove(fetch)
        self._committed.pop(fetch, None)

    async def _auto_commit_loop(self, interval_s: float) -> None:
        while True:
            await asyncio.sleep(interval_s)
            await self.auto_commit(list(self.fetcher.fetches.values()))

    async def auto_commit(self, fetches: Iterable[PartitionFetch]) -> None:
        """Commit the processed offsets. A failure is logged; the next commit includes them."""
        try:
            await self.commit_processed(fetches)
        except FlotillaError as error:
            logger.warning("automatic commit failed, retrying group=%s error=%r", self.subscription.group, str(error))

    # -- partitions -----------------------------------------------------------------------------------------

    async def open_partitions(
        self, partitions: Iterable[TopicIdPartition], committed: Mapping[TopicPartition, int], timeout_s: float
    ) -> list[PartitionFetch]:
        """Fetch partitions from the committed offset, else from the start option. Raises Refused, ServerUnreachable."""
        wanted = list(partitions)
        topics = [await self._find(tp) for tp in wanted]
        found = await asyncio.gather(
            *(
                self._find_start(topic, tp, committed.get(tp.topic_partition), timeout_s)
                for topic, tp in zip(topics, wanted, strict=True)
            )
        )
        fetches = []
        for topic, tp, offset in zip(topics, wanted, found, strict=True):
            fetch = self.fetcher.add(topic, tp.partition, offset)
            if tp.topic_partition in committed:
                self._committed[fetch] = offset
            fetches.append(fetch)
        return fetches

    async def _find_start(self, topic: TopicInfo, tp: TopicIdPartition, committed: int | None, timeout_s: float) -> int:
        if committed is not None:
            return committed
        # A partition that was added after the start is read from its first record, also with start="latest".
        query = self.subscription.query if tp in self._initial_partitions else EARLIEST
        return await self._resolve(topic, tp.partition, query, timeout_s)

    async def _resolve(self, topic: TopicInfo, index: int, query: str, timeout_s: float) -> int:
        """Resolve a start query to an offset, so that retries of a fetch use the same one."""
        is_earliest = query == EARLIEST
        # The response to LATEST has the first offset, too, and no records.
        sent_query = LATEST if is_earliest else query
        deadline = self.engine.clock() + timeout_s
        found = await self.engine.router.fetch(topic, index, sent_query, max_bytes=1, wait_s=0.0, deadline=deadline)
        return found.first_offset if is_earliest else found.offset

    async def _find(self, tp: TopicIdPartition) -> TopicInfo:
        """Return the topic of a partition; refresh outdated metadata. Raises Refused, ServerUnreachable."""
        topic = await self.engine.cluster.find(tp.topic)
        if topic.id != tp.topic_id or tp.partition >= len(topic.partitions):
            topic = await self.engine.cluster.refresh(tp.topic)
        if topic.id != tp.topic_id or tp.partition >= len(topic.partitions):
            raise TopicMissing(
                f"topic '{tp.topic}' with id {tp.topic_id} has no partition {tp.partition}", "not_found", {}
            )
        return topic

    async def find_partitions(self) -> list[TopicIdPartition]:
        """List the current partitions of the subscription. Raises Refused, ServerUnreachable."""
        found = []
        for name in self.subscription.topics:
            topic = await self.engine.cluster.refresh(name)
            all_ = range(len(topic.partitions))
            some = all_ if self.subscription.partitions is None else self.subscription.partitions[name]
            found += [TopicIdPartition(name, topic.id, at) for at in some]
        return found

    def keep_initial_partitions(self, partitions: Iterable[TopicIdPartition]) -> None:
        """Keep the partitions of the first start, also if that start fails: only they start at the start option."""
        self._initial_partitions = self._initial_partitions or frozenset(partitions)

    async def _discover_partitions(self) -> None:
        """Open partitions that are added to the topics, from their first record."""
        while True:
            await asyncio.sleep(_DISCOVERY_INTERVAL_S)
            with contextlib.suppress(FlotillaError):  # fetches report a deleted topic
                new = [tp for tp in await self.find_partitions() if tp.topic_partition not in self.fetcher.fetches]
                await self.open_partitions(new, {}, self.engine.config.request_s)


def id_partition_of(fetch: PartitionFetch) -> TopicIdPartition:
    """Return the partition of a fetch with its topic id."""
    return TopicIdPartition(fetch.topic.name, fetch.topic.id, fetch.index)
