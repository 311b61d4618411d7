"""Single messages, on their way into partitions: those that arrive while a batch is under way share the next one.

A lane is one partition, as this manager writes to it: one batch at a time, as a producer of its own with sequences, so
that a batch whose answer was lost can be sent again and is stored once. The more messages come at once, the larger the
batches: load makes it more efficient.

Whatever happens to a batch, everybody whose message was in it is told, and the next batch goes in another epoch: it
does not depend on the fate of the one before, and a late copy of that one is refused from then on.
"""

import asyncio
import logging
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass, field
from typing import NamedTuple

from flotilla.records import HEADER_BYTES, encode
from flotilla.serving import request_ids
from flotilla.serving.errors import Refusal
from flotilla.serving.limits import InFlight
from flotilla_manager.model import Topic
from flotilla_manager.routing.gateway import Gateway

logger = logging.getLogger(__name__)

_RECORDS_MAX = 2048
_BYTES_MAX = 1 << 20
_IDLE_S = 600.0  # a lane that is not used is given up, long before its partition forgets it as a producer
_SWEEP_S = 60.0
_FORGOTTEN = "unknown_producer"  # a definite refusal: there were too many producers, and the partition let go of ours


class Waiting(NamedTuple):
    """A message, and who waits for its end."""

    value: bytes
    future: "asyncio.Future[int]"
    request_id: str | None = None


@dataclass(eq=False)
class Lane:
    """The messages that wait for one partition."""

    topic: Topic
    index: int
    producer_id: bytes
    epoch: int = 0
    sequence: int = 0
    waiting: list[Waiting] = field(default_factory=list)
    task: "asyncio.Task[None] | None" = None
    used_at: float = 0.0

    def take(self) -> list[Waiting]:
        """Take what goes into the next batch: in order, at least one, and not more than a batch should have."""
        bytes_max = min(_BYTES_MAX, self.topic.batch_bytes_max or _BYTES_MAX)
        size = count = 0
        for one in self.waiting[:_RECORDS_MAX]:
            size += len(one.value)
            if count and batch_bytes(count + 1, size) > bytes_max:
                break
            count += 1
        taken, self.waiting = self.waiting[:count], self.waiting[count:]
        return taken


class Lanes:
    """All lanes of a manager."""

    def __init__(
        self,
        gateway: Gateway,
        *,
        bytes_max: int,
        seconds: float,
        clock: Callable[[], float],
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self._gateway = gateway
        self._seconds = seconds
        self._clock = clock
        self._random_bytes = random_bytes
        self._lanes: dict[tuple[str, int], Lane] = {}
        self._swept_at = clock()
        self._loop = asyncio.get_running_loop()
        self.in_flight = InFlight(bytes_max)

    async def append(self, topic: Topic, index: int, value: bytes) -> int:
        """Append one message; return its offset. Raises Refusal."""
        with self.in_flight.hold(len(value)):
            lane = self._lane(topic, index)
            future: asyncio.Future[int] = self._loop.create_future()
            lane.waiting.append(Waiting(value, future, request_ids.current()))
            if lane.task is None:
                lane.task = self._loop.create_task(self._drive(lane), context=Context())  # nobody's in particular
            return await future

    def _lane(self, topic: Topic, index: int) -> Lane:
        now = self._clock()
        if now - self._swept_at >= _SWEEP_S:
            self._drop_idle(now)
        lane = self._lanes.get((topic.id, index))
        if lane is None:
            lane = Lane(topic, index, self._random_bytes(16))
            self._lanes[topic.id, index] = lane
        lane.topic, lane.used_at = topic, now  # its limits may have changed
        return lane

    def _drop_idle(self, now: float) -> None:
        self._swept_at = now
        for key in [key for key, lane in self._lanes.items() if lane.task is None and now - lane.used_at >= _IDLE_S]:
            del self._lanes[key]

    async def _drive(self, lane: Lane) -> None:
        """Send batch after batch until nothing waits; whatever happens, nobody waits for ever."""
        taken: list[Waiting] = []
        try:
            while lane.waiting:
                taken = lane.take()
                await self._carry(lane, taken)
        finally:
            lane.task = None
            for one in taken:  # they know already, unless this was cancelled
                _fail(one.future, Refusal("unknown_outcome", "the manager ends; the message may be stored or not"))
            for one in lane.waiting:
                _fail(one.future, Refusal("unavailable", "the manager ends; the message was not sent"))
            lane.waiting = []

    async def _carry(self, lane: Lane, taken: list[Waiting]) -> None:
        """Send one batch, and tell everybody how that ended. It goes by the id of its first message that has one."""
        request_ids.use(next(filter(None, (one.request_id for one in taken)), None))
        refusal: Refusal
        try:
            offset = await self._send(lane, [one.value for one in taken])
        except Refusal as error:
            if error.code == "too_large" and len(taken) > 1:  # the limit was lowered, and is not known here yet
                await self._carry(lane, taken[: len(taken) // 2])
                await self._carry(lane, taken[len(taken) // 2 :])
                return
            refusal = error
        except Exception:
            logger.exception("a batch for partition %d of topic %s failed", lane.index, lane.topic.name)
            refusal = Refusal("unknown_outcome", "the manager made a mistake; the message may be stored or not")
        else:
            for at, one in enumerate(taken):
                if not one.future.done():
                    one.future.set_result(offset + at)
            return
        for one in taken:
            _fail(one.future, refusal)

    async def _send(self, lane: Lane, values: list[bytes]) -> int:
        try:
            return await self._try(lane, values)
        except Refusal as refusal:
            if refusal.code != _FORGOTTEN:
                raise
        return await self._try(lane, values)  # as the producer that the lane has become

    async def _try(self, lane: Lane, values: list[bytes]) -> int:
        batch = encode(values, producer_id=lane.producer_id, producer_epoch=lane.epoch, base_sequence=lane.sequence)
        sent = False
        try:
            appended = await self._gateway.append(lane.topic, lane.index, batch, seconds=self._seconds)
            sent = True
        finally:
            if sent:
                lane.sequence += len(values)
            else:  # whatever happened to this batch, the next one does not depend on it
                lane.epoch, lane.sequence = lane.epoch + 1, 0
        return appended.base_offset


def batch_bytes(count: int, size: int) -> int:
    """Tell how large a batch of this many values is that have this many bytes together."""
    return HEADER_BYTES + _padded(4 * (count + 1)) + _padded(size)


def _padded(size: int) -> int:
    return -(-size // 8) * 8


def _fail(future: "asyncio.Future[int]", refusal: Refusal) -> None:
    if not future.done():
        future.set_exception(refusal)
        future.exception()  # whoever asked may have left
