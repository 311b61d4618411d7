"""Fake engine of a client: decodes batches, and returns the configured outcomes."""

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple, cast

from flotilla.client.cluster import PartitionInfo, TopicInfo
from flotilla.client.config import ProducerConfig
from flotilla.client.deliveries import Delivery
from flotilla.client.engine import Engine
from flotilla.client.errors import DeliveryFailed, Refused, TopicMissing
from flotilla.client.producer import AsyncProducer
from flotilla.protocol.appends import AppendResult
from flotilla.records import Buffer, Compression, decode


class Got(NamedTuple):
    """A batch that reached a partition."""

    topic_id: str
    partition: int
    epoch: int
    sequence: int
    values: list[bytes]
    compression: Compression


def failed(cause: Exception) -> DeliveryFailed:
    error = DeliveryFailed(str(cause))
    error.__cause__ = cause
    return error


def refused(code: str) -> DeliveryFailed:
    return failed(Refused(f"because of {code}", code, {}))


class FakeEngine:
    """Returns the outcomes in `ends` in order, then successes."""

    def __init__(self, partitions: int = 1, **topic: Any) -> None:  # noqa: ANN401 - whatever a topic has
        self.router = self.cluster = self
        self.clock = asyncio.get_running_loop().time
        self.got: list[Got] = []
        self.ends: list[Exception | None] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.under_way: dict[int, int] = {}
        self.looked_up = 0
        self.info: TopicInfo | None = self.make(partitions, **topic)

    def make(self, partitions: int = 1, id_: str = "id-1", **more: Any) -> TopicInfo:  # noqa: ANN401 - as above
        members = tuple(PartitionInfo(index, 1, ("b0",), "b0") for index in range(partitions))
        return TopicInfo("t", id_, members, **more)

    async def append(self, topic: TopicInfo, index: int, batch: Buffer, *, deadline: float) -> AppendResult:
        assert deadline > self.clock()
        assert not self.under_way.get(index), "one request at a time for a partition"
        self.under_way[index] = 1
        try:
            await self.gate.wait()
            await asyncio.sleep(0)
        finally:
            self.under_way[index] = 0
        opened = decode(batch)
        head = opened.header
        self.got.append(Got(topic.id, index, head.producer_epoch, head.base_sequence, opened.values, head.compression))
        end = self.ends.pop(0) if self.ends else None
        if end is not None:
            raise end
        return AppendResult(100 * len(self.got))

    async def find(self, _: str) -> TopicInfo:
        self.looked_up += 1
        if self.info is None:
            raise TopicMissing("there is no topic", "not_found", {})
        return self.info

    async def refresh(self, name: str) -> TopicInfo:
        return await self.find(name)

    async def force_refresh(self, name: str) -> TopicInfo:
        return await self.find(name)

    def topic(self, _: str) -> TopicInfo | None:
        return self.info

    def refresh_in_background(self, _: str) -> None:
        return


def make(
    engine: FakeEngine,
    *,
    on_delivery: Callable[[Delivery], object] | None = None,
    **options: Any,  # noqa: ANN401 - any option
) -> AsyncProducer:
    return AsyncProducer(cast("Engine", engine), ProducerConfig(**options), on_delivery=on_delivery)


async def send_apart(producer: AsyncProducer, *values: bytes) -> list[Delivery]:
    """Send records, each in its own batch."""
    found = []
    for value in values:
        found.append(await producer.send("t", value, partition=0))
        await producer.flush()
    return found
