"""`AsyncConsumer`: reads topics on the loop of its user."""

import asyncio
import inspect
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from types import TracebackType
from typing import Literal, Self

from flotilla.client.config import ConsumerConfig
from flotilla.client.consuming import CLOSE_S, Change, Consuming, Kind
from flotilla.client.engine import Engine
from flotilla.client.errors import ConfigInvalid
from flotilla.client.group_consuming import GroupConsuming
from flotilla.client.lanes import Chunk
from flotilla.client.offsets import Offsets
from flotilla.client.positions import ConsumerBatch, ConsumerRecord, Partitions, Place, Start, Wanted

OnChange = Callable[[list[Place]], object]
Until = Literal["end"]


class AsyncConsumer:
    """Reads records of topics, in the order of each partition. For one task at a time.

        async with client.consumer("orders", start="earliest") as consumer:
            async for record in consumer:
                print(record.partition, record.offset, record.key, record.value)

    With a `group`, the members of it share the partitions; each goes on where the group is. `on_assigned`, `on_revoked`
    and `on_lost` are called with lists of places before the next record is handed out: when partitions came, when some
    are let go of (`commit` is still possible), and when some are somebody else's already. They may be coroutines.
    With a `group` and `partitions`, nothing is shared out; the group only remembers how far they were read.

    Heartbeats go out from the loop: code that blocks the loop for long loses its partitions.

    It begins with `async with`, with `start_now` or with the first question: that is when `start="latest"` is.
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
        wanted = Wanted.parse(topics, partitions, start, group)
        self.core = _make_core(engine, config, wanted, member_id, strategy)
        self._callbacks = {Kind.ASSIGNED: on_assigned, Kind.REVOKED: on_revoked, Kind.LOST: on_lost}

    async def __aenter__(self) -> Self:
        await self.start_now()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.core.close(is_finished=kind is None)

    async def start_now(self) -> None:
        """Begin, if it has not begun. Raises Refused, ServerUnreachable."""
        await self.core.start()

    async def close(self, timeout_s: float = CLOSE_S) -> None:
        """End. With a group, and unless commits are made by hand, what was handed out is committed."""
        await self.core.close(timeout_s)

    @property
    def is_closed(self) -> bool:
        """Whether it has ended."""
        return self.core.is_closed

    # -- records --------------------------------------------------------------------------------------------

    def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        return self.records()

    async def records(
        self, *, timeout_s: float | None = None, max_records: int | None = None, until: Until | None = None
    ) -> AsyncIterator[ConsumerRecord]:
        """Iterate over records until there was none for `timeout_s`, or there were `max_records`, or `stop` is called.

        `until="end"` ends with what is there now; a record that comes meanwhile may be among it.
        """
        left = max_records
        is_over = await self.make_until(until)
        while left != 0 and (chunk := await self._next(timeout_s, is_over)) is not None:
            for record in chunk.records():
                yield record
                if left is not None and (left := left - 1) == 0:
                    break

    async def batches(
        self, *, timeout_s: float | None = None, until: Until | None = None
    ) -> AsyncIterator[ConsumerBatch]:
        """Iterate over batches, which is the fast way; it ends as `records` does."""
        is_over = await self.make_until(until)
        while (chunk := await self._next(timeout_s, is_over)) is not None:
            if (batch := chunk.rest()) is not None:
                yield batch

    async def poll(self, timeout_s: float | None = None) -> ConsumerRecord | None:
        """Return the next record; None if there is none in time, or `stop` was called."""
        while (chunk := await self._next(timeout_s)) is not None:
            for record in chunk.records():
                return record
        return None

    def stop(self) -> None:
        """End the iteration that is under way, or else the next one, before its next record. From any thread."""
        self.core.stop()

    async def _next(self, timeout_s: float | None, is_over: Callable[[], bool] = lambda: False) -> Chunk | None:
        core = self.core
        await core.start()
        deadline = None if timeout_s is None else core.engine.clock() + timeout_s
        while not core.take_stop() and not is_over():
            await asyncio.sleep(0)  # where all is there already, others get a turn between batches
            found = core.ask()
            if isinstance(found, Chunk):
                return found
            if found is not None:
                await self._tell(found)
            elif not await core.wait(deadline):
                break
        core.finish()
        return None

    async def _tell(self, change: Change) -> None:
        try:
            said = self.call_back(change)
            if inspect.isawaitable(said):
                await said
        finally:
            await self.core.settle(change)

    def call_back(self, change: Change) -> object | Awaitable[object]:
        """Tell the user of a change."""
        callback = self._callbacks[change.kind]
        return None if callback is None else callback(change.places)

    async def make_until(self, until: Until | None) -> Callable[[], bool]:
        """Make what tells that an iteration is over. Raises ConfigInvalid, Refused, ServerUnreachable."""
        if until is None:
            return lambda: False
        if until != "end":
            raise ConfigInvalid("until must be 'end'")
        if isinstance(self.core, GroupConsuming):
            raise ConfigInvalid("until='end' is for consumers that have their partitions for sure: use timeout_s")
        await self.core.start()
        ends = await self.core.ends()
        return lambda: self.core.has_reached(ends)

    # -- positions ------------------------------------------------------------------------------------------

    @property
    def assignment(self) -> list[Place]:
        """The partitions that it reads."""
        return sorted(lane.place for lane in self.core.lanes())

    def position(self, topic: str, partition: int) -> int:
        """Tell the offset that is handed out next. Raises ConfigInvalid if the partition is not with this consumer."""
        return self.core.lane(Place(topic, partition)).position

    async def seek(self, topic: str, partition: int, to: int | Start) -> None:
        """Go on at an offset, at `earliest`, at `latest`, or at a time (a datetime).

        Raises ConfigInvalid, Refused, ServerUnreachable.
        """
        await self.core.seek(Place(topic, partition), to)

    async def lag(self) -> dict[Place, int]:
        """Ask how many records of each partition are yet to be handed out. Raises Refused, ServerUnreachable."""
        return await self.core.lag()

    def pause(self, *places: Place) -> None:
        """Hand nothing out of some partitions, or of all, until `resume`. What was fetched ahead is fetched again."""
        for lane in self.core.lanes(places or None):
            self.core.fetcher.pause(lane)

    def resume(self, *places: Place) -> None:
        """Go on with partitions that are paused."""
        for lane in self.core.lanes(places or None):
            self.core.fetcher.resume(lane)

    async def commit(self, offsets: Mapping[Place, int] | None = None) -> None:
        """Commit all that was handed out, or the next offsets to read that are given.

        Raises ConfigInvalid without a group, MemberGone if the partitions are somebody else's, ServerUnreachable.
        """
        await self.core.commit(offsets)


def _make_core(
    engine: Engine, config: ConsumerConfig, wanted: Wanted, member_id: str | None, strategy: str
) -> Consuming:
    if wanted.group is None or wanted.partitions is not None:
        return Consuming(engine, config, wanted)
    return GroupConsuming(
        engine,
        config,
        wanted,
        Offsets(engine.managers, wanted.group),
        member_id=member_id or secrets.token_hex(16),
        is_id_given=member_id is not None,
        strategy=strategy,
    )
