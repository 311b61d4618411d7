"""`AsyncClient`: the client on the loop of its caller."""

import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar, Unpack
from weakref import WeakSet

from flotilla.client import tables
from flotilla.client.admin import AsyncBrokers, AsyncGroups, AsyncTokens, AsyncTopics
from flotilla.client.appending import AsyncAppender
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
from flotilla.client.ranges import Range, RangeOptions
from flotilla.client.reading import Reading

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

M = TypeVar("M", AsyncProducer, AsyncConsumer)


class AsyncClient:
    """A client of one system. Made and used on a running loop; everything that it made ends with it.

        async with AsyncClient("http://127.0.0.1:8080") as client:
            async with client.producer() as producer:
                await producer.send("orders", b"one coffee")
            async for record in client.consumer("orders"):
                print(record.value)

    What is not given comes from FLOTILLA_URL, FLOTILLA_TOKEN and FLOTILLA_TLS_CA in `environment`. Several URLs, with
    commas between them, are managers of the same system. `route` is how records travel: `direct` to brokers, `gateway`
    through managers, or `auto`, direct where brokers can be reached. Raises ConfigInvalid.
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
        self.engine = Engine(
            load_client(url, token=token, ca=ca, route=route, request_s=request_s, environment=environment)
        )
        self.topics = AsyncTopics(self.engine.managers, self.engine.cluster)
        self.brokers = AsyncBrokers(self.engine.managers)
        self.groups = AsyncGroups(self.engine.managers)
        self.tokens = AsyncTokens(self.engine.managers)
        self._made: list[AsyncProducer | AsyncConsumer] = []  # and not closed since
        self._is_closed = False
        self._readings: WeakSet[Reading] = WeakSet()  # whoever never begins to read just forgets it

    def producer(
        self,
        *,
        on_delivery: Callable[[Delivery], object] | None = None,
        **options: Unpack[ProducerOptions],
    ) -> AsyncProducer:
        """Make a producer; options are those of `ProducerConfig`. Raises ConfigInvalid."""
        return self._keep(AsyncProducer(self.engine, ProducerConfig(**options), on_delivery=on_delivery))

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
        """Make a consumer; other options are those of `ConsumerConfig`. Raises ConfigInvalid."""
        return self._keep(
            AsyncConsumer(
                self.engine,
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
        """Make one that appends batches with an identity of your own: see `flotilla.client.appending`."""
        return AsyncAppender(self.engine, producer_id, epoch, delivery_s=delivery_s, compression=compression)

    async def read_arrow(self, topic: str, **options: Unpack[RangeOptions]) -> "pa.Table":
        """Read a range of offsets or of time as a table; options are those of `RangeOptions`.

        Partitions follow each other, each in its order. Raises ConfigInvalid, ExtraMissing without pyarrow,
        OffsetOutOfRange, TableTooLarge, DataInvalid, Refused, ServerUnreachable.
        """
        wanted, schema = tables.parse(topic, options)
        return await tables.collect(self.reading(wanted), wanted, schema)

    async def read_pandas(self, topic: str, **options: Unpack[RangeOptions]) -> "pd.DataFrame":
        """Read a range as a frame of pandas, with columns in Arrow's memory; otherwise as `read_arrow`."""
        tables.load_pandas()
        return tables.to_pandas(await self.read_arrow(topic, **options))

    def iter_arrow(self, topic: str, **options: Unpack[RangeOptions]) -> AsyncIterator["pa.RecordBatch"]:
        """Iterate over a range of any size; otherwise as `read_arrow`. Partitions take turns as their records come.

        It begins, and servers are asked what is there, when the first batch is asked for.
        """
        wanted, schema = tables.parse(topic, options)
        return tables.iterate(self.reading(wanted), schema)

    def reading(self, wanted: Range) -> Reading:
        """Make what fetches a range. Raises ClientClosed."""
        if self._is_closed:
            raise ClientClosed("the client is closed")
        made = Reading(self.engine, wanted)
        self._readings.add(made)
        return made

    def _keep(self, made: M) -> M:
        """Remember what has to be ended, and forget what was."""
        self._made = [one for one in self._made if not one.is_closed]
        self._made.append(made)
        return made

    async def close(self) -> None:
        """End what this client made, the last first, and close its connections."""
        self._is_closed = True
        try:
            for reading in list(self._readings):
                reading.close()
            while self._made:
                await self._made.pop().close()
        finally:
            self.engine.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
