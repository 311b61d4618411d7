"""Carries parcels to their partitions, on the loop: one request at a time for each, so that order holds.

A batch keeps its bytes and its sequence until its fate is known: whoever gets it twice recognises it. When it failed,
or nobody knows, the lane's epoch rises and its sequence starts again: partitions refuse what is of an older epoch, so
that a late copy of the batch cannot end up behind its successors.

Refusals that are about the sequence say that a partition remembers something else than we do: it forgot us after a
long silence, or lost what it had. If no copy of the batch can have been stored, it is sent again under a new epoch.
If one can, nobody knows any more, and that is what is said.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial

from flotilla.client.accumulating import Accumulator
from flotilla.client.deliveries import Delivery, Failure, call
from flotilla.client.engine import Engine
from flotilla.client.errors import DeliveryFailed, DeliveryUnknown, Refused, TopicMissing
from flotilla.client.parcels import Lane, Parcel, Topic
from flotilla.records import Compression

logger = logging.getLogger(__name__)

_RENEWALS_MAX = 2  # of the epoch, for one batch
_SEQUENCE = {"sequence_gap", "sequence_overlap", "sequence_reused", "unknown_producer"}
_REFRESH_S = 60.0  # what is known of a topic is looked up again, so that new partitions get records
_AGE_MAX = 0.1  # of the time for delivery: a parcel that is open for longer takes no more records
_TELL_S = 5.0  # between lines in the log about records that were not stored
_THREAD_BYTES = 64 << 10  # compressing more than this would hold up the loop


class Counts:
    """How the records of a producer ended, so far."""

    def __init__(self) -> None:
        self.batches = 0
        self.acknowledged = 0
        self.failed = 0
        self.unknown = 0

    def note(self, records: int, end: int | Failure) -> None:
        """Count records."""
        self.batches += 1
        if isinstance(end, int):
            self.acknowledged += records
        elif isinstance(end, DeliveryUnknown):
            self.unknown += records
        else:
            self.failed += records


class Complaints:
    """Tells the log of records that were not stored, and while there are many such batches, now and then.

    Deliveries tell of each record; this is for those who look at none.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._tell_at = 0.0
        self._untold = 0
        self._last = ""

    def note(self, parcel: Parcel, error: Failure) -> None:
        """Take note of a batch, and tell of it and of those before, if it is time."""
        topic, partition = parcel.fate.place
        self._untold += len(parcel)
        self._last = f"partition {partition} of '{topic}': {error}"
        if self._clock() >= self._tell_at:
            self.tell()

    def tell(self) -> None:
        """Tell of what was not told."""
        if self._untold:
            records = "1 record" if self._untold == 1 else f"{self._untold:,} records"
            logger.warning("%s did not get through, the last to %s", records, self._last)
            self._untold = 0
            self._tell_at = self._clock() + _TELL_S


class Carrier:
    """Takes parcels from lanes, and brings them to partitions."""

    def __init__(
        self,
        engine: Engine,
        accumulator: Accumulator,
        *,
        producer_id: bytes,
        delivery_s: float,
        on_delivery: Callable[[Delivery], object] | None,
    ) -> None:
        self._engine = engine
        self._accumulator = accumulator
        self._producer_id = producer_id
        self._delivery_s = delivery_s
        self._on_delivery = on_delivery
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[Lane, asyncio.Task[None]] = {}
        self._timers: dict[Lane, asyncio.TimerHandle] = {}
        self._seals: dict[Lane, asyncio.TimerHandle] = {}
        self._looked_up: dict[Topic, float] = {}
        self._complaints = Complaints(engine.clock)
        self.counts = Counts()

    def attend(self, lane: Lane) -> None:
        """Look after a lane, unless somebody does."""
        timer = self._timers.pop(lane, None)
        if timer is not None:
            timer.cancel()
        if lane not in self._tasks:
            self._tasks[lane] = self._loop.create_task(self._empty(lane))

    async def stop(self) -> None:
        """Give up on everything that is not settled."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks.clear()  # one that had not begun could not do so
        self._complaints.tell()
        for parcel in self._accumulator.pending():
            self._settle(parcel, DeliveryFailed("the producer was closed before the records were sent"))

    async def _empty(self, lane: Lane) -> None:
        """Carry a lane's parcels, one after the other, until there is none."""
        self._seal_later(lane)
        try:
            while True:
                found = self._accumulator.take(lane)
                if isinstance(found, Parcel):
                    await self._carry(lane, found)
                    continue
                if found is not None:
                    self._timers[lane] = self._loop.call_later(found, self.attend, lane)
                return
        finally:
            self._tasks.pop(lane, None)
            self._seals.pop(lane).cancel()

    def _seal_later(self, lane: Lane) -> None:
        self._seals[lane] = self._loop.call_later(self._delivery_s * _AGE_MAX, self._seal, lane)

    def _seal(self, lane: Lane) -> None:
        """Have later records travel apart. All of a parcel have the time that its first one has left."""
        self._accumulator.seal(lane)
        self._seal_later(lane)

    async def _carry(self, lane: Lane, parcel: Parcel) -> None:
        """Bring a parcel to its partition, and settle it, whatever happens."""
        end: int | Failure = DeliveryUnknown("the producer was closed before there was an answer")
        try:
            end = await self._append(lane, parcel)
        except (DeliveryFailed, DeliveryUnknown) as error:
            end = error
            if isinstance(error.__cause__, TopicMissing):
                self._accumulator.drop(lane.topic)
            self._complaints.note(parcel, error)
        except Exception as error:
            end = DeliveryUnknown(f"the client made a mistake: {error!r}")
            logger.exception("a mistake of ours: %d records for '%s', partition %d", len(parcel), *parcel.fate.place)
        finally:
            if isinstance(end, int):
                lane.sequence += len(parcel)
            else:
                _renew(lane)
            self._settle(parcel, end)
        self._learn(lane.topic)

    async def _append(self, lane: Lane, parcel: Parcel) -> int:
        left_s = parcel.opened_at + self._delivery_s - time.monotonic()
        if lane.topic.gone is not None:
            raise DeliveryFailed(f"the records were not stored: {lane.topic.gone}") from lane.topic.gone
        if left_s <= 0:
            raise DeliveryFailed(f"the records could not be sent within {self._delivery_s:g} s")
        deadline = self._engine.clock() + left_s
        for renewals in range(_RENEWALS_MAX + 1):
            batch = await self._encode(lane, parcel)
            try:
                found = await self._engine.router.append(lane.topic.info, lane.index, batch, deadline=deadline)
            except DeliveryFailed as error:
                if renewals == _RENEWALS_MAX or not is_renewable(error):
                    raise
                _renew(lane)
            else:
                return found.base_offset
        raise AssertionError("unreachable")

    async def _encode(self, lane: Lane, parcel: Parcel) -> bytearray:
        compression = lane.topic.compression
        if compression is Compression.NONE or parcel.bytes < _THREAD_BYTES:
            return parcel.encode(self._producer_id, compression)
        return await asyncio.to_thread(parcel.encode, self._producer_id, compression)

    def _settle(self, parcel: Parcel, end: int | Failure) -> None:
        self.counts.note(len(parcel), end)
        self._accumulator.settle(parcel, end)
        if self._on_delivery is not None:
            for index in range(len(parcel)):
                call(partial(self._on_delivery, Delivery(parcel.fate, index)))

    def _learn(self, topic: Topic) -> None:
        """Take over what became known of a topic meanwhile, and have it looked up now and then."""
        known = self._engine.cluster.topic(topic.info.name)
        if known is not None and known is not topic.info and topic.gone is None:
            self._accumulator.learn(known)
        now = self._engine.clock()
        if now - self._looked_up.setdefault(topic, now) > _REFRESH_S:
            self._looked_up[topic] = now
            self._engine.cluster.refresh_soon(topic.info.name)
        if topic.gone is not None:
            self._looked_up.pop(topic, None)


def _renew(lane: Lane) -> None:
    """Begin anew with a partition: what is of an older epoch is refused from now on."""
    lane.epoch += 1
    lane.sequence = 0


def is_renewable(error: DeliveryFailed) -> bool:
    """Tell whether a batch that was refused, and of which no copy can be stored, may be sent under a new epoch."""
    return isinstance(error.__cause__, Refused) and error.__cause__.code in _SEQUENCE
