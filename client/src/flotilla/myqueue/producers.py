"""`MyProducer`, also named `Producer`: puts messages into queues, and knows that they are there."""

import contextlib
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

from flotilla.client.blocking import Client
from flotilla.client.cluster import TopicInfo
from flotilla.client.config import Route
from flotilla.client.deliveries import Receipt
from flotilla.client.errors import TopicMissing
from flotilla.client.positions import parse_topics
from flotilla.myqueue.texts import check_topic, encode_message, parse_broker


class MyProducer:
    """Puts messages into queues. Any thread may use it; several at once are faster than one.

        with MyProducer(["T1", "T2"], "127.0.0.1:8080") as producer:
            producer.enqueue("T1", "hello")

    `broker` is `host:port` or a URL; without it, FLOTILLA_URL counts, as FLOTILLA_TOKEN and FLOTILLA_TLS_CA do for
    `token` and `ca`. A topic that is not there is made, with one partition: so a queue has one order. Raises
    ConfigInvalid, Refused, ServerUnreachable.
    """

    def __init__(
        self,
        topics: str | Iterable[str],
        broker: str | None = None,
        *,
        token: str | None = None,
        ca: str | Path | None = None,
        route: str = Route.AUTO,
    ) -> None:
        self.topics = parse_topics(topics)
        url = None if broker is None else parse_broker(broker)
        with contextlib.ExitStack() as stack:
            self._client = stack.enter_context(Client(url, token=token, ca=ca, route=route))
            for topic in self.topics:
                have_topic(self._client, topic)
            self._producer = self._client.producer()
            stack.pop_all()

    def enqueue(self, topic: str, message: str, *, partition: int | None = None) -> Receipt:
        """Put a message into a queue; it is on the disks of a majority of its replicas when this returns.

        Returns topic, partition and offset. Raises DeliveryFailed if it is not stored and will not be, DeliveryUnknown
        if nobody knows; ConfigInvalid, RecordInvalid, TopicMissing, ServerUnreachable, ClientClosed.
        """
        check_topic(topic, self.topics)
        return self._producer.send(topic, encode_message(message), partition=partition).result()

    def close(self) -> None:
        """End, and close all connections."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def have_topic(client: Client, topic: str) -> TopicInfo:
    """Make a topic with one partition if it is not there. To look first needs no right to make any."""
    try:
        return client.topics.describe(topic)
    except TopicMissing:
        return client.topics.create(topic, partitions=1, exist_ok=True)
