"""`Client`: the client for code without a loop; the work happens on a loop in a thread of its own.

A client that is open when the interpreter ends is closed then, so that records which were sent are delivered.
"""

import atexit
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from flotilla.client.admin import Brokers, Groups, Tokens, Topics
from flotilla.client.aio import AsyncClient
from flotilla.client.async_consumer import OnChange
from flotilla.client.config import Route
from flotilla.client.consumer import Consumer
from flotilla.client.deliveries import Delivery
from flotilla.client.positions import Partitions, Start
from flotilla.client.producer import Producer
from flotilla.client.runner import Runner

T = TypeVar("T")


class Client:
    """A client of one system. Any thread may use it; a process that was forked makes its own.

        with Client("http://127.0.0.1:8080") as client:
            with client.producer() as producer:
                producer.send("orders", b"one coffee")
            for record in client.consumer("orders"):
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
        self._runner = Runner()
        try:
            self._client = self._make(lambda: AsyncClient(url, token=token, ca=ca, route=route, request_s=request_s))
        except BaseException:
            self._runner.close()
            raise
        _open.add(self)
        self.topics = Topics(self._runner, self._client.topics)
        self.brokers = Brokers(self._runner, self._client.brokers)
        self.groups = Groups(self._runner, self._client.groups)
        self.tokens = Tokens(self._runner, self._client.tokens)

    def _make(self, make: Callable[[], T]) -> T:
        """Make something where it will live."""

        async def made() -> T:
            return make()

        return self._runner.run(made())

    def producer(
        self,
        *,
        on_delivery: Callable[[Delivery], object] | None = None,
        **options: Any,  # noqa: ANN401 - as ProducerConfig has them
    ) -> Producer:
        """Make a producer; options are those of `ProducerConfig`. Raises ConfigInvalid."""
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
        **options: Any,  # noqa: ANN401 - as ConsumerConfig has them
    ) -> Consumer:
        """Make a consumer; other options are those of `ConsumerConfig`. Raises ConfigInvalid, Refused."""
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

    def close(self) -> None:
        """End what this client made, the last first, and close its connections."""
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
