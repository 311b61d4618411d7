"""What becomes of records that were sent: ok, with a place in the log; failed; or unknown.

Records travel in batches, and all records of a batch end in the same way. So there is one `Fate` for a batch, and a
`Delivery` is a fate and a number: small, since there may be a million of them.

A fate is settled once, on the loop; it may be waited for in any thread and on any loop. Callbacks run where it is
settled, and must neither wait nor take long. One that raises is logged, and disturbs nobody.
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
from flotilla.client.once import Once

logger = logging.getLogger(__name__)

Failure = DeliveryFailed | DeliveryUnknown


class Receipt(NamedTuple):
    """Where a record is."""

    topic: str
    partition: int
    offset: int


class Fate:
    """How the records of one batch end."""

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
        self._loop = loop  # where it is settled
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._event: Once | None = None
        self._callbacks: list[Callable[[], object]] = []

    @property
    def place(self) -> tuple[str, int]:
        """Topic and partition."""
        return self.topic, self.partition

    def settle(self, end: int | Failure) -> None:
        """Say how it ended: the offset of the first record, or what is wrong."""
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
        """Have something called when it has ended; at once if it has."""
        with self._lock:
            if not self.is_done:
                self._callbacks.append(callback)
                return
        call(callback)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it has ended, and tell whether it has."""
        if self.is_done or (timeout_s is not None and timeout_s <= 0):
            return self.is_done
        if os.getpid() != self._pid:
            raise ClientForked
        if self._loop is not None and asyncio._get_running_loop() is self._loop:  # noqa: SLF001 - None if there is none
            raise RuntimeError("this would wait for ever on the client's own loop: use `await`, or ask `done()`")
        with self._lock:
            if self._event is None:
                self._event = Once()
                if self.is_done:
                    return True
            event = self._event
        return event.wait(timeout_s)

    async def ended(self) -> None:
        """Wait until it has ended, on any loop."""
        if self.is_done:
            return
        loop = asyncio.get_running_loop()
        ended = loop.create_future()

        def note() -> None:
            if not ended.done():
                ended.set_result(None)

        self.when_done(lambda: loop.call_soon_threadsafe(note))
        await ended


class Delivery(msgspec.Struct, frozen=True, eq=False, gc=False):
    """The outcome of one record, now or later. In async code, `await` it.

    >>> delivery = producer.send("orders", b"one coffee")    # doctest: +SKIP
    >>> delivery.result(timeout=10)                          # doctest: +SKIP
    Receipt(topic='orders', partition=0, offset=17)
    """

    _fate: Fate
    _index: int

    @property
    def topic(self) -> str:
        """Where the record goes."""
        return self._fate.topic

    @property
    def partition(self) -> int:
        """Where the record goes."""
        return self._fate.partition

    def done(self) -> bool:
        """Tell whether the outcome is known."""
        return self._fate.is_done

    def result(self, timeout: float | None = None) -> Receipt:
        """Wait for the outcome. Raises DeliveryFailed, DeliveryUnknown; TimeoutError if it takes too long."""
        error = self.exception(timeout)
        if error is not None:
            raise _copy(error) from error.__cause__
        fate = self._fate
        return Receipt(fate.topic, fate.partition, fate.base_offset + self._index)

    def exception(self, timeout: float | None = None) -> Failure | None:
        """Wait for the outcome, and return what is wrong, if anything. Raises TimeoutError."""
        if not self._fate.wait(timeout):
            raise TimeoutError(f"the outcome is not known after {timeout} s; the record is still on its way")
        return self._fate.error

    def add_done_callback(self, callback: Callable[["Delivery"], object]) -> None:
        """Have something called with this when the outcome is known: on the client's thread, or at once."""
        self._fate.when_done(lambda: callback(self))

    def __await__(self) -> Generator[Any, None, Receipt]:
        yield from self._fate.ended().__await__()
        return self.result()


class Part(NamedTuple):
    """Some records of a call that travel together: where the first is in its batch, and which ones of the call."""

    fate: Fate
    first: int
    positions: Sequence[int]


class Deliveries:
    """The outcomes of many records, in their order. In async code, `await` it.

    Of a call for so many records, those that were taken: all of them, unless there was no room.
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
                found[position] = Delivery(part.fate, index)
        return iter([one for one in found if one is not None])

    def done(self) -> bool:
        """Tell whether all outcomes are known."""
        return all(part.fate.is_done for part in self._parts)

    def result(self, timeout: float | None = None) -> list[Receipt]:
        """Wait for all outcomes. Raises what is wrong with the first that is not well; TimeoutError."""
        error = self.exception(timeout)
        if error is not None:
            raise _copy(error) from error.__cause__
        return [one.result() for one in self]

    def exception(self, timeout: float | None = None) -> Failure | None:
        """Wait for all outcomes, and return what is wrong with the first that is not well. Raises TimeoutError."""
        deadline = None if timeout is None else time.monotonic() + timeout
        for part in self._parts:
            left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not part.fate.wait(left_s):
                raise TimeoutError(f"not all outcomes are known after {timeout} s; the records are still on their way")
        wrong = [part for part in self._parts if part.fate.error is not None]
        return min(wrong, key=lambda part: part.positions[0]).fate.error if wrong else None

    def __await__(self) -> Generator[Any, None, list[Receipt]]:
        for part in self._parts:
            yield from part.fate.ended().__await__()
        return self.result()


def _copy(error: Failure) -> Failure:
    """Make an error to raise: one that is raised for each of many records would grow by a traceback each time."""
    return type(error)(*error.args)


def call(callback: Callable[[], object]) -> None:
    """Call what somebody else wrote."""
    try:
        callback()
    except Exception:
        logger.exception("a callback for deliveries raised an error; the delivery itself is not affected")
