"""`AsyncClient`: the client on the caller's event loop."""

import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar, Unpack
from weakref import WeakSet

from flotilla.client import tables
from flotilla.client.admin import AsyncBrokers, AsyncGroups, AsyncTokens, AsyncTopics
from flotilla.client.appender import AsyncAppender
from flotilla.client.async_consumer import AsyncConsumer, OnChange
from flotilla.client.config import (
    ConsumerConfig,
    ConsumerOptions,
    ProducerConfig,
    ProducerOptions,
    Route,
    load_client,
)
from flotilla.client.deliveries import Delivery
from flotilla.client.engine import Engine
from flotilla.client.errors import ClientClosed
from flotilla.client.positions import Partitions, Start
from flotilla.client.producer import AsyncProducer
from flotilla.client.range_reader import RangeReader
from flotilla.client.ranges import Range, RangeOptions

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

M = TypeVar("M", AsyncProducer, AsyncConsumer)


class AsyncClient:
    """A client of one system, for asyncio. Use it on the event loop that it was created on.

    Closing it closes its producers and consumers.

        async with AsyncClient("http://127.0.0.1:8080") as client:
            async with client.producer() as producer:
                await producer.send("orders", b"one coffee")
            async for record in client.consumer("orders"):
                print(record.value)

    Missing arguments come from FLOTILLA_URL, FLOTILLA_TOKEN and FLOTILLA_TLS_CA in `environment`. `url` may have
    several managers of one system, separated by commas. `ca` is a CA bundle to verify servers. With the `route`
    `direct` records go to brokers, with `gateway` through managers, and with `auto` directly if brokers are reachable.
    `request_s` is the timeout of calls that have none of their own. Raises ConfigInvalid.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        ca: str | Path | None = None,
        route: str = Route.AUTO,
        request_s: float = 30.0,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self._engine = Engine(
            load_client(url, token=token, ca=ca, route=route, request_s=request_s, environment=environment)
        )
        self.topics = AsyncTopics(self._engine.managers, self._engine.cluster)
        self.brokers = AsyncBrokers(self._engine.managers)
        self.groups = AsyncGroups(self._engine.managers)
        self.tokens = AsyncTokens(self._engine.managers)
        self._made: list[AsyncProducer | AsyncConsumer] = []  # not closed yet
        self._is_closed = False
        self._readers: WeakSet[RangeReader] = WeakSet()  # weak: a reader that is never started needs no close

    def producer(
        self,
        *,
        on_delivery: Callable[[Delivery], object] | None = None,
        **options: Unpack[ProducerOptions],
    ) -> AsyncProducer:
        """Create a producer; see `ProducerOptions`.

        `on_delivery` gets each delivery with its outcome. Raises ConfigInvalid.
        """
        return self._keep(AsyncProducer(self._engine, ProducerConfig(**options), on_delivery=on_delivery))

    def consumer(
        self,
        topics: str | Iterable[str],
        *,
        start: Start = "earliest",
        partitions: Partitions | None = None,
        group: str | None = None,
        member_id: str | None = None,
        strategy: str = "sticky",
        on_assigned: OnChange | None = None,
        on_revoked: OnChange | None = None,
        on_lost: OnChange | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> AsyncConsumer:
        """Create a consumer; see `AsyncConsumer` and `ConsumerOptions`. Raises ConfigInvalid."""
        return self._keep(
            AsyncConsumer(
                self._engine,
                ConsumerConfig(**options),
                topics,
                start=start,
                partitions=partitions,
                group=group,
                member_id=member_id,
                strategy=strategy,
                on_assigned=on_assigned,
                on_revoked=on_revoked,
                on_lost=on_lost,
            )
        )

    def appender(
        self, producer_id: bytes, epoch: int, *, delivery_s: float = 60.0, compression: str = "none"
    ) -> AsyncAppender:
        """Create an appender, which appends batches with a producer id and an epoch that you choose."""
        return AsyncAppender(self._engine, producer_id, epoch, delivery_s=delivery_s, compression=compression)

    async def read_arrow(self, topic: str, **options: Unpack[RangeOptions]) -> "pa.Table":
        """Read a range of offsets or of time as a table; see `RangeOptions`.

        The table has one partition after the other, each in offset order. Raises ConfigInvalid, ExtraMissing without
        pyarrow, OffsetOutOfRange, TableTooLarge, DataInvalid, Refused, ServerUnreachable.
        """
        wanted, schema = tables.parse(topic, options)
        return await tables.collect(self._range_reader(wanted), wanted, schema)

    async def read_pandas(self, topic: str, **options: Unpack[RangeOptions]) -> "pd.DataFrame":
        """Read a range as a pandas frame with columns in Arrow memory; otherwise as `read_arrow`."""
        tables.load_pandas()
        return tables.to_pandas(await self.read_arrow(topic, **options))

    def iter_arrow(self, topic: str, **options: Unpack[RangeOptions]) -> AsyncIterator["pa.RecordBatch"]:
        """Iterate over a range of any size, batches in the order of arrival; otherwise as `read_arrow`.

        The range is resolved when the first batch is requested.
        """
        wanted, schema = tables.parse(topic, options)
        return tables.iterate(self._range_reader(wanted), schema)

    def _range_reader(self, wanted: Range) -> RangeReader:
        """Create the reader of a range. Raises ClientClosed."""
        if self._is_closed:
            raise ClientClosed("the client is closed")
        made = RangeReader(self._engine, wanted)
        self._readers.add(made)
        return made

    def _keep(self, made: M) -> M:
        """Register a producer or consumer for `close`, and drop closed ones."""
        self._made = [one for one in self._made if not one._is_closed]
        self._made.append(made)
        return made

    async def close(self) -> None:
        """Close all producers and consumers of this client, the newest first, and its connections."""
        self._is_closed = True
        try:
            for reader in list(self._readers):
                reader.close()
            while self._made:
                await self._made.pop().close()
        finally:
            self._engine.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
