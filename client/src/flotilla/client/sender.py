"""The sender of a producer: sends batches to partitions on the event loop, one request at a time per partition.

One request at a time keeps the records of a partition in order. A batch keeps its bytes and its sequence until its
outcome is known, so that a partition recognises duplicates. After a failed or unknown outcome, the epoch of the queue
is increased and its sequence starts at 0: partitions reject batches of older epochs, so a delayed copy of the batch
cannot be stored after its successors.

Sequence errors mean that the partition and the producer disagree on the producer's state: the partition expired it
after a long inactivity, or lost it. If no copy of the batch can have been stored, it is sent again with a new epoch.
Otherwise the outcome is unknown.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial

from flotilla.client.accumulator import Accumulator
from flotilla.client.deliveries import Delivery, Failure, call
from flotilla.client.engine import Engine
from flotilla.client.errors import DeliveryFailed, DeliveryUnknown, Refused, TopicMissing
from flotilla.client.producer_batches import PartitionQueue, ProducerBatch, TopicQueues
from flotilla.records import Compression

logger = logging.getLogger(__name__)

_EPOCH_BUMPS_MAX = 2  # per batch
_SEQUENCE_ERRORS = {"sequence_gap", "sequence_overlap", "sequence_reused", "unknown_producer"}
_REFRESH_S = 60.0  # interval of metadata refreshes of a topic, so that new partitions get records
_OPEN_SHARE_MAX = 0.1  # share of delivery_s: a batch that is open for longer gets no more records
_LOG_S = 5.0  # interval of log lines about failed deliveries
_THREAD_BYTES = 64 << 10  # larger batches are compressed in a thread, so that they do not block the event loop


class DeliveryCounts:
    """Records of a producer by outcome, and batches."""

    def __init__(self) -> None:
        self.batches = 0
        self.acknowledged = 0
        self.failed = 0
        self.unknown = 0

    def note(self, records: int, end: int | Failure) -> None:
        """Count the records of a batch."""
        self.batches += 1
        if isinstance(end, int):
            self.acknowledged += records
        elif isinstance(end, DeliveryUnknown):
            self.unknown += records
        else:
            self.failed += records


class FailureLog:
    """Logs failed and unknown deliveries, at most one line per interval, for programs that check no delivery."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._log_at = 0.0
        self._unlogged = 0
        self._last = ""

    def note(self, batch: ProducerBatch, error: Failure) -> None:
        """Count a batch, and write the log line if it is due."""
        topic, partition = batch.outcome.topic_partition
        self._unlogged += len(batch)
        self._last = f"last_partition={topic}-{partition} last_error={str(error)!r}"
        if self._clock() >= self._log_at:
            self.write()

    def write(self) -> None:
        """Write the log line for everything that was not logged yet."""
        if self._unlogged:
            logger.warning("deliveries failed or unknown records=%d %s", self._unlogged, self._last)
            self._unlogged = 0
            self._log_at = self._clock() + _LOG_S


class Sender:
    """Takes batches from the accumulator, and sends them to partitions."""

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
        self._tasks: dict[PartitionQueue, asyncio.Task[None]] = {}
        self._timers: dict[PartitionQueue, asyncio.TimerHandle] = {}
        self._close_timers: dict[PartitionQueue, asyncio.TimerHandle] = {}
        self._refreshed_at: dict[TopicQueues, float] = {}
        self._failures = FailureLog(engine.clock)
        self.counts = DeliveryCounts()

    def schedule(self, queue: PartitionQueue) -> None:
        """Start to send the batches of a queue, unless a task does."""
        timer = self._timers.pop(queue, None)
        if timer is not None:
            timer.cancel()
        if queue not in self._tasks:
            self._tasks[queue] = self._loop.create_task(self._drain(queue))

    async def stop(self) -> None:
        """Cancel all requests, and settle all batches without an outcome as failed or unknown."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks.clear()  # a task that was cancelled before it started has not removed itself
        for batch in self._accumulator.pending():
            self._settle(batch, DeliveryFailed("the producer was closed before the records were sent"))
        self._failures.write()

    async def _drain(self, queue: PartitionQueue) -> None:
        """Send the batches of a queue, one after the other, until it is empty or lingers."""
        self._schedule_close(queue)
        try:
            while True:
                found = self._accumulator.take(queue)
                if isinstance(found, ProducerBatch):
                    await self._send(queue, found)
                    continue
                if found is not None:
                    self._timers[queue] = self._loop.call_later(found, self.schedule, queue)
                return
        finally:
            self._tasks.pop(queue, None)
            self._close_timers.pop(queue).cancel()

    def _schedule_close(self, queue: PartitionQueue) -> None:
        self._close_timers[queue] = self._loop.call_later(
            self._delivery_s * _OPEN_SHARE_MAX, self._close_open_batch, queue
        )

    def _close_open_batch(self, queue: PartitionQueue) -> None:
        """Close the open batch: all records of a batch share the deadline of the first."""
        self._accumulator.close_open_batch(queue)
        self._schedule_close(queue)

    async def _send(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Send a batch and settle it, whatever happens."""
        end: int | Failure = DeliveryUnknown("the producer was closed before the server responded")
        try:
            end = await self._append(queue, batch)
        except (DeliveryFailed, DeliveryUnknown) as error:
            end = error
            if isinstance(error.__cause__, TopicMissing):
                self._accumulator.remove_topic(queue.topic)
        except Exception as error:
            end = DeliveryUnknown(f"internal error of the client: {error!r}")
            logger.exception(
                "internal error of the producer records=%d partition=%s-%d",
                len(batch),
                *batch.outcome.topic_partition,
            )
        finally:
            if isinstance(end, int):
                queue.sequence += len(batch)
            else:
                _bump_epoch(queue)
            self._settle(batch, end)
        self._update_metadata(queue.topic)

    async def _append(self, queue: PartitionQueue, batch: ProducerBatch) -> int:
        left_s = batch.opened_at + self._delivery_s - time.monotonic()
        if queue.topic.deleted_error is not None:
            raise DeliveryFailed(
                f"the records were not stored: {queue.topic.deleted_error}"
            ) from queue.topic.deleted_error
        if left_s <= 0:
            raise DeliveryFailed(f"the records could not be sent within delivery_s ({self._delivery_s:g} s)")
        deadline = self._engine.clock() + left_s
        for bumps in range(_EPOCH_BUMPS_MAX + 1):
            encoded = await self._encode(queue, batch)
            try:
                found = await self._engine.router.append(queue.topic.info, queue.index, encoded, deadline=deadline)
            except DeliveryFailed as error:
                if bumps == _EPOCH_BUMPS_MAX or not is_retriable_with_new_epoch(error):
                    raise
                _bump_epoch(queue)
            else:
                return found.base_offset
        raise AssertionError("unreachable")

    async def _encode(self, queue: PartitionQueue, batch: ProducerBatch) -> bytearray:
        compression = queue.topic.compression
        if compression is Compression.NONE or batch.bytes < _THREAD_BYTES:
            return batch.encode(self._producer_id, compression)
        return await asyncio.to_thread(batch.encode, self._producer_id, compression)

    def _settle(self, batch: ProducerBatch, end: int | Failure) -> None:
        self.counts.note(len(batch), end)
        if not isinstance(end, int):
            self._failures.note(batch, end)
        self._accumulator.settle(batch, end)
        if self._on_delivery is not None:
            for index in range(len(batch)):
                call(partial(self._on_delivery, Delivery(batch.outcome, index)))

    def _update_metadata(self, topic: TopicQueues) -> None:
        """Pass newer metadata of a topic to the accumulator, and refresh it periodically."""
        known = self._engine.cluster.topic(topic.info.name)
        if known is not None and known is not topic.info and topic.deleted_error is None:
            self._accumulator.update_topic(known)
        now = self._engine.clock()
        if now - self._refreshed_at.setdefault(topic, now) > _REFRESH_S:
            self._refreshed_at[topic] = now
            self._engine.cluster.refresh_in_background(topic.info.name)
        if topic.deleted_error is not None:
            self._refreshed_at.pop(topic, None)


def _bump_epoch(queue: PartitionQueue) -> None:
    """Start a new epoch: the partition rejects batches of older ones from now on."""
    queue.epoch += 1
    queue.sequence = 0


def is_retriable_with_new_epoch(error: DeliveryFailed) -> bool:
    """Return whether a batch that was rejected and not stored may be sent again with a new epoch."""
    return isinstance(error.__cause__, Refused) and error.__cause__.code in _SEQUENCE_ERRORS
