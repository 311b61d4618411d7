"""`AsyncConsumer`: the consumer on the caller's event loop."""

import asyncio
import inspect
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from types import TracebackType
from typing import Literal, Self

from flotilla.client.config import ConsumerConfig
from flotilla.client.consumer_core import CLOSE_S, AssignmentChange, ChangeKind, ConsumerCore
from flotilla.client.engine import Engine
from flotilla.client.errors import ConfigInvalid
from flotilla.client.group_client import GroupClient
from flotilla.client.group_consumer_core import GroupConsumerCore
from flotilla.client.partition_fetch import BatchCursor
from flotilla.client.positions import ConsumerBatch, ConsumerRecord, Partitions, Start, Subscription, TopicPartition

OnChange = Callable[[list[TopicPartition]], object]
Until = Literal["end"]


class AsyncConsumer:
    """Reads records of topics, each partition in offset order. Use it from one task at a time.

        async with client.consumer("orders", start="earliest") as consumer:
            async for record in consumer:
                print(record.partition, record.offset, record.key, record.value)

    With a `group`, its members share the partitions, and each starts at the committed offsets. The callbacks get lists
    of TopicPartition before the next record is returned: `on_assigned` new ones, `on_revoked` those that are about to
    be released (`commit` still works), `on_lost` those that another member may own already. A callback may be a
    coroutine function. With a `group` and `partitions`, there is no assignment: the group only stores committed
    offsets.

    Heartbeats run on the event loop: code that blocks it for longer than `session_s` loses its partitions.

    The consumer starts with `async with`, with `start_now` or with the first read; `start="latest"` is resolved then.
    """

    def __init__(
        self,
        engine: Engine,
        config: ConsumerConfig,
        topics: str | Iterable[str],
        *,
        start: Start = "earliest",
        partitions: Partitions | None = None,
        group: str | None = None,
        member_id: str | None = None,
        strategy: str = "sticky",
        on_assigned: OnChange | None = None,
        on_revoked: OnChange | None = None,
        on_lost: OnChange | None = None,
    ) -> None:
        subscription = Subscription.parse(topics, partitions, start, group)
        self._core = _make_core(engine, config, subscription, member_id, strategy)
        self._callbacks = {ChangeKind.ASSIGNED: on_assigned, ChangeKind.REVOKED: on_revoked, ChangeKind.LOST: on_lost}

    async def __aenter__(self) -> Self:
        await self.start_now()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._core.close(is_last_processed=kind is None)

    async def start_now(self) -> None:
        """Start, unless it has started. Raises Refused, ServerUnreachable."""
        await self._core.start()

    async def close(self, timeout_s: float = CLOSE_S) -> None:
        """Close the consumer; in a group with automatic commits, commit the processed records and leave."""
        await self._core.close(timeout_s)

    @property
    def _is_closed(self) -> bool:
        """Whether the consumer is closed."""
        return self._core.is_closed

    # -- records --------------------------------------------------------------------------------------------

    def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        return self.records()

    async def records(
        self, *, timeout_s: float | None = None, max_records: int | None = None, until: Until | None = None
    ) -> AsyncIterator[ConsumerRecord]:
        """Iterate over records; end after `timeout_s` without a record, after `max_records`, or on `stop`.

        `until="end"` ends at the current end of the partitions. Records that are appended meanwhile may be included.
        """
        left = max_records
        is_over = await self._make_until(until)
        while left != 0 and (cursor := await self._next(timeout_s, is_over)) is not None:
            for record in cursor.records():
                yield record
                if left is not None and (left := left - 1) == 0:
                    break

    async def batches(
        self, *, timeout_s: float | None = None, until: Until | None = None
    ) -> AsyncIterator[ConsumerBatch]:
        """Iterate over batches, which is faster than records; it ends as `records` does."""
        is_over = await self._make_until(until)
        while (cursor := await self._next(timeout_s, is_over)) is not None:
            if (batch := cursor.rest()) is not None:
                yield batch

    async def poll(self, timeout_s: float | None = None) -> ConsumerRecord | None:
        """Return the next record; None after `timeout_s`, or if `stop` was called."""
        while (cursor := await self._next(timeout_s)) is not None:
            for record in cursor.records():
                return record
        return None

    def stop(self) -> None:
        """End the current iteration, or else the next one, before its next record. Thread-safe."""
        self._core.stop()

    async def _next(self, timeout_s: float | None, is_over: Callable[[], bool] = lambda: False) -> BatchCursor | None:
        core = self._core
        await core.start()
        deadline = None if timeout_s is None else core.engine.clock() + timeout_s
        while not core.take_stop() and not is_over():
            await asyncio.sleep(0)  # lets other tasks run between batches that were prefetched
            found = core.poll()
            if isinstance(found, BatchCursor):
                return found
            if found is not None:
                await self._announce(found)
            elif not await core.wait(deadline):
                break
        core.mark_processed()
        return None

    async def _announce(self, change: AssignmentChange) -> None:
        try:
            result = self._call_back(change)
            if inspect.isawaitable(result):
                await result
        finally:
            await self._core.complete_change(change)

    def _call_back(self, change: AssignmentChange) -> object | Awaitable[object]:
        """Call the user's callback for a change of assignment."""
        callback = self._callbacks[change.kind]
        return None if callback is None else callback(change.partitions)

    async def _make_until(self, until: Until | None) -> Callable[[], bool]:
        """Build the end condition of an iteration. Raises ConfigInvalid, Refused, ServerUnreachable."""
        if until is None:
            return lambda: False
        if until != "end":
            raise ConfigInvalid(f"until must be 'end', not {until!r}")
        if isinstance(self._core, GroupConsumerCore):
            raise ConfigInvalid("until='end' is not supported in a consumer group: use timeout_s")
        await self._core.start()
        ends = await self._core.ends()
        return lambda: self._core.has_reached(ends)

    # -- positions ------------------------------------------------------------------------------------------

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that this consumer reads."""
        return sorted(fetch.topic_partition for fetch in self._core.get_fetches())

    def position(self, topic: str, partition: int) -> int:
        """Return the offset of the next record. Raises ConfigInvalid if the partition is not assigned."""
        return self._core.get_fetch(TopicPartition(topic, partition)).position

    async def seek(self, topic: str, partition: int, to: int | Start) -> None:
        """Continue at an offset, at `earliest`, at `latest`, or at a time (a datetime with time zone).

        Raises ConfigInvalid, Refused, ServerUnreachable.
        """
        await self._core.seek(TopicPartition(topic, partition), to)

    async def lag(self) -> dict[TopicPartition, int]:
        """Return the number of unread records of each partition. Raises Refused, ServerUnreachable."""
        return await self._core.lag()

    def pause(self, *partitions: TopicPartition) -> None:
        """Stop reading some partitions, or all, until `resume`. Prefetched records are dropped and fetched again."""
        for fetch in self._core.get_fetches(partitions or None):
            self._core.fetcher.pause(fetch)

    def resume(self, *partitions: TopicPartition) -> None:
        """Continue with paused partitions: these, or all."""
        for fetch in self._core.get_fetches(partitions or None):
            self._core.fetcher.resume(fetch)

    async def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Commit the offsets of all returned records, or the given next offsets to read.

        Raises ConfigInvalid without a group, MemberGone if another member owns the partitions, ServerUnreachable.
        """
        await self._core.commit(offsets)


def _make_core(
    engine: Engine, config: ConsumerConfig, subscription: Subscription, member_id: str | None, strategy: str
) -> ConsumerCore:
    if subscription.group is None or subscription.partitions is not None:
        return ConsumerCore(engine, config, subscription)
    return GroupConsumerCore(
        engine,
        config,
        subscription,
        GroupClient(engine.managers, subscription.group),
        member_id=member_id or secrets.token_hex(16),
        is_id_given=member_id is not None,
        strategy=strategy,
    )
