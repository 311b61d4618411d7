"""Where many partitions begin and end: their leaders are asked, so many at a time, and not for ever."""

import asyncio
from collections.abc import Collection, Mapping
from typing import NamedTuple

from flotilla.groups.offsets import Bounds
from flotilla.groups.state import Place
from flotilla.serving.errors import Refusal
from flotilla_manager.model import Topic
from flotilla_manager.routing.gateway import Gateway

_AT_ONCE = 64
_PARTITION_S = 2.0  # for a partition whose absence is no trouble
_ALL_S = 10.0  # for all of them together, if so


class Found(NamedTuple):
    """What a leader told: where its partition begins and ends, and where the records begin that were asked for."""

    bounds: Bounds
    offset: int


class Asking:
    """Asks leaders about partitions."""

    def __init__(self, gateway: Gateway, seconds: float) -> None:
        self._gateway = gateway
        self._seconds = seconds

    async def all_of(
        self, topics: Mapping[str, Topic], places: Collection[Place], query: str = "offset=latest"
    ) -> dict[Place, Found]:
        """Ask about every partition, by the ids of their topics. Raises Refusal if any leader does not answer."""
        turns = asyncio.Semaphore(_AT_ONCE)

        async def ask(place: Place) -> Found:
            async with turns:
                return await self._ask(topics[place.topic_id], place.partition, query, self._seconds)

        try:
            async with asyncio.TaskGroup() as group:
                asked = {place: group.create_task(ask(place)) for place in places}
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None  # one is enough; the others were not asked any more
        return {place: task.result() for place, task in asked.items()}

    async def some_of(self, topics: Mapping[str, Topic], places: Collection[Place]) -> dict[Place, Bounds]:
        """Ask about partitions; those whose leader does not answer soon are left out."""
        turns = asyncio.Semaphore(_AT_ONCE)
        found: dict[Place, Bounds] = {}

        async def ask(place: Place) -> None:
            async with turns:
                try:
                    told = await self._ask(topics[place.topic_id], place.partition, "offset=latest", _PARTITION_S)
                except Refusal:
                    return  # it is left out, which says as much
                found[place] = told.bounds

        tasks = [asyncio.create_task(ask(place)) for place in places if place.topic_id in topics]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=_ALL_S)
            for task in late:
                task.cancel()
        return found

    async def _ask(self, topic: Topic, index: int, query: str, seconds: float) -> Found:
        response = await self._gateway.fetch(topic, index, f"{query}&max_bytes=1", seconds=seconds)
        headers = response.headers
        bounds = Bounds(int(headers[b"flotilla-first-offset"]), int(headers[b"flotilla-next-offset"]))
        return Found(bounds, int(headers[b"flotilla-offset"]))
