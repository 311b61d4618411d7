"""`consume` of the simple API: the next message of a consumer, at most once, from any manager.

The positions of a consumer are a row with a version. A manager finds the next message, advances the row by
compare-and-set, and returns the message only if that succeeded. So one of several managers returns a message. If the
response is lost, the message is lost for this consumer.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import Context
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from flotilla.protocol import simple
from flotilla.protocol.errors import Refusal
from flotilla.protocol.simple import NO_CONSUMER
from flotilla_manager.clients import NotRegistered, may_be_id
from flotilla_manager.metadata import AsyncMetadata
from flotilla_manager.model import Advance, Consumer, Topic
from flotilla_manager.record_cache import Found, RecordCache
from flotilla_manager.routing.gateway import Gateway

_KNOWN_MAX = 50_000
_TRIES_MAX = 100
_STEPS_MAX = 256
_PARTITION_S_MIN = 1.0  # shortest timeout of a partition before the next one is tried


class Consumed(NamedTuple):
    """A consumed message."""

    partition: int
    offset: int
    value: bytes


@dataclass(eq=False)
class _Entry:
    """Cached consumer; its requests run one at a time."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    consumer: Consumer | None = None
    users: int = 0


class Consumers:
    """Consumers of the simple API."""

    def __init__(self, database: AsyncMetadata, records: RecordCache, gateway: Gateway) -> None:
        self._database = database
        self._records = records
        self._gateway = gateway
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._positions = PositionWriter(database)

    async def is_known(self, consumer_id: str) -> bool:
        """Return whether a consumer is registered with any topic. Raises MetadataError."""
        entry = self._entries.get(consumer_id)
        if entry is not None and entry.consumer is not None:
            return True
        return await self._load(consumer_id) is not None

    async def consume(self, topic: Topic, consumer_id: str, partition: int | None) -> Consumed | None:
        """Return the next message; None if all are read. Raises Refusal, MetadataError."""
        with self._use(consumer_id) as entry:
            async with self._exclusive(entry.lock):
                for _ in range(_TRIES_MAX):
                    consumer = entry.consumer or await self._load(consumer_id)
                    if consumer is None or not may_consume(consumer, topic.id, partition):
                        raise NotRegistered(NO_CONSUMER)
                    entry.consumer = None  # outdated if the step fails
                    found = await self._find(topic, consumer, partition)
                    if found is None:
                        entry.consumer = consumer
                        return None
                    step = advance(topic, consumer, found, explicit=partition is not None)
                    if await self._positions.write(step):
                        entry.consumer = apply(consumer, step)
                        return found
        raise Refusal("busy", "concurrent requests of this consumer; try again")

    async def lag(self, topic: Topic, consumer_id: str, partition: int | None, timeout_s: float) -> dict[int, int]:
        """Return the number of unread messages by partition. Raises Refusal, MetadataError."""
        consumer = await self._load(consumer_id)
        if consumer is None or not may_consume(consumer, topic.id, partition):
            raise NotRegistered(NO_CONSUMER)
        indexes = read_order(topic, consumer, partition)
        found = await asyncio.gather(*(self._gateway.offsets(topic, index, timeout_s=timeout_s) for index in indexes))
        return {
            index: max(0, offsets.next - max(offsets.first, position(consumer, index)))
            for index, offsets in sorted(zip(indexes, found, strict=True))
        }

    async def _find(self, topic: Topic, consumer: Consumer, partition: int | None) -> Consumed | None:
        """Find the next message in round-robin order. Unavailable partitions are skipped if another one has a message.

        All partitions share the timeout of one, so that partitions without a leader do not add up.
        """
        refusal: Refusal | None = None
        indexes = read_order(topic, consumer, partition)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._records.timeout_s
        for at, index in enumerate(indexes):
            left_s = deadline - loop.time()
            if left_s <= 0:  # unread partitions may have messages
                raise refusal or Refusal("unavailable", "timed out before all partitions were read; try again")
            share_s = min(left_s, max(_PARTITION_S_MIN, left_s / (len(indexes) - at)))
            try:
                found: Found | None = await self._records.at(topic, index, position(consumer, index), share_s)
            except Refusal as error:
                refusal = error
                continue
            if found is not None:
                return Consumed(index, *found)
        if refusal is not None:
            raise refusal
        return None

    @asynccontextmanager
    async def _exclusive(self, lock: asyncio.Lock) -> AsyncIterator[None]:
        """Serialize requests of one consumer id. Raises Refusal after the timeout of a partition."""
        try:
            async with asyncio.timeout(self._records.timeout_s if lock.locked() else None):
                await lock.acquire()
        except TimeoutError:
            raise Refusal("busy", "timed out waiting for other requests of this consumer; try again") from None
        try:
            yield
        finally:
            lock.release()

    async def _load(self, consumer_id: str) -> Consumer | None:
        if not may_be_id(consumer_id):
            return None
        return await self._database.call(self._database.store.find_consumer, consumer_id)

    @contextmanager
    def _use(self, consumer_id: str) -> Iterator[_Entry]:
        entry = self._entries.get(consumer_id)
        if entry is None:
            entry = self._entries[consumer_id] = _Entry()
        self._entries.move_to_end(consumer_id)
        entry.users += 1
        try:
            yield entry
        finally:
            entry.users -= 1
            self._forget_some()

    def _forget_some(self) -> None:
        while len(self._entries) > _KNOWN_MAX:
            oldest = next(iter(self._entries))
            if self._entries[oldest].users:
                return
            del self._entries[oldest]


class PositionWriter:
    """Writes steps of consumers; concurrent steps share a transaction."""

    def __init__(self, database: AsyncMetadata) -> None:
        self._database = database
        self._waiting: list[tuple[Advance, asyncio.Future[bool]]] = []
        self._task: asyncio.Task[None] | None = None

    async def write(self, step: Advance) -> bool:
        """Advance a consumer; return whether its version matched. Raises MetadataError."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bool] = loop.create_future()
        self._waiting.append((step, future))
        if self._task is None:
            self._task = loop.create_task(self._drive(), context=Context())  # without the context of a request
        return await future

    async def _drive(self) -> None:
        while self._waiting:
            taken, self._waiting = self._waiting[:_STEPS_MAX], self._waiting[_STEPS_MAX:]
            try:
                results = await self._database.call(self._database.store.advance, [step for step, _ in taken])
            except Exception as error:  # noqa: BLE001 - passed to the waiting requests
                for _, future in taken:
                    if not future.done():
                        future.set_exception(error)
            else:
                for (_, future), result in zip(taken, results, strict=True):
                    if not future.done():
                        future.set_result(result)
        self._task = None


def may_consume(consumer: Consumer, topic_id: str, partition: int | None) -> bool:
    """Return whether a registration covers a topic and a partition."""
    return consumer.topic_id == topic_id and (partition is None or consumer.partition in {None, partition})


def read_order(topic: Topic, consumer: Consumer, partition: int | None) -> list[int]:
    """Return the partitions to read, in order."""
    only = consumer.partition if partition is None else partition
    return simple.read_order(len(topic.partitions), consumer.cursor, only)


def position(consumer: Consumer, index: int) -> int:
    """Return the next offset in a partition; partitions that were added later start at 0."""
    return consumer.positions[index] if index < len(consumer.positions) else 0


def advance(topic: Topic, consumer: Consumer, found: Consumed, *, explicit: bool) -> Advance:
    """Return the step after a message. An explicit partition does not move the cursor."""
    cursor = consumer.cursor if explicit else (found.partition + 1) % len(topic.partitions)
    return Advance(
        consumer_id=consumer.id,
        version=consumer.version,
        cursor=cursor,
        partition=found.partition,
        position=found.offset + 1,
    )


def apply(consumer: Consumer, step: Advance) -> Consumer:
    """Apply a step to a cached consumer."""
    positions = [*consumer.positions, *[0] * (step.partition + 1 - len(consumer.positions))]
    positions[step.partition] = step.position
    return replace(consumer, version=step.version + 1, cursor=step.cursor, positions=tuple(positions))
