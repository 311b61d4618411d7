"""Single messages, on their way into partitions: those that arrive while a batch is under way share the next one.

A lane is one partition, as this manager writes to it: one batch at a time, as a producer of its own with sequences, so
that a batch whose answer was lost can be sent again and is stored once. The more messages come at once, the larger the
batches: load makes it more efficient.
"""

import asyncio
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass, field

from flotilla.records import encode
from flotilla.serving.errors import Refusal
from flotilla.serving.limits import InFlight
from flotilla_manager.model import Topic
from flotilla_manager.routing.gateway import Gateway

_RECORDS_MAX = 2048
_BYTES_MAX = 1 << 20
_IDLE_S = 600.0  # a lane that is not used is given up; the next one is another producer


@dataclass(eq=False)
class Lane:
    """The messages that wait for one partition."""

    topic: Topic
    index: int
    producer_id: bytes
    epoch: int = 0
    sequence: int = 0
    waiting: list[tuple[bytes, "asyncio.Future[int]"]] = field(default_factory=list)
    task: "asyncio.Task[None] | None" = None
    used_at: float = 0.0

    def take(self) -> list[tuple[bytes, "asyncio.Future[int]"]]:
        """Take what goes into the next batch: in order, at least one, and not more than a batch should have."""
        size = count = 0
        for value, _ in self.waiting[:_RECORDS_MAX]:
            size += len(value)
            if count and size > _BYTES_MAX:
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
        self._loop = asyncio.get_running_loop()
        self.in_flight = InFlight(bytes_max)

    async def append(self, topic: Topic, index: int, value: bytes) -> int:
        """Append one message; return its offset. Raises Refusal."""
        with self.in_flight.hold(len(value)):
            lane = self._lane(topic, index)
            future: asyncio.Future[int] = self._loop.create_future()
            lane.waiting.append((value, future))
            if lane.task is None:
                lane.task = self._loop.create_task(self._drive(lane), context=Context())  # nobody's in particular
            return await asyncio.shield(future)  # a client that leaves does not take others' batch with it

    def _lane(self, topic: Topic, index: int) -> Lane:
        lane = self._lanes.get((topic.id, index))
        if lane is None:
            self._drop_idle()
            lane = Lane(topic, index, self._random_bytes(16))
            self._lanes[topic.id, index] = lane
        lane.used_at = self._clock()
        return lane

    def _drop_idle(self) -> None:
        before = self._clock() - _IDLE_S
        for key in [key for key, lane in self._lanes.items() if lane.task is None and lane.used_at < before]:
            del self._lanes[key]

    async def _drive(self, lane: Lane) -> None:
        """Send batch after batch until nothing waits."""
        while lane.waiting:
            taken = lane.take()
            try:
                offset = await self._send(lane, [value for value, _ in taken])
            except Refusal as refusal:
                for _, future in taken:
                    _fail(future, refusal)
            except BaseException as error:
                for _, future in taken:
                    _fail(future, Refusal("unknown_outcome", f"the message may be stored or not: {error}"))
                lane.task = None
                raise
            else:
                for at, (_, future) in enumerate(taken):
                    if not future.done():
                        future.set_result(offset + at)
        lane.task = None

    async def _send(self, lane: Lane, values: list[bytes]) -> int:
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


def _fail(future: "asyncio.Future[int]", refusal: Refusal) -> None:
    if not future.done():
        future.set_exception(refusal)
        future.exception()  # whoever asked may have left
