"""The record accumulator: buffers records per partition, in batches, up to a limit on the bytes of all of them.

Any thread adds records; the event loop takes batches. A lock separates them, and is held for a few list operations at a
time. The event loop is woken for a queue only when the queue gets a record while it is not scheduled. While a request
for the partition is in flight, records accumulate; the sender takes them when the request is done.

Invariants:

- Records of a queue are sent in the order in which they were added.
- A queue with records is scheduled: the event loop was woken for it, and has not found it empty since.
- `bytes` is the size of all records that were added and have no outcome yet. It exceeds the limit only for a single
  record that is larger than the limit.
"""

import os
import threading
import weakref
from collections.abc import Callable

from flotilla.client.bulk_send import BulkSend, PartitionRecords
from flotilla.client.cluster import TopicInfo
from flotilla.client.deliveries import Delivery, Failure, Outcome, call
from flotilla.client.errors import ClientForked, FlotillaError, TopicMissing
from flotilla.client.partitioning import partition_of
from flotilla.client.producer_batches import (
    BATCH_OVERHEAD_BYTES,
    RECORD_OVERHEAD_BYTES,
    PartitionQueue,
    ProducerBatch,
    TopicQueues,
    check_bytes,
    check_time,
    measure_headers,
)
from flotilla.records import Compression, Headers


class TopicUnknown(Exception):
    """The metadata of the topic is not loaded: load it, and try again. Internal: never raised to users."""


class Accumulator:
    """Records that wait to be sent, in batches."""

    def __init__(
        self,
        *,
        batch_bytes: int,
        buffer_bytes: int,
        linger_s: float,
        compression: Compression | None,
        wake: Callable[[PartitionQueue], object],
        make_outcome: Callable[[str, int], Outcome],
        clock: Callable[[], float],
    ) -> None:
        """Create an empty accumulator. `wake` and `clock` are called from any thread."""
        self._batch_bytes = batch_bytes
        self._linger_s = linger_s
        self._compression = compression
        self._wake = wake
        self._make_outcome = make_outcome
        self._clock = clock
        self._lock = threading.Lock()
        self._topics: dict[str, TopicQueues] = {}
        self._pending: dict[ProducerBatch, None] = {}
        self._room_callbacks: list[Callable[[], object]] = []
        self._flushes = 0
        self.bytes = 0
        self.bytes_max = buffer_bytes
        self.releases = 0  # number of times that buffer space was released
        self.closed_error: Callable[[], FlotillaError] | None = None  # set by `close`: the error of every later add
        _accumulators.add(self)

    # -- adding records, from any thread -------------------------------------------------------------------

    def add(  # noqa: C901, PLR0912 - runs for each record, where a call costs as much as all the rest
        self,
        name: str,
        value: bytes,
        key: bytes | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> Delivery | None:
        """Add a record; return None if the buffer is full. Raises RecordInvalid, TopicUnknown, or the error of `close`.

        The common case is inlined; rare cases are in functions of their own.
        """
        if self.closed_error is not None:
            raise self.closed_error()
        if type(value) is not bytes:
            value = check_bytes(value, "value")
        size = len(value) + RECORD_OVERHEAD_BYTES
        if key is not None:
            if type(key) is not bytes:
                key = check_bytes(key, "key")
            size += len(key)
        if headers:
            size += measure_headers(headers)
        if timestamp_ms is not None:
            check_time(timestamp_ms)
        with self._lock:
            topic = self._topics.get(name)
            if topic is None:
                raise TopicUnknown
            if self.bytes + size > self.bytes_max and self.bytes:
                if size + BATCH_OVERHEAD_BYTES > topic.bytes_limit:
                    topic.check_alone(value, key, headers, timestamp_ms)
                return None
            if partition is not None:
                queue = topic.queue(partition)
            elif key is not None:
                queue = topic.queues[partition_of(key, len(topic.queues))]
            else:
                queue = topic.queues[topic.sticky_partition]
            batch = queue.open
            if (
                batch is None
                or batch.bytes + size > topic.bytes_max
                or (timestamp_ms is None) is not (batch.timestamps_ms is None)
            ):
                if size + BATCH_OVERHEAD_BYTES > topic.bytes_limit:
                    topic.check_alone(value, key, headers, timestamp_ms)
                is_sticky = key is None and partition is None
                batch = self._open(topic, None if is_sticky else queue, size, is_timed=timestamp_ms is not None)
                queue = batch.queue
            index = len(batch.values)
            if headers or timestamp_ms is not None or batch.headers is not None:
                _append(batch, value, key, headers, timestamp_ms)
            else:
                batch.values.append(value)
                keys = batch.keys
                if key is not None and keys is None:
                    batch.keys = keys = [None] * index
                if keys is not None:
                    keys.append(key)
            batch.bytes += size
            self.bytes += size
            was_idle = not queue.is_scheduled
            queue.is_scheduled = True
        if was_idle:
            self._wake(queue)
        return Delivery(batch.outcome, index)

    def add_many(self, name: str, records: BulkSend) -> bool:
        """Add as many records as fit the buffer; return whether these are all. Raises as `add` does."""
        if self.closed_error is not None:
            raise self.closed_error()
        while True:
            with self._lock:
                topic = self._topics.get(name)
                if topic is None:
                    raise TopicUnknown
                records.plan(topic)
                if not records.groups:
                    return True
                queue = self._move(topic, records, records.groups[0])
                if queue is None:
                    return False
                was_idle = not queue.is_scheduled
                queue.is_scheduled = True
            if was_idle:
                self._wake(queue)

    def _move(self, topic: TopicQueues, records: BulkSend, group: PartitionRecords) -> PartitionQueue | None:
        """Move as many records as fit into one batch, and return its queue; None if the buffer is full."""
        room = self.bytes_max - self.bytes if self.bytes else max(self.bytes_max, group.next_bytes)
        if group.next_bytes > room:
            return None
        queue = None if group.partition is None else topic.queue(group.partition)
        batch = self._open(topic, queue, group.next_bytes, is_timed=group.timestamps_ms is not None)
        count = max(1, group.count_fitting(min(room, topic.bytes_max - batch.bytes)))
        self.bytes += group.move(batch, count)
        records.note_added(batch, group, count)
        return batch.queue

    def _open(self, topic: TopicQueues, queue: PartitionQueue | None, size: int, *, is_timed: bool) -> ProducerBatch:
        """Return the open batch with space for a record, or a new one; without a queue, of the sticky partition."""
        while True:
            chosen = topic.queues[topic.sticky_partition] if queue is None else queue
            batch = chosen.open
            if batch is None:
                outcome = self._make_outcome(topic.info.name, chosen.index)
                chosen.open = ProducerBatch(chosen, outcome, self._clock(), is_timed=is_timed)
                self._pending[chosen.open] = None
                return chosen.open
            if batch.bytes + size <= topic.bytes_max and is_timed is (batch.timestamps_ms is not None):
                return batch
            chosen.closed.append(batch)
            self._close(chosen)
            if chosen.is_lingering:
                chosen.is_lingering = False
                self._wake(chosen)

    def _close(self, queue: PartitionQueue) -> None:
        queue.open = None
        if queue.topic.sticky_partition == queue.index:
            queue.topic.advance_sticky_partition()

    def call_when_room(self, releases: int, callback: Callable[[], object]) -> None:
        """Call back when buffer space is released after the given count of `releases`; at once if that has happened."""
        with self._lock:
            if self.releases == releases and self.closed_error is None:
                self._room_callbacks.append(callback)
                return
        call(callback)

    # -- taking batches, on the event loop -----------------------------------------------------------------

    def take(self, queue: PartitionQueue) -> ProducerBatch | float | None:
        """Take the next batch of a queue. Returns the remaining linger time if none is due, and None if it is empty.

        An empty queue is no longer scheduled.
        """
        with self._lock:
            queue.is_lingering = False
            if queue.closed:
                return queue.closed.popleft()
            batch = queue.open
            if batch is None:
                queue.is_scheduled = False
                return None
            if self._linger_s and not self._flushes:
                left_s = batch.opened_at + self._linger_s - self._clock()
                if left_s > 0:
                    queue.is_lingering = True
                    return left_s
            self._close(queue)
            return batch

    def close_open_batch(self, queue: PartitionQueue) -> None:
        """Close the open batch of a queue: later records go into another one."""
        with self._lock:
            if queue.open is not None:
                queue.closed.append(queue.open)
                self._close(queue)

    def settle(self, batch: ProducerBatch, end: int | Failure) -> None:
        """Set the outcome of a batch, and release its buffer space."""
        with self._lock:
            self.bytes -= batch.bytes - BATCH_OVERHEAD_BYTES
            self.releases += 1
            self._pending.pop(batch, None)
            callbacks, self._room_callbacks = self._room_callbacks, []
        batch.outcome.settle(end)
        for callback in callbacks:
            call(callback)

    def update_topic(self, info: TopicInfo) -> None:
        """Update the metadata of a topic. A topic that was recreated has another id: records for the old one fail."""
        with self._lock:
            known = self._topics.get(info.name)
            if known is not None and known.info.id == info.id:
                known.update(info)
                return
            if known is not None:
                known.deleted_error = _deleted_error(info.name)
            self._topics[info.name] = TopicQueues(info, self._batch_bytes, self._compression)

    def remove_topic(self, topic: TopicQueues) -> None:
        """Remove a deleted topic: its buffered records fail."""
        with self._lock:
            topic.deleted_error = topic.deleted_error or _deleted_error(topic.info.name)
            if self._topics.get(topic.info.name) is topic:
                del self._topics[topic.info.name]

    def begin_flush(self) -> list[ProducerBatch]:
        """Suspend lingering until `end_flush`, and return the batches without an outcome."""
        with self._lock:
            self._flushes += 1
            queues = {batch.queue for batch in self._pending if batch.queue.is_lingering}
            for queue in queues:
                queue.is_lingering = False
            pending = list(self._pending)
        for queue in queues:
            self._wake(queue)
        return pending

    def end_flush(self) -> None:
        """Resume lingering after `begin_flush`."""
        with self._lock:
            self._flushes -= 1

    def close(self, error: Callable[[], FlotillaError]) -> None:
        """Reject records from now on with this error, also those of callers that wait for buffer space."""
        with self._lock:
            self.closed_error = self.closed_error or error
            callbacks, self._room_callbacks = self._room_callbacks, []
        for callback in callbacks:
            call(callback)

    def pending(self) -> list[ProducerBatch]:
        """Return the batches without an outcome, in the order of their creation."""
        with self._lock:
            return list(self._pending)


def _append(batch: ProducerBatch, value: bytes, key: bytes | None, headers: Headers, timestamp_ms: int | None) -> None:
    batch.extend(
        (value,),
        None if key is None else (key,),
        (headers,) if headers else None,
        None if timestamp_ms is None else (timestamp_ms,),
    )


def _deleted_error(name: str) -> TopicMissing:
    return TopicMissing(f"topic '{name}' was deleted", "unknown_partition", {})


_accumulators: weakref.WeakSet[Accumulator] = weakref.WeakSet()


def _after_fork() -> None:
    """Close the parent's accumulators in the child, without their locks: another thread may have held them."""
    for accumulator in list(_accumulators):
        accumulator.closed_error = ClientForked


os.register_at_fork(after_in_child=_after_fork)
