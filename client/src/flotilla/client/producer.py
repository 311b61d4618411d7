"""The producers: `AsyncProducer` on an event loop, and `Producer` for any thread.

Both add records to the same accumulator, from which a `Sender` takes batches on the event loop. The blocking producer
adds records in the caller's thread, and uses the event loop only to wait.
"""

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import NamedTuple, Self, TypeVar

from flotilla.client.accumulator import Accumulator, TopicUnknown
from flotilla.client.bulk_send import BulkSend
from flotilla.client.config import COMPRESSION_BY_NAME, ProducerConfig
from flotilla.client.deliveries import Deliveries, Delivery, Outcome
from flotilla.client.engine import Engine
from flotilla.client.errors import BufferFull, ClientClosed
from flotilla.client.one_shot_event import OneShotEvent
from flotilla.client.producer_batches import PartitionQueue, PartitionUnknown
from flotilla.client.runner import Runner
from flotilla.client.sender import Sender
from flotilla.records import PRODUCER_ID_BYTES, Headers

T = TypeVar("T")

_YIELD_RECORDS = 256  # an async sender that never waits yields to the event loop after this number


class ProducerStats(NamedTuple):
    """Counters of a producer: records by outcome, buffered bytes and batches."""

    acknowledged: int  # records, like the next three
    failed: int
    unknown: int
    waiting: int  # accepted, outcome pending
    buffered_bytes: int
    batches: int


class AsyncProducer:
    """Sends records in batches, in the background. Use it on the event loop of its client.

    >>> async with client.producer() as producer:                        # doctest: +SKIP
    ...     delivery = await producer.send("orders", b"one coffee", key=b"table 7")
    ...     receipt = await delivery
    """

    def __init__(
        self,
        engine: Engine,
        config: ProducerConfig | None = None,
        *,
        on_delivery: Callable[[Delivery], object] | None = None,
        id_: bytes | None = None,
    ) -> None:
        config = config or ProducerConfig()
        loop = asyncio.get_running_loop()
        self._engine = engine
        self._loop = loop
        self._sent = 0
        self._is_closed = False  # `AsyncClient` drops closed producers
        self._accumulator = Accumulator(
            batch_bytes=config.batch_bytes,
            buffer_bytes=config.buffer_bytes,
            linger_s=config.linger_s,
            compression=COMPRESSION_BY_NAME.get(config.compression),  # None for auto: the topic's setting
            wake=self._wake,
            make_outcome=lambda topic, partition: Outcome(topic, partition, loop),
            clock=time.monotonic,
        )
        self._sender = Sender(
            engine,
            self._accumulator,
            producer_id=id_ or secrets.token_bytes(PRODUCER_ID_BYTES),
            delivery_s=config.delivery_s,
            on_delivery=on_delivery,
        )

    def _wake(self, queue: PartitionQueue) -> None:
        self._loop.call_soon_threadsafe(self._sender.schedule, queue)

    async def send(
        self,
        topic: str,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
        block: bool = True,
        timeout_s: float | None = None,
    ) -> Delivery:
        """Accept a record and return its delivery; `await` the delivery for the outcome.

        The first record of a topic waits for the topic's metadata. A record waits while the buffer is full; with
        `block=False`, or after `timeout_s` seconds, BufferFull is raised instead. Raises RecordInvalid, TopicMissing,
        NotAllowed, ServerUnreachable, ClientClosed.
        """

        def add() -> Delivery | None:
            return self._accumulator.add(topic, value, key, headers, timestamp_ms, partition)

        delivery = await self._add_with_retry(topic, add, block=block, timeout_s=timeout_s)
        self._sent += 1
        if self._sent % _YIELD_RECORDS == 0:
            await asyncio.sleep(0)
        return delivery

    async def send_many(
        self,
        topic: str,
        values: Iterable[bytes],
        *,
        keys: Iterable[bytes | None] | None = None,
        headers: Iterable[Headers] | None = None,
        timestamps_ms: Iterable[int] | None = None,
        partition: int | None = None,
        block: bool = True,
        timeout_s: float | None = None,
    ) -> Deliveries:
        """Accept many records, which costs much less than one by one; raises as `send` does.

        BufferFull has the `deliveries` of the records that were accepted before the buffer was full.
        """
        records = BulkSend(values, keys, headers, timestamps_ms, partition)

        def add() -> bool | None:
            return self._accumulator.add_many(topic, records) or None

        try:
            await self._add_with_retry(topic, add, block=block, timeout_s=timeout_s)
        except BufferFull as error:
            error.deliveries = records.deliveries
            raise
        await asyncio.sleep(0)
        return records.deliveries

    async def _add_with_retry(
        self, topic: str, add: Callable[[], T | None], *, block: bool, timeout_s: float | None
    ) -> T:
        deadline = None if timeout_s is None else self._loop.time() + timeout_s
        was_refreshed = False
        while True:
            releases = self._accumulator.releases
            try:
                found = add()
            except TopicUnknown:
                await self._load_topic(topic)
                continue
            except PartitionUnknown:
                if was_refreshed:
                    raise
                was_refreshed = True
                await self._load_topic(topic, refresh=True)
                continue
            if found is not None:
                return found
            left_s = None if deadline is None else deadline - self._loop.time()
            if not block or (left_s is not None and left_s <= 0):
                raise _buffer_full(self._accumulator, timeout_s if block else None)
            await self._wait_room(releases, left_s)

    async def _wait_room(self, releases: int, left_s: float | None) -> None:
        room = asyncio.Event()
        self._accumulator.call_when_room(releases, room.set)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(left_s):
                await room.wait()

    async def _load_topic(self, topic: str, *, refresh: bool = False) -> None:
        """Load the metadata of a topic, which assigns records to partitions; `refresh` bypasses the cache."""
        cluster = self._engine.cluster
        self._accumulator.update_topic(await (cluster.force_refresh if refresh else cluster.find)(topic))

    async def flush(self, timeout_s: float | None = None) -> None:
        """Wait for the outcome of every accepted record. Raises TimeoutError.

        The outcomes are in the deliveries and in `stats`.
        """
        pending = self._accumulator.begin_flush()
        try:
            async with asyncio.timeout(timeout_s):
                for batch in pending:
                    await batch.outcome.ended()
        except TimeoutError:
            raise TimeoutError(f"flush: some records have no outcome after {timeout_s} s") from None
        finally:
            self._accumulator.end_flush()

    async def close(self, timeout_s: float | None = None) -> None:
        """Accept no more records, and wait for the others; after `timeout_s`, they have failed or are unknown."""
        self._accumulator.close(lambda: ClientClosed("the producer is closed"))
        try:
            with contextlib.suppress(TimeoutError):
                await self.flush(timeout_s)
        finally:
            self._is_closed = True
            await self._sender.stop()  # settles the remaining records as failed or unknown

    @property
    def stats(self) -> ProducerStats:
        """The producer's counters."""
        counts = self._sender.counts
        waiting = sum(len(batch) for batch in self._accumulator.pending())
        return ProducerStats(
            counts.acknowledged, counts.failed, counts.unknown, waiting, self._accumulator.bytes, counts.batches
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class Producer:
    """Sends records in batches, in the background. Thread-safe.

    >>> with client.producer() as producer:                              # doctest: +SKIP
    ...     delivery = producer.send("orders", b"one coffee", key=b"table 7")
    ...     delivery.result(timeout=10)
    Receipt(topic='orders', partition=1, offset=0)
    """

    def __init__(self, runner: Runner, producer: AsyncProducer) -> None:
        """Wrap a producer that was created on the runner's event loop."""
        self._runner = runner
        self._producer = producer
        self._accumulator = producer._accumulator
        self._add = self._accumulator.add

    def send(
        self,
        topic: str,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
        block: bool = True,
        timeout_s: float | None = None,
    ) -> Delivery:
        """Accept a record and return its delivery. The record is sent in the background.

        The first record of a topic waits for the topic's metadata. A record waits while the buffer is full; with
        `block=False`, or after `timeout_s` seconds, BufferFull is raised instead. Raises RecordInvalid, TopicMissing,
        NotAllowed, ServerUnreachable, ClientClosed, ClientForked.
        """
        try:
            delivery = self._add(topic, value, key, headers, timestamp_ms, partition)
        except (TopicUnknown, PartitionUnknown):
            delivery = None
        if delivery is not None:
            return delivery

        def add() -> Delivery | None:
            return self._add(topic, value, key, headers, timestamp_ms, partition)

        return self._add_with_retry(topic, add, block=block, timeout_s=timeout_s)

    def send_many(
        self,
        topic: str,
        values: Iterable[bytes],
        *,
        keys: Iterable[bytes | None] | None = None,
        headers: Iterable[Headers] | None = None,
        timestamps_ms: Iterable[int] | None = None,
        partition: int | None = None,
        block: bool = True,
        timeout_s: float | None = None,
    ) -> Deliveries:
        """Accept many records, which costs much less than one by one; raises as `send` does.

        BufferFull has the `deliveries` of the records that were accepted before the buffer was full.
        """
        records = BulkSend(values, keys, headers, timestamps_ms, partition)

        def add() -> bool | None:
            return self._accumulator.add_many(topic, records) or None

        try:
            self._add_with_retry(topic, add, block=block, timeout_s=timeout_s)
        except BufferFull as error:
            error.deliveries = records.deliveries
            raise
        return records.deliveries

    def _add_with_retry(self, topic: str, add: Callable[[], T | None], *, block: bool, timeout_s: float | None) -> T:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        was_refreshed = False
        while True:
            releases = self._accumulator.releases
            try:
                found = add()
            except TopicUnknown:
                self._runner.run(self._producer._load_topic(topic))
                continue
            except PartitionUnknown:
                if was_refreshed:
                    raise
                was_refreshed = True
                self._runner.run(self._producer._load_topic(topic, refresh=True))
                continue
            if found is not None:
                return found
            left_s = None if deadline is None else deadline - time.monotonic()
            if not block or (left_s is not None and left_s <= 0):
                raise _buffer_full(self._accumulator, timeout_s if block else None)
            self._runner.check_thread()
            room = OneShotEvent()
            self._accumulator.call_when_room(releases, room.set)
            room.wait(left_s)

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait for the outcome of every accepted record. Raises TimeoutError.

        The outcomes are in the deliveries and in `stats`.
        """
        self._runner.run(self._producer.flush(timeout_s))

    def close(self, timeout_s: float | None = None) -> None:
        """Accept no more records, and wait for the others; after `timeout_s`, they have failed or are unknown."""
        if self._runner.is_usable:
            self._runner.run(self._producer.close(timeout_s))

    @property
    def stats(self) -> ProducerStats:
        """The producer's counters."""
        return self._producer.stats

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _buffer_full(accumulator: Accumulator, timeout_s: float | None) -> BufferFull:
    """Return the error of a call that waited for `timeout_s`, or that did not wait."""
    if timeout_s is None or timeout_s <= 0:
        return BufferFull(
            f"the buffer is full: {accumulator.bytes} bytes of buffer_bytes={accumulator.bytes_max} await their "
            "outcome; wait for deliveries, or raise buffer_bytes"
        )
    return BufferFull(
        f"the buffer stayed full for {timeout_s:g} s: servers are unavailable or slower than the producer; "
        "wait for deliveries, or raise buffer_bytes"
    )
