"""`Consumer`: the blocking consumer. Fetches run in the background, on the event loop of the client."""

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from types import TracebackType
from typing import Self, TypeVar

from flotilla.client.async_consumer import AsyncConsumer, Until
from flotilla.client.consumer_core import CLOSE_S
from flotilla.client.partition_fetch import BatchCursor
from flotilla.client.positions import ConsumerBatch, ConsumerRecord, Start, TopicPartition
from flotilla.client.runner import Runner

T = TypeVar("T")


class Consumer:
    """Reads records of topics, each partition in offset order. Use it from one thread at a time; `stop` from any.

    for record in client.consumer("orders", start="earliest"):
        print(record.partition, record.offset, record.key, record.value)
    """

    def __init__(self, runner: Runner, consumer: AsyncConsumer) -> None:
        self._runner = runner
        self._consumer = consumer
        self._core = consumer._core
        runner.run(consumer.start_now())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._runner.run(self._core.close(is_last_processed=kind is None))

    def close(self, timeout_s: float = CLOSE_S) -> None:
        """Close the consumer; in a group with automatic commits, commit the processed records and leave."""
        self._runner.run(self._core.close(timeout_s))

    # -- records --------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[ConsumerRecord]:
        return self._records(None, None)

    def records(
        self, *, timeout_s: float | None = None, max_records: int | None = None, until: Until | None = None
    ) -> Iterator[ConsumerRecord]:
        """Iterate over records; end after `timeout_s` without a record, after `max_records`, or on `stop`.

        `until="end"` ends at the current end of the partitions. Records that are appended meanwhile may be included.
        """
        return islice(self._records(timeout_s, until), max_records)

    def batches(self, *, timeout_s: float | None = None, until: Until | None = None) -> Iterator[ConsumerBatch]:
        """Iterate over batches, which is faster than records; it ends as `records` does."""
        is_over = self._runner.run(self._consumer._make_until(until))
        while (cursor := self._next(timeout_s, is_over)) is not None:
            if (batch := cursor.rest()) is not None:
                yield batch

    def poll(self, timeout_s: float | None = None) -> ConsumerRecord | None:
        """Return the next record; None after `timeout_s`, or if `stop` was called."""
        while (cursor := self._next(timeout_s)) is not None:
            for record in cursor.records():
                return record
        return None

    def stop(self) -> None:
        """End the current iteration, or else the next one, before its next record. Thread-safe."""
        self._core.stop()

    def _records(self, timeout_s: float | None, until: Until | None) -> Iterator[ConsumerRecord]:
        is_over = self._runner.run(self._consumer._make_until(until))
        while (cursor := self._next(timeout_s, is_over)) is not None:
            yield from cursor.records()

    def _next(self, timeout_s: float | None, is_over: Callable[[], bool] = lambda: False) -> BatchCursor | None:
        core, runner = self._core, self._runner
        runner.check()
        deadline = None if timeout_s is None else core.engine.clock() + timeout_s
        while not core.take_stop() and not is_over():
            found = core.poll()
            if isinstance(found, BatchCursor):
                return found
            if found is not None:
                try:
                    self._consumer._call_back(found)
                finally:
                    runner.run(core.complete_change(found))
            elif not runner.run(core.wait(deadline)):
                break
        core.mark_processed()
        return None

    # -- positions ------------------------------------------------------------------------------------------

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that this consumer reads."""
        return self._call(lambda: self._consumer.assignment)

    def position(self, topic: str, partition: int) -> int:
        """Return the offset of the next record. Raises ConfigInvalid if the partition is not assigned."""
        return self._call(lambda: self._consumer.position(topic, partition))

    def seek(self, topic: str, partition: int, to: int | Start) -> None:
        """Continue at an offset, at `earliest`, at `latest`, or at a time (a datetime with time zone).

        Raises ConfigInvalid, Refused, ServerUnreachable.
        """
        self._runner.run(self._consumer.seek(topic, partition, to))

    def lag(self) -> dict[TopicPartition, int]:
        """Return the number of unread records of each partition. Raises Refused, ServerUnreachable."""
        return self._runner.run(self._consumer.lag())

    def pause(self, *partitions: TopicPartition) -> None:
        """Stop reading some partitions, or all, until `resume`. Prefetched records are dropped and fetched again."""
        self._call(lambda: self._consumer.pause(*partitions))

    def resume(self, *partitions: TopicPartition) -> None:
        """Continue with paused partitions: these, or all."""
        self._call(lambda: self._consumer.resume(*partitions))

    def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Commit the offsets of all returned records, or the given next offsets to read.

        Raises ConfigInvalid without a group, MemberGone if another member owns the partitions, ServerUnreachable.
        """
        self._runner.run(self._consumer.commit(offsets))

    def _call(self, function: Callable[[], T]) -> T:
        """Call a function on the event loop."""

        async def call() -> T:
            return function()

        return self._runner.run(call())
