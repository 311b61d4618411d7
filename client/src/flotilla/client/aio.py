"""`AsyncClient`: the client on the loop of its caller."""

from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from flotilla.client.admin import AsyncBrokers, AsyncGroups, AsyncTokens, AsyncTopics
from flotilla.client.async_consumer import AsyncConsumer, OnChange
from flotilla.client.config import ConsumerConfig, ProducerConfig, Route, load_client
from flotilla.client.deliveries import Delivery
from flotilla.client.engine import Engine
from flotilla.client.positions import Partitions, Start
from flotilla.client.producer import AsyncProducer

M = TypeVar("M", AsyncProducer, AsyncConsumer)


class AsyncClient:
    """A client of one system. Made and used on a running loop; everything that it made ends with it.

        async with AsyncClient("http://127.0.0.1:8080") as client:
            async with client.producer() as producer:
                await producer.send("orders", b"one coffee")
            async for record in client.consumer("orders"):
                print(record.value)

    What is not given comes from FLOTILLA_URL, FLOTILLA_TOKEN and FLOTILLA_TLS_CA. Several URLs, with commas between
    them, are managers of the same system. `route` is how records travel: `direct` to brokers, `gateway` through
    managers, or `auto`, direct where brokers can be reached. Raises ConfigInvalid.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        ca: str | Path | None = None,
        route: str = Route.AUTO,
        request_s: float = 30.0,
    ) -> None:
        self.engine = Engine(load_client(url, token=token, ca=ca, route=route, request_s=request_s))
        self.topics = AsyncTopics(self.engine.managers, self.engine.cluster)
        self.brokers = AsyncBrokers(self.engine.managers)
        self.groups = AsyncGroups(self.engine.managers)
        self.tokens = AsyncTokens(self.engine.managers)
        self._made: list[AsyncProducer | AsyncConsumer] = []  # and not closed since

    def producer(
        self,
        *,
        on_delivery: Callable[[Delivery], object] | None = None,
        **options: Any,  # noqa: ANN401 - as ProducerConfig has them
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
        **options: Any,  # noqa: ANN401 - as ConsumerConfig has them
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

    def _keep(self, made: M) -> M:
        """Remember what has to be ended, and forget what was."""
        self._made = [one for one in self._made if not one.is_closed]
        self._made.append(made)
        return made

    async def close(self) -> None:
        """End what this client made, the last first, and close its connections."""
        try:
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
