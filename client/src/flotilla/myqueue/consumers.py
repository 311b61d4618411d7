"""`MyConsumer`, alias `Consumer`: receives messages that are stored after it was created.

Messages are prefetched, so that most calls need no request. Before `dequeue` reports an empty queue, it asks the
leaders: it returns every message that was acknowledged before the call.

Positions are kept in the object: each consumer has its own, and receives every message.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from flotilla import Client, Consumer, ConsumerRecord, Route, ServerUnreachable
from flotilla.client.positions import Start, parse_topics
from flotilla.myqueue.texts import check_topic, decode_message, parse_broker

_ARRIVE_S = 30.0  # limit for an existing message to arrive
_POLL_S = 1.0
_TURN_S = 0.1  # how long one thread waits before it lets others use the consumer


class MyConsumer:
    """Receives messages from queues. Thread-safe; each message goes to one thread.

        with MyConsumer(["T1", "T2"], "127.0.0.1:8080") as consumer:
            while consumer.can_dequeue("T1"):
                print(consumer.dequeue("T1"))

    Existing messages are skipped, unless `start="earliest"`. `broker` is `host:port` or a URL; the default is
    FLOTILLA_URL. Defaults of `token` and `ca` are FLOTILLA_TOKEN and FLOTILLA_TLS_CA. Raises ConfigInvalid,
    TopicMissing, Refused, ServerUnreachable.
    """

    def __init__(
        self,
        topics: str | Iterable[str],
        broker: str | None = None,
        *,
        start: Start = "latest",
        token: str | None = None,
        ca: str | Path | None = None,
        route: str = Route.AUTO,
    ) -> None:
        self.topics = parse_topics(topics)
        url = None if broker is None else parse_broker(broker)
        with contextlib.ExitStack() as stack:
            self._client = stack.enter_context(Client(url, token=token, ca=ca, route=route))
            self._queues = {
                topic: _Queue(topic, self._client.consumer(topic, start=start), time.monotonic) for topic in self.topics
            }
            stack.pop_all()

    def dequeue(self, topic: str, timeout_s: float = 0.0) -> str | None:
        """Return the next message; None if none arrives within `timeout_s`.

        A record that is not UTF-8 raises DataInvalid, and the next call continues after it. Raises ConfigInvalid,
        TopicMissing, Refused, ServerUnreachable, ClientClosed.
        """
        record = self._queue(topic).take(timeout_s)
        if record is None:
            return None
        return decode_message(record.value, f"message at offset {record.offset} of '{topic}'")

    def get_size(self, topic: str) -> int:
        """Return the number of messages left for this consumer. Raises as `dequeue` does."""
        return self._queue(topic).size()

    def can_dequeue(self, topic: str) -> bool:
        """Return whether a message is available; the next `dequeue` returns it. Raises as `dequeue` does."""
        return self._queue(topic).has_next()

    def _queue(self, topic: str) -> "_Queue":
        check_topic(topic, self.topics)
        return self._queues[topic]

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Queue:
    """One topic: its consumer, and the next record if it was peeked."""

    def __init__(self, topic: str, consumer: Consumer, clock: Callable[[], float]) -> None:
        self._topic = topic
        self._consumer = consumer
        self._clock = clock
        self._entry_lock = threading.Lock()
        self._lock = threading.Lock()  # a consumer is not thread-safe
        self._next: ConsumerRecord | None = None

    def take(self, timeout_s: float) -> ConsumerRecord | None:
        deadline = self._clock() + timeout_s
        while (left_s := deadline - self._clock()) > 0:
            with self._turn():
                found, self._next = self._next or self._consumer.poll(min(left_s, _TURN_S)), None
            if found is not None:
                return found
        with self._turn():
            found, self._next = self._poll_next(), None
            return found

    def has_next(self) -> bool:
        with self._turn():
            self._next = self._poll_next()
            return self._next is not None

    def size(self) -> int:
        with self._turn():
            return self._left() + (self._next is not None)

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """Hold the consumer exclusively and fairly: a thread that returns queues behind waiting threads."""
        with self._entry_lock:
            self._lock.acquire()
        try:
            yield
        finally:
            self._lock.release()

    def _poll_next(self) -> ConsumerRecord | None:
        """Return the next record; None if the leaders had none at the time of the call."""
        deadline = self._clock() + _ARRIVE_S
        found = self._next or self._consumer.poll(0.0)
        while found is None and self._left():
            if self._clock() > deadline:
                raise ServerUnreachable(f"messages of '{self._topic}' did not arrive within {_ARRIVE_S:g} s")
            found = self._consumer.poll(_POLL_S)
        return found

    def _left(self) -> int:
        return sum(self._consumer.lag().values())
