"""The producer as people use it: `AsyncProducer` on a loop, and `Producer` for any thread.

Both put records into the same accumulator, from which a `Carrier` takes them on the loop. The blocking one does that
from its caller's thread and asks the loop only where it has to wait.
"""

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import NamedTuple, Self, TypeVar

from flotilla.client.accumulating import Accumulator, TopicUnknown
from flotilla.client.config import ProducerConfig
from flotilla.client.deliveries import Deliveries, Delivery, Fate
from flotilla.client.engine import Engine
from flotilla.client.errors import BufferFull, ClientClosed
from flotilla.client.gathering import Many
from flotilla.client.once import Once
from flotilla.client.parcels import Lane, PartitionUnknown
from flotilla.client.producing import Carrier
from flotilla.client.runner import Runner
from flotilla.records import PRODUCER_ID_BYTES, Compression, Headers

T = TypeVar("T")

_TURN_RECORDS = 256  # an async sender that never waits lets the loop work after so many
_COMPRESSIONS = {"none": Compression.NONE, "zstd": Compression.ZSTD, "auto": None}


class ProducerStats(NamedTuple):
    """What a producer has done so far."""

    acknowledged: int  # records, like the next three
    failed: int
    unknown: int
    waiting: int  # taken, and not settled
    buffered_bytes: int
    batches: int


class AsyncProducer:
    """Sends records. Made and used on the loop of its client.

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
        self.is_closed = False
        self.accumulator = Accumulator(
            batch_bytes=config.batch_bytes,
            buffer_bytes=config.buffer_bytes,
            linger_s=config.linger_s,
            compression=_COMPRESSIONS[config.compression],
            wake=self._wake,
            make_fate=lambda topic, partition: Fate(topic, partition, loop),
            clock=time.monotonic,
        )
        self._carrier = Carrier(
            engine,
            self.accumulator,
            producer_id=id_ or secrets.token_bytes(PRODUCER_ID_BYTES),
            delivery_s=config.delivery_s,
            on_delivery=on_delivery,
        )

    def _wake(self, lane: Lane) -> None:
        self._loop.call_soon_threadsafe(self._carrier.attend, lane)

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
        """Take a record, and return what will tell its outcome: `await` that, or do not.

        The first record for a topic waits until the topic is known. A record waits while there is no room; with
        `block=False`, or after `timeout_s` seconds, BufferFull is raised instead. Raises RecordInvalid, TopicMissing,
        NotAllowed, ServerUnreachable, ClientClosed.
        """

        def add() -> Delivery | None:
            return self.accumulator.add(topic, value, key, headers, timestamp_ms, partition)

        delivery = await self._insist(topic, add, block=block, timeout_s=timeout_s)
        self._sent += 1
        if self._sent % _TURN_RECORDS == 0:
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
        """Take many records, which costs much less than one by one; raises as `send` does.

        If there is no room for all of them, and one is not to wait, BufferFull has the `deliveries` of those that
        were taken.
        """
        many = Many(values, keys, headers, timestamps_ms, partition)

        def add() -> bool | None:
            return self.accumulator.add_many(topic, many) or None

        try:
            await self._insist(topic, add, block=block, timeout_s=timeout_s)
        except BufferFull as error:
            error.deliveries = many.deliveries
            raise
        await asyncio.sleep(0)
        return many.deliveries

    async def _insist(self, topic: str, add: Callable[[], T | None], *, block: bool, timeout_s: float | None) -> T:
        deadline = None if timeout_s is None else self._loop.time() + timeout_s
        looked_up = False
        while True:
            releases = self.accumulator.releases
            try:
                found = add()
            except TopicUnknown:
                await self.learn(topic)
                continue
            except PartitionUnknown:
                if looked_up:
                    raise
                looked_up = True
                await self.learn(topic, anew=True)
                continue
            if found is not None:
                return found
            left_s = None if deadline is None else deadline - self._loop.time()
            if not block or (left_s is not None and left_s <= 0):
                raise _full(timeout_s if block else 0)
            await self._wait_room(releases, left_s)

    async def _wait_room(self, releases: int, left_s: float | None) -> None:
        room = asyncio.Event()
        self.accumulator.when_room(releases, room.set)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(left_s):
                await room.wait()

    async def learn(self, topic: str, *, anew: bool = False) -> None:
        """Find out about a topic, so that records can be sorted by partition; what is known may be too old."""
        cluster = self._engine.cluster
        self.accumulator.learn(await (cluster.refresh_anew if anew else cluster.find)(topic))

    async def flush(self, timeout_s: float | None = None) -> None:
        """Wait until the outcome of every record that was taken is known. Raises TimeoutError.

        How they ended is for their deliveries to tell, and for `stats`.
        """
        pending = self.accumulator.begin_flush()
        try:
            async with asyncio.timeout(timeout_s):
                for parcel in pending:
                    await parcel.fate.ended()
        except TimeoutError:
            raise TimeoutError(f"some records are still on their way after {timeout_s} s") from None
        finally:
            self.accumulator.end_flush()

    async def close(self, timeout_s: float | None = None) -> None:
        """Take nothing more, and wait for what is under way; after `timeout_s` seconds, give up on it."""
        self.accumulator.refuse(lambda: ClientClosed("the producer is closed"))
        try:
            with contextlib.suppress(TimeoutError):
                await self.flush(timeout_s)
        finally:
            self.is_closed = True
            await self._carrier.stop()  # what is left is settled now: as failed, or unknown

    @property
    def stats(self) -> ProducerStats:
        """What it has done so far."""
        counts = self._carrier.counts
        waiting = sum(len(parcel) for parcel in self.accumulator.pending())
        return ProducerStats(
            counts.acknowledged, counts.failed, counts.unknown, waiting, self.accumulator.bytes, counts.batches
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class Producer:
    """Sends records; may be used by many threads at once.

    >>> with client.producer() as producer:                              # doctest: +SKIP
    ...     delivery = producer.send("orders", b"one coffee", key=b"table 7")
    ...     delivery.result(timeout=10)
    Receipt(topic='orders', partition=1, offset=0)
    """

    def __init__(self, runner: Runner, producer: AsyncProducer) -> None:
        """Take a producer that was made on the runner's loop."""
        self._runner = runner
        self._producer = producer
        self._accumulator = producer.accumulator
        self._add = producer.accumulator.add

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
        """Take a record, and return what will tell its outcome. It is sent in the background.

        The first record for a topic waits until the topic is known. A record waits while there is no room; with
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

        return self._insist(topic, add, block=block, timeout_s=timeout_s)

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
        """Take many records, which costs much less than one by one; raises as `send` does.

        If there is no room for all of them, and one is not to wait, BufferFull has the `deliveries` of those that
        were taken.
        """
        many = Many(values, keys, headers, timestamps_ms, partition)

        def add() -> bool | None:
            return self._accumulator.add_many(topic, many) or None

        try:
            self._insist(topic, add, block=block, timeout_s=timeout_s)
        except BufferFull as error:
            error.deliveries = many.deliveries
            raise
        return many.deliveries

    def _insist(self, topic: str, add: Callable[[], T | None], *, block: bool, timeout_s: float | None) -> T:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        looked_up = False
        while True:
            releases = self._accumulator.releases
            try:
                found = add()
            except TopicUnknown:
                self._runner.run(self._producer.learn(topic))
                continue
            except PartitionUnknown:
                if looked_up:
                    raise
                looked_up = True
                self._runner.run(self._producer.learn(topic, anew=True))
                continue
            if found is not None:
                return found
            left_s = None if deadline is None else deadline - time.monotonic()
            if not block or (left_s is not None and left_s <= 0):
                raise _full(timeout_s if block else 0)
            self._runner.check_thread()
            room = Once()
            self._accumulator.when_room(releases, room.set)
            room.wait(left_s)

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until the outcome of every record that was taken is known. Raises TimeoutError.

        How they ended is for their deliveries to tell, and for `stats`.
        """
        self._runner.run(self._producer.flush(timeout_s))

    def close(self, timeout_s: float | None = None) -> None:
        """Take nothing more, and wait for what is under way; after `timeout_s` seconds, give up on it."""
        if self._runner.is_usable:
            self._runner.run(self._producer.close(timeout_s))

    @property
    def stats(self) -> ProducerStats:
        """What it has done so far."""
        return self._producer.stats

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _full(seconds: float | None) -> BufferFull:
    return BufferFull(f"there was no room for more records within {seconds or 0:g} s: servers are slower, or away")
