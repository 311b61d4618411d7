"""Batching of single messages: messages that arrive while a batch is in flight share the next batch.

A batcher writes to one partition as an idempotent producer, one batch at a time, so that retries are stored once.
Batches grow with the load.

All messages of a batch have the same outcome. A batch that is larger than its topic allows is not stored: it is split,
and each half is a batch with an outcome of its own. After a failure, the next batch uses the next producer epoch: it
does not depend on the failed one, and late copies of that one are rejected.
"""

import asyncio
import logging
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass, field
from typing import NamedTuple

from flotilla.protocol.errors import Refusal
from flotilla.records import HEADER_BYTES, encode
from flotilla_manager.model import Topic
from flotilla_manager.routing.gateway import Gateway
from flotilla_server import request_ids
from flotilla_server.limits import InFlight

logger = logging.getLogger(__name__)

_RECORDS_MAX = 2048
_BYTES_MAX = 1 << 20
_IDLE_S = 600.0  # an unused batcher is dropped, before the partition drops its producer state
_SWEEP_S = 60.0
_UNKNOWN_PRODUCER = "unknown_producer"  # definite failure: the partition dropped the producer state
_ADVICE = "read the partition before you send the message again; a 'sequence' makes retries safe"


class PendingMessage(NamedTuple):
    """A message and the future of its offset."""

    value: bytes
    future: "asyncio.Future[int]"
    request_id: str | None = None


@dataclass(eq=False)
class PartitionBatcher:
    """Queue of messages for one partition."""

    topic: Topic
    index: int
    producer_id: bytes
    epoch: int = 0
    sequence: int = 0
    pending: list[PendingMessage] = field(default_factory=list)
    task: "asyncio.Task[None] | None" = None
    used_at: float = 0.0

    def take_batch(self) -> list[PendingMessage]:
        """Take the messages of the next batch from the queue: in order, at least one, up to the limits."""
        bytes_max = min(_BYTES_MAX, self.topic.batch_bytes_max or _BYTES_MAX)
        size = count = 0
        for one in self.pending[:_RECORDS_MAX]:
            size += len(one.value)
            if count and batch_bytes(count + 1, size) > bytes_max:
                break
            count += 1
        messages, self.pending = self.pending[:count], self.pending[count:]
        return messages


class PartitionBatchers:
    """All batchers of a manager."""

    def __init__(
        self,
        gateway: Gateway,
        *,
        bytes_max: int,
        timeout_s: float,
        clock: Callable[[], float],
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self._gateway = gateway
        self._timeout_s = timeout_s
        self._clock = clock
        self._random_bytes = random_bytes
        self._batchers: dict[tuple[str, int], PartitionBatcher] = {}
        self._swept_at = clock()
        self._loop = asyncio.get_running_loop()
        self.in_flight = InFlight(bytes_max)

    async def append(self, topic: Topic, index: int, value: bytes) -> int:
        """Append one message; return its offset. Raises Refusal."""
        with self.in_flight.hold(len(value)):
            batcher = self._batcher(topic, index)
            future: asyncio.Future[int] = self._loop.create_future()
            batcher.pending.append(PendingMessage(value, future, request_ids.current()))
            if batcher.task is None:
                batcher.task = self._loop.create_task(
                    self._send_batches(batcher), context=Context()
                )  # without the context of a request
            return await future

    def _batcher(self, topic: Topic, index: int) -> PartitionBatcher:
        now = self._clock()
        if now - self._swept_at >= _SWEEP_S:
            self._drop_idle(now)
        batcher = self._batchers.get((topic.id, index))
        if batcher is None:
            batcher = PartitionBatcher(topic, index, self._random_bytes(16))
            self._batchers[topic.id, index] = batcher
        batcher.topic, batcher.used_at = topic, now  # settings may have changed
        return batcher

    def _drop_idle(self, now: float) -> None:
        self._swept_at = now
        for key in [
            key for key, batcher in self._batchers.items() if batcher.task is None and now - batcher.used_at >= _IDLE_S
        ]:
            del self._batchers[key]

    async def _send_batches(self, batcher: PartitionBatcher) -> None:
        """Send batches until the queue is empty. Every future gets a result, also on cancellation."""
        messages: list[PendingMessage] = []
        try:
            while batcher.pending:
                messages = batcher.take_batch()
                await self._send_batch(batcher, messages)
        finally:
            batcher.task = None
            for one in messages:  # only after a cancellation
                _fail(one.future, _unknown("the manager is shutting down"))
            for one in batcher.pending:
                _fail(one.future, Refusal("unavailable", "the manager is shutting down; the message was not sent"))
            batcher.pending = []

    async def _send_batch(self, batcher: PartitionBatcher, messages: list[PendingMessage]) -> None:
        """Send one batch and set the results. Uses the first request id of its messages."""
        request_ids.set_current(next(filter(None, (one.request_id for one in messages)), None))
        refusal: Refusal
        try:
            offset = await self._append(batcher, [one.value for one in messages])
        except Refusal as error:
            if error.code == "too_large" and len(messages) > 1:  # the limit was lowered and the cache is older
                await self._send_batch(batcher, messages[: len(messages) // 2])
                await self._send_batch(batcher, messages[len(messages) // 2 :])
                return
            refusal = error
        except Exception:
            logger.exception("append failed topic=%s partition=%d", batcher.topic.name, batcher.index)
            refusal = _unknown("internal error")
        else:
            for at, one in enumerate(messages):
                if not one.future.done():
                    one.future.set_result(offset + at)
            return
        for one in messages:
            _fail(one.future, refusal)

    async def _append(self, batcher: PartitionBatcher, values: list[bytes]) -> int:
        """Append a batch; return its offset. Sends it again if the partition dropped the producer state."""
        try:
            return await self._try(batcher, values)
        except Refusal as refusal:
            if refusal.code != _UNKNOWN_PRODUCER:
                raise
        return await self._try(batcher, values)  # with the new producer epoch

    async def _try(self, batcher: PartitionBatcher, values: list[bytes]) -> int:
        batch = encode(
            values, producer_id=batcher.producer_id, producer_epoch=batcher.epoch, base_sequence=batcher.sequence
        )
        sent = False
        try:
            appended = await self._gateway.append(
                batcher.topic, batcher.index, batch, timeout_s=self._timeout_s, advice=_ADVICE
            )
            sent = True
        finally:
            if sent:
                batcher.sequence += len(values)
            else:  # the next batch must not depend on this one
                batcher.epoch, batcher.sequence = batcher.epoch + 1, 0
        return appended.base_offset


def batch_bytes(count: int, size: int) -> int:
    """Return the size of a batch of `count` values with `size` bytes in total."""
    return HEADER_BYTES + _padded(4 * (count + 1)) + _padded(size)


def _padded(size: int) -> int:
    return -(-size // 8) * 8


def _unknown(cause: str) -> Refusal:
    """Return the error of a message that may be stored."""
    return Refusal("unknown_outcome", f"{cause}; the message may be stored or not: {_ADVICE}")


def _fail(future: "asyncio.Future[int]", refusal: Refusal) -> None:
    if not future.done():
        future.set_exception(refusal)
        future.exception()  # the request may be cancelled
