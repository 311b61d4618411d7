"""`Client`: the blocking client. It runs an `AsyncClient` on an event loop in a thread of its own.

A client that is still open when the interpreter exits is closed then, so that accepted records are delivered.
"""

import atexit
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar, Unpack

from flotilla.client import tables
from flotilla.client.admin import Brokers, Groups, Tokens, Topics
from flotilla.client.aio import AsyncClient
from flotilla.client.appender import Appender
from flotilla.client.async_consumer import OnChange
from flotilla.client.config import ConsumerOptions, ProducerOptions, Route
from flotilla.client.consumer import Consumer
from flotilla.client.deliveries import Delivery
from flotilla.client.positions import Partitions, Start
from flotilla.client.producer import Producer
from flotilla.client.ranges import RangeOptions
from flotilla.client.runner import Runner

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

T = TypeVar("T")


class Client:
    """A client of one system. Thread-safe; a forked process needs a client of its own.

    Closing it closes its producers and consumers.

        with Client("http://127.0.0.1:8080") as client:
            with client.producer() as producer:
                producer.send("orders", b"one coffee")
            for record in client.consumer("orders"):
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
        self._runner = Runner()
        try:
            self._client = self._make(
                lambda: AsyncClient(url, token=token, ca=ca, route=route, request_s=request_s, environment=environment)
            )
        except BaseException:
            self._runner.close()
            raise
        _open.add(self)
        self.topics = Topics(self._runner, self._client.topics)
        self.brokers = Brokers(self._runner, self._client.brokers)
        self.groups = Groups(self._runner, self._client.groups)
        self.tokens = Tokens(self._runner, self._client.tokens)

    def _make(self, make: Callable[[], T]) -> T:
        """Create an object on the event loop."""

        async def made() -> T:
            return make()

        return self._runner.run(made())

    def producer(
        self,
        *,
        on_delivery: Callable[[Delivery], object] | None = None,
        **options: Unpack[ProducerOptions],
    ) -> Producer:
        """Create a producer; see `ProducerOptions`.

        `on_delivery` gets each delivery with its outcome. Raises ConfigInvalid.
        """
        return Producer(self._runner, self._make(lambda: self._client.producer(on_delivery=on_delivery, **options)))

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
    ) -> Consumer:
        """Create a consumer; see `AsyncConsumer` and `ConsumerOptions`. Raises ConfigInvalid, Refused."""
        made = self._make(
            lambda: self._client.consumer(
                topics,
                start=start,
                partitions=partitions,
                group=group,
                member_id=member_id,
                strategy=strategy,
                on_assigned=on_assigned,
                on_revoked=on_revoked,
                on_lost=on_lost,
                **options,
            )
        )
        return Consumer(self._runner, made)

    def appender(
        self, producer_id: bytes, epoch: int, *, delivery_s: float = 60.0, compression: str = "none"
    ) -> Appender:
        """Create an appender, which appends batches with a producer id and an epoch that you choose."""
        made = self._make(
            lambda: self._client.appender(producer_id, epoch, delivery_s=delivery_s, compression=compression)
        )
        return Appender(self._runner, made)

    def read_arrow(self, topic: str, **options: Unpack[RangeOptions]) -> "pa.Table":
        """Read a range of offsets or of time as a table; see `RangeOptions`.

            table = client.read_arrow("orders", start=datetime.now(UTC) - timedelta(hours=1), columns=["value"])

        The table has one partition after the other, each in offset order. Raises ConfigInvalid, ExtraMissing without
        pyarrow, OffsetOutOfRange, TableTooLarge, DataInvalid, Refused, ServerUnreachable.
        """
        wanted, schema = tables.parse(topic, options)
        reader = self._make(lambda: self._client._range_reader(wanted))
        return tables.collect_blocking(self._runner, reader, wanted, schema)

    def read_pandas(self, topic: str, **options: Unpack[RangeOptions]) -> "pd.DataFrame":
        """Read a range as a pandas frame with columns in Arrow memory; otherwise as `read_arrow`."""
        tables.load_pandas()
        return tables.to_pandas(self.read_arrow(topic, **options))

    def iter_arrow(self, topic: str, **options: Unpack[RangeOptions]) -> Iterator["pa.RecordBatch"]:
        """Iterate over a range of any size, batches in the order of arrival; otherwise as `read_arrow`.

        The range is resolved by this call.
        """
        wanted, schema = tables.parse(topic, options)
        reader = self._make(lambda: self._client._range_reader(wanted))
        self._runner.run(reader.begin())
        return tables.iterate_blocking(self._runner, reader, schema)

    def close(self) -> None:
        """Close all producers and consumers of this client, the newest first, and its connections."""
        _open.discard(self)
        if self._runner.is_usable:
            try:
                self._runner.run(self._client.close())
            finally:
                self._runner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


_open: set[Client] = set()


@atexit.register
def _close_all() -> None:
    for client in list(_open):
        client.close()
