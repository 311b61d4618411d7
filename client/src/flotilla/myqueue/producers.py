"""`MyProducer`, alias `Producer`: stores messages in queues, and waits for the acknowledgement."""

import contextlib
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

from flotilla import Client, Receipt, Route, TopicInfo, TopicMissing
from flotilla.client.positions import parse_topics
from flotilla.myqueue.texts import check_topic, encode_message, parse_broker


class MyProducer:
    """Stores messages in queues. Thread-safe; several threads are faster than one.

        with MyProducer(["T1", "T2"], "127.0.0.1:8080") as producer:
            producer.enqueue("T1", "hello")

    `broker` is `host:port` or a URL; the default is FLOTILLA_URL. Defaults of `token` and `ca` are FLOTILLA_TOKEN and
    FLOTILLA_TLS_CA. A missing topic is created with one partition, so that a queue has one order. Raises
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
                ensure_topic(self._client, topic)
            self._producer = self._client.producer()
            stack.pop_all()

    def enqueue(self, topic: str, message: str, *, partition: int | None = None) -> Receipt:
        """Store a message; when this returns, it is on the disks of a majority of its replicas.

        Returns topic, partition and offset. Raises DeliveryFailed if the message is not stored and never will be,
        DeliveryUnknown if the outcome is unknown; ConfigInvalid, RecordInvalid, TopicMissing, ServerUnreachable,
        ClientClosed.
        """
        check_topic(topic, self.topics)
        return self._producer.send(topic, encode_message(message), partition=partition).result()

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def ensure_topic(client: Client, topic: str) -> TopicInfo:
    """Create a topic with one partition if it is missing. An existing topic needs no grant to create."""
    try:
        return client.topics.describe(topic)
    except TopicMissing:
        return client.topics.create(topic, partitions=1, exist_ok=True)
