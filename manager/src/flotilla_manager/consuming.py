"""One message after the other for a consumer, whichever manager it asks: each exactly once, while nothing fails.

A consumer's place is a row with a version. To hand out a message, a manager finds it, then moves the consumer on by
compare-and-set, and answers only if that took effect: of two managers that found the same message, one hands it out.
If the answer is lost afterwards, so is the message for this consumer: at most once.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import Context
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from flotilla.serving.errors import Refusal
from flotilla.serving.people import NO_CONSUMER
from flotilla_manager.clients import NotRegistered, may_be_id
from flotilla_manager.metadata import AsyncMetadata
from flotilla_manager.model import Advance, Consumer, Topic
from flotilla_manager.records import Found, Records
from flotilla_manager.routing.gateway import Gateway

_KNOWN_MAX = 50_000
_TRIES_MAX = 100
_STEPS_MAX = 256
_PARTITION_S_MIN = 1.0  # what a partition that does not answer may cost before the next one is looked into


class Consumed(NamedTuple):
    """A message that was handed out."""

    partition: int
    offset: int
    value: bytes


@dataclass(eq=False)
class _Entry:
    """A consumer as this manager knows it: one message at a time is looked for."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    consumer: Consumer | None = None
    users: int = 0


class Consuming:
    """Hands out messages."""

    def __init__(self, database: AsyncMetadata, records: Records, gateway: Gateway) -> None:
        self._database = database
        self._records = records
        self._gateway = gateway
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._steps = Steps(database)

    async def is_known(self, consumer_id: str) -> bool:
        """Tell whether a consumer has registered with any topic. Raises MetadataError."""
        entry = self._entries.get(consumer_id)
        if entry is not None and entry.consumer is not None:
            return True
        return await self._load(consumer_id) is not None

    async def consume(self, topic: Topic, consumer_id: str, partition: int | None) -> Consumed | None:
        """Hand out the next message, or None if there is none. Raises Refusal, MetadataError."""
        with self._use(consumer_id) as entry:
            async with self._turn(entry.lock):
                for _ in range(_TRIES_MAX):
                    consumer = entry.consumer or await self._load(consumer_id)
                    if consumer is None or not may_consume(consumer, topic.id, partition):
                        raise NotRegistered(NO_CONSUMER)
                    entry.consumer = None  # unless the step succeeds, somebody else may have moved it
                    found = await self._find(topic, consumer, partition)
                    if found is None:
                        entry.consumer = consumer
                        return None
                    step = advance(topic, consumer, found, explicit=partition is not None)
                    if await self._steps.take(step):
                        entry.consumer = moved(consumer, step)
                        return found
        raise Refusal("busy", "many managers move this consumer at once; try again")

    async def left(self, topic: Topic, consumer_id: str, partition: int | None, seconds: float) -> dict[int, int]:
        """Count what is left for a consumer, by partition. Raises Refusal, MetadataError."""
        consumer = await self._load(consumer_id)
        if consumer is None or not may_consume(consumer, topic.id, partition):
            raise NotRegistered(NO_CONSUMER)
        indexes = turns(topic, consumer, partition)
        found = await asyncio.gather(*(self._gateway.offsets(topic, index, seconds=seconds) for index in indexes))
        return {
            index: max(0, offsets.next - max(offsets.first, position(consumer, index)))
            for index, offsets in sorted(zip(indexes, found, strict=True))
        }

    async def _find(self, topic: Topic, consumer: Consumer, partition: int | None) -> Consumed | None:
        """Look into the partitions in turn. One that cannot be asked now is passed over, unless it is all there is.

        All of them together get the time of one, so that a few without a leader do not keep a client waiting for ever.
        """
        refusal: Refusal | None = None
        indexes = turns(topic, consumer, partition)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._records.seconds
        for at, index in enumerate(indexes):
            left_s = deadline - loop.time()
            if left_s <= 0:  # what was not looked into is not known to be empty
                raise refusal or Refusal("unavailable", "the brokers are too slow to look into every partition now")
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
    async def _turn(self, lock: asyncio.Lock) -> AsyncIterator[None]:
        """Wait for those who share the consumer's id, but not longer than for a partition."""
        try:
            async with asyncio.timeout(self._records.seconds if lock.locked() else None):
                await lock.acquire()
        except TimeoutError:
            raise Refusal("busy", "others wait for messages of this consumer; try again") from None
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


class Steps:
    """Steps of consumers on their way to the database: those that wait share the next transaction."""

    def __init__(self, database: AsyncMetadata) -> None:
        self._database = database
        self._waiting: list[tuple[Advance, asyncio.Future[bool]]] = []
        self._task: asyncio.Task[None] | None = None

    async def take(self, step: Advance) -> bool:
        """Move a consumer; return whether it was where it was thought to be. Raises MetadataError."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bool] = loop.create_future()
        self._waiting.append((step, future))
        if self._task is None:
            self._task = loop.create_task(self._drive(), context=Context())  # nobody's request in particular
        return await future

    async def _drive(self) -> None:
        while self._waiting:
            taken, self._waiting = self._waiting[:_STEPS_MAX], self._waiting[_STEPS_MAX:]
            try:
                results = await self._database.call(self._database.store.advance, [step for step, _ in taken])
            except Exception as error:  # noqa: BLE001 - whoever waits has to know
                for _, future in taken:
                    if not future.done():
                        future.set_exception(error)
            else:
                for (_, future), result in zip(taken, results, strict=True):
                    if not future.done():
                        future.set_result(result)
        self._task = None


def may_consume(consumer: Consumer, topic_id: str, partition: int | None) -> bool:
    """Tell whether a registration covers a topic and a partition."""
    return consumer.topic_id == topic_id and (partition is None or consumer.partition in {None, partition})


def turns(topic: Topic, consumer: Consumer, partition: int | None) -> list[int]:
    """Name the partitions to look into, in order."""
    only = consumer.partition if partition is None else partition
    if only is not None:
        return [only]
    count = len(topic.partitions)
    return [(consumer.cursor + at) % count for at in range(count)]


def position(consumer: Consumer, index: int) -> int:
    """Tell where a consumer is in a partition; those that were added later are read from their beginning."""
    return consumer.positions[index] if index < len(consumer.positions) else 0


def advance(topic: Topic, consumer: Consumer, found: Consumed, *, explicit: bool) -> Advance:
    """Say where a consumer is after a message. A partition that was asked for by name does not change the turn."""
    cursor = consumer.cursor if explicit else (found.partition + 1) % len(topic.partitions)
    return Advance(
        consumer_id=consumer.id,
        version=consumer.version,
        cursor=cursor,
        partition=found.partition,
        position=found.offset + 1,
    )


def moved(consumer: Consumer, step: Advance) -> Consumer:
    """Apply a step to what is known."""
    positions = [*consumer.positions, *[0] * (step.partition + 1 - len(consumer.positions))]
    positions[step.partition] = step.position
    return replace(consumer, version=step.version + 1, cursor=step.cursor, positions=tuple(positions))
