"""`Consumer`: reads topics in the thread of its user. Fetching goes on behind it, on the loop of its client."""

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from types import TracebackType
from typing import Self, TypeVar

from flotilla.client.async_consumer import AsyncConsumer, Until
from flotilla.client.consuming import CLOSE_S
from flotilla.client.lanes import Chunk
from flotilla.client.positions import ConsumerBatch, ConsumerRecord, Place, Start
from flotilla.client.runner import Runner

T = TypeVar("T")


class Consumer:
    """Reads records of topics, in the order of each partition. For one thread at a time; `stop` is for any.

    for record in client.consumer("orders", start="earliest"):
        print(record.partition, record.offset, record.key, record.value)
    """

    def __init__(self, runner: Runner, consumer: AsyncConsumer) -> None:
        self._runner = runner
        self._consumer = consumer
        self._core = consumer.core
        runner.run(consumer.start_now())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._runner.run(self._core.close(is_finished=kind is None))

    def close(self, timeout_s: float = CLOSE_S) -> None:
        """End. With a group, and unless commits are made by hand, what was handed out is committed."""
        self._runner.run(self._core.close(timeout_s))

    # -- records --------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[ConsumerRecord]:
        return self._records(None, None)

    def records(
        self, *, timeout_s: float | None = None, max_records: int | None = None, until: Until | None = None
    ) -> Iterator[ConsumerRecord]:
        """Iterate over records until there was none for `timeout_s`, or there were `max_records`, or `stop` is called.

        `until="end"` ends with what is there now; a record that comes meanwhile may be among it.
        """
        return islice(self._records(timeout_s, until), max_records)

    def batches(self, *, timeout_s: float | None = None, until: Until | None = None) -> Iterator[ConsumerBatch]:
        """Iterate over batches, which is the fast way; it ends as `records` does."""
        is_over = self._runner.run(self._consumer.make_until(until))
        while (chunk := self._next(timeout_s, is_over)) is not None:
            if (batch := chunk.rest()) is not None:
                yield batch

    def poll(self, timeout_s: float | None = None) -> ConsumerRecord | None:
        """Return the next record; None if there is none in time, or `stop` was called."""
        while (chunk := self._next(timeout_s)) is not None:
            for record in chunk.records():
                return record
        return None

    def stop(self) -> None:
        """End the iteration that is under way, or else the next one, before its next record. From any thread."""
        self._core.stop()

    def _records(self, timeout_s: float | None, until: Until | None) -> Iterator[ConsumerRecord]:
        is_over = self._runner.run(self._consumer.make_until(until))
        while (chunk := self._next(timeout_s, is_over)) is not None:
            yield from chunk.records()

    def _next(self, timeout_s: float | None, is_over: Callable[[], bool] = lambda: False) -> Chunk | None:
        core, runner = self._core, self._runner
        runner.check()
        deadline = None if timeout_s is None else core.engine.clock() + timeout_s
        while not core.take_stop() and not is_over():
            found = core.ask()
            if isinstance(found, Chunk):
                return found
            if found is not None:
                try:
                    self._consumer.call_back(found)
                finally:
                    runner.run(core.settle(found))
            elif not runner.run(core.wait(deadline)):
                break
        core.finish()
        return None

    # -- positions ------------------------------------------------------------------------------------------

    @property
    def assignment(self) -> list[Place]:
        """The partitions that it reads."""
        return self._call(lambda: self._consumer.assignment)

    def position(self, topic: str, partition: int) -> int:
        """Tell the offset that is handed out next. Raises ConfigInvalid if the partition is not with this consumer."""
        return self._call(lambda: self._consumer.position(topic, partition))

    def seek(self, topic: str, partition: int, to: int | Start) -> None:
        """Go on at an offset, at `earliest`, at `latest`, or at a time (a datetime).

        Raises ConfigInvalid, Refused, ServerUnreachable.
        """
        self._runner.run(self._consumer.seek(topic, partition, to))

    def lag(self) -> dict[Place, int]:
        """Ask how many records of each partition are yet to be handed out. Raises Refused, ServerUnreachable."""
        return self._runner.run(self._consumer.lag())

    def pause(self, *places: Place) -> None:
        """Hand nothing out of some partitions, or of all, until `resume`. What was fetched ahead is fetched again."""
        self._call(lambda: self._consumer.pause(*places))

    def resume(self, *places: Place) -> None:
        """Go on with partitions that are paused."""
        self._call(lambda: self._consumer.resume(*places))

    def commit(self, offsets: Mapping[Place, int] | None = None) -> None:
        """Commit all that was handed out, or the next offsets to read that are given.

        Raises ConfigInvalid without a group, MemberGone if the partitions are somebody else's, ServerUnreachable.
        """
        self._runner.run(self._consumer.commit(offsets))

    def _call(self, function: Callable[[], T]) -> T:
        """Call something on the loop."""

        async def call() -> T:
            return function()

        return self._runner.run(call())
