"""Deliveries: the outcomes of records that were sent: ok with an offset, failed, or unknown.

All records of a batch have the same outcome. So there is one `Outcome` per batch, and a `Delivery` is an outcome and an
index: small, since there may be a million of them.

An outcome is settled once, on the event loop of the client; any thread and any event loop can wait for it. Callbacks
run where it is settled, and must not block. An exception of a callback is logged and has no other effect.
"""

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from flotilla.client.errors import ClientForked, DeliveryFailed, DeliveryUnknown
from flotilla.client.one_shot_event import OneShotEvent

logger = logging.getLogger(__name__)

Failure = DeliveryFailed | DeliveryUnknown


class Receipt(NamedTuple):
    """Topic, partition and offset of a stored record."""

    topic: str
    partition: int
    offset: int


class Outcome:
    """The outcome of one batch."""

    __slots__ = (
        "_callbacks",
        "_event",
        "_lock",
        "_loop",
        "_pid",
        "base_offset",
        "error",
        "is_done",
        "partition",
        "topic",
    )

    def __init__(self, topic: str, partition: int, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.topic = topic
        self.partition = partition
        self.is_done = False
        self.base_offset = -1
        self.error: Failure | None = None
        self._loop = loop  # event loop that settles it
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._event: OneShotEvent | None = None
        self._callbacks: list[Callable[[], object]] = []

    @property
    def topic_partition(self) -> tuple[str, int]:
        """Topic and partition."""
        return self.topic, self.partition

    def settle(self, end: int | Failure) -> None:
        """Set the outcome: the offset of the first record, or the error."""
        if isinstance(end, int):
            self.base_offset = end
        else:
            self.error = end
        with self._lock:
            self.is_done = True
            event, callbacks = self._event, self._callbacks
            self._callbacks = []
        if event is not None:
            event.set()
        for callback in callbacks:
            call(callback)

    def when_done(self, callback: Callable[[], object]) -> None:
        """Call back when the outcome is known; at once if it already is."""
        with self._lock:
            if not self.is_done:
                self._callbacks.append(callback)
                return
        call(callback)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the outcome; return whether it is known."""
        if self.is_done or (timeout_s is not None and timeout_s <= 0):
            return self.is_done
        if os.getpid() != self._pid:
            raise ClientForked
        if self._loop is not None and asyncio._get_running_loop() is self._loop:  # noqa: SLF001 - None if there is none
            raise RuntimeError("waiting on the client's own event loop would block forever: use `await` or `done()`")
        with self._lock:
            if self._event is None:
                self._event = OneShotEvent()
                if self.is_done:
                    return True
            event = self._event
        return event.wait(timeout_s)

    async def ended(self) -> None:
        """Wait for the outcome, on any event loop."""
        if self.is_done:
            return
        loop = asyncio.get_running_loop()
        ended = loop.create_future()

        def set_ended() -> None:
            if not ended.done():
                ended.set_result(None)

        self.when_done(lambda: loop.call_soon_threadsafe(set_ended))
        await ended


class Delivery(msgspec.Struct, frozen=True, eq=False, gc=False):
    """The outcome of one record, like a future. In async code, `await` it.

    >>> delivery = producer.send("orders", b"one coffee")    # doctest: +SKIP
    >>> delivery.result(timeout=10)                          # doctest: +SKIP
    Receipt(topic='orders', partition=0, offset=17)
    """

    _outcome: Outcome
    _index: int

    @property
    def topic(self) -> str:
        """The topic of the record."""
        return self._outcome.topic

    @property
    def partition(self) -> int:
        """The partition of the record."""
        return self._outcome.partition

    def done(self) -> bool:
        """Return whether the outcome is known."""
        return self._outcome.is_done

    def result(self, timeout: float | None = None) -> Receipt:
        """Wait for the outcome. Raises DeliveryFailed, DeliveryUnknown; TimeoutError after `timeout` seconds."""
        error = self.exception(timeout)
        if error is not None:
            raise _copy(error) from error.__cause__
        outcome = self._outcome
        return Receipt(outcome.topic, outcome.partition, outcome.base_offset + self._index)

    def exception(self, timeout: float | None = None) -> Failure | None:
        """Wait for the outcome; return the error, or None. Raises TimeoutError."""
        if not self._outcome.wait(timeout):
            raise TimeoutError(f"no outcome after {timeout} s; the producer is still sending the record")
        return self._outcome.error

    def add_done_callback(self, callback: Callable[["Delivery"], object]) -> None:
        """Call back with this delivery when the outcome is known: on the client's thread, or at once."""
        self._outcome.when_done(lambda: callback(self))

    def __await__(self) -> Generator[Any, None, Receipt]:
        yield from self._outcome.ended().__await__()
        return self.result()


class Part(NamedTuple):
    """Records of one call in one batch: the index of the first in the batch, and their positions in the call."""

    outcome: Outcome
    first: int
    positions: Sequence[int]


class Deliveries:
    """The outcomes of the records of one `send_many`, in their order. In async code, `await` it.

    After BufferFull, those of the accepted records.
    """

    __slots__ = ("_count", "_parts")

    def __init__(self, count: int, parts: Sequence[Part]) -> None:
        self._count = count
        self._parts = parts

    def __len__(self) -> int:
        return sum(len(part.positions) for part in self._parts)

    def __iter__(self) -> Iterator[Delivery]:
        found: list[Delivery | None] = [None] * self._count
        for part in self._parts:
            for index, position in enumerate(part.positions, part.first):
                found[position] = Delivery(part.outcome, index)
        return iter([one for one in found if one is not None])

    def done(self) -> bool:
        """Return whether all outcomes are known."""
        return all(part.outcome.is_done for part in self._parts)

    def result(self, timeout: float | None = None) -> list[Receipt]:
        """Wait for all outcomes. Raises the error of the first record that has one; TimeoutError."""
        error = self.exception(timeout)
        if error is not None:
            raise _copy(error) from error.__cause__
        return [one.result() for one in self]

    def exception(self, timeout: float | None = None) -> Failure | None:
        """Wait for all outcomes; return the error of the first record that has one. Raises TimeoutError."""
        deadline = None if timeout is None else time.monotonic() + timeout
        for part in self._parts:
            left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not part.outcome.wait(left_s):
                raise TimeoutError(f"not all outcomes are known after {timeout} s; the producer is still sending")
        wrong = [part for part in self._parts if part.outcome.error is not None]
        return min(wrong, key=lambda part: part.positions[0]).outcome.error if wrong else None

    def __await__(self) -> Generator[Any, None, list[Receipt]]:
        for part in self._parts:
            yield from part.outcome.ended().__await__()
        return self.result()


def _copy(error: Failure) -> Failure:
    """Copy an error before raising it: an error that is raised for many records would gain a traceback each time."""
    return type(error)(*error.args)


def call(callback: Callable[[], object]) -> None:
    """Call a user's callback; log its exception."""
    try:
        callback()
    except Exception:
        logger.exception("delivery callback failed; the delivery is not affected")
