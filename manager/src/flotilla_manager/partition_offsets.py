"""Offsets of many partitions, requested from their leaders with limits of concurrency and time."""

import asyncio
from collections.abc import Collection, Mapping
from typing import NamedTuple

from flotilla.groups.offsets import OffsetBounds
from flotilla.groups.state import PartitionId
from flotilla.protocol.errors import Refusal
from flotilla_manager.model import Topic
from flotilla_manager.routing.gateway import Gateway

_CONCURRENT_MAX = 64
_PARTITION_S = 2.0  # per partition, if it may be left out
_ALL_S = 10.0  # in total, if partitions may be left out


class Found(NamedTuple):
    """Offsets of a partition, and the offset that the query selects."""

    bounds: OffsetBounds
    offset: int


class PartitionOffsets:
    """Requests offsets from leaders."""

    def __init__(self, gateway: Gateway, timeout_s: float) -> None:
        self._gateway = gateway
        self._timeout_s = timeout_s

    async def fetch_all(
        self, topics: Mapping[str, Topic], partitions: Collection[PartitionId], query: str = "offset=latest"
    ) -> dict[PartitionId, Found]:
        """Return the offsets of all partitions. Raises Refusal if a leader does not respond."""
        semaphore = asyncio.Semaphore(_CONCURRENT_MAX)

        async def ask(tp: PartitionId) -> Found:
            async with semaphore:
                return await self._ask(topics[tp.topic_id], tp.partition, query, self._timeout_s)

        try:
            async with asyncio.TaskGroup() as group:
                asked = {tp: group.create_task(ask(tp)) for tp in partitions}
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None  # the first error cancels the other requests
        return {tp: task.result() for tp, task in asked.items()}

    async def fetch_available(
        self, topics: Mapping[str, Topic], partitions: Collection[PartitionId]
    ) -> dict[PartitionId, OffsetBounds]:
        """Return the offsets of the partitions whose leaders respond in time."""
        semaphore = asyncio.Semaphore(_CONCURRENT_MAX)
        found: dict[PartitionId, OffsetBounds] = {}

        async def ask(tp: PartitionId) -> None:
            async with semaphore:
                try:
                    answer = await self._ask(topics[tp.topic_id], tp.partition, "offset=latest", _PARTITION_S)
                except Refusal:
                    return  # left out
                found[tp] = answer.bounds

        tasks = [asyncio.create_task(ask(tp)) for tp in partitions if tp.topic_id in topics]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=_ALL_S)
            for task in late:
                task.cancel()
        return found

    async def _ask(self, topic: Topic, index: int, query: str, timeout_s: float) -> Found:
        response = await self._gateway.fetch(topic, index, f"{query}&max_bytes=1", timeout_s=timeout_s)
        headers = response.headers
        bounds = OffsetBounds(int(headers[b"flotilla-first-offset"]), int(headers[b"flotilla-next-offset"]))
        return Found(bounds, int(headers[b"flotilla-offset"]))
