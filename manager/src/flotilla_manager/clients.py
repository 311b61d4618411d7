"""Cache of registrations (simple API), and last-seen times of clients.

A registration belongs to a topic id. It is not valid for another topic of the same name.
"""

import asyncio
import contextlib
from collections import OrderedDict

from flotilla.protocol.errors import Refusal
from flotilla_manager.metadata import AsyncMetadata
from flotilla_manager.metadata.errors import MetadataError
from flotilla_manager.model import Producer

_KNOWN_MAX = 200_000
_TAIL_ROWS = 5_000
_TAIL_S = 1.0
_TOUCH_S = 1.0
_ID_CHARS_MAX = 64


class NotRegistered(Refusal):
    """A client is not registered with the cached topic. A newer topic may have the same name."""

    def __init__(self, message: str) -> None:
        super().__init__("bad_request", message)


def may_be_id(text: str) -> bool:
    """Return whether a text has the format of a client id. Other texts are not sent to the database."""
    return 0 < len(text) <= _ID_CHARS_MAX and text.isascii() and text.isalnum()


class Producers:
    """Cached producer registrations, and their round-robin positions."""

    def __init__(self, database: AsyncMetadata) -> None:
        self._database = database
        self._known: OrderedDict[str, str] = OrderedDict()
        self._round_robin: OrderedDict[str, int] = OrderedDict()
        self._serial = 0

    @property
    def count(self) -> int:
        """Number of cached registrations."""
        return len(self._known)

    async def is_registered(self, producer_id: str, topic_id: str) -> bool:
        """Return whether a producer is registered with a topic. Raises MetadataError."""
        return await self._topic_of(producer_id) == topic_id

    async def is_known(self, producer_id: str) -> bool:
        """Return whether a producer is registered with any topic. Raises MetadataError."""
        return await self._topic_of(producer_id) is not None

    async def _topic_of(self, producer_id: str) -> str | None:
        found = self._known.get(producer_id)
        if found is None and may_be_id(producer_id):
            producer = await self._database.call(self._database.store.find_producer, producer_id)
            if producer is not None:
                self.learn(producer)
                found = producer.topic_id
        return found

    def learn(self, producer: Producer) -> None:
        """Cache a registration."""
        self._known[producer.id] = producer.topic_id
        if len(self._known) > _KNOWN_MAX:
            self._known.popitem(last=False)

    def next_partition(self, producer_id: str, partitions: int) -> int:
        """Choose a partition: round robin from 0, per producer."""
        partition = self._round_robin.get(producer_id, 0) % partitions
        self._round_robin[producer_id] = partition + 1
        if len(self._round_robin) > _KNOWN_MAX:
            self._round_robin.popitem(last=False)
        return partition

    async def follow(self) -> None:
        """Load new registrations continuously, so that they are cached when the database fails."""
        while True:
            try:
                rows = await self._database.call(self._database.store.list_new_producers, self._serial, _TAIL_ROWS)
            except MetadataError:
                rows = []
            for serial, producer in rows:
                self._serial = serial
                self.learn(producer)
            if len(rows) < _TAIL_ROWS:
                await asyncio.sleep(_TAIL_S)


class LivenessTracker:
    """Last-seen times of clients, written to the database periodically."""

    def __init__(self, database: AsyncMetadata) -> None:
        self._database = database
        self._producers: set[str] = set()
        self._consumers: set[str] = set()

    def producer(self, producer_id: str) -> None:
        """Record a request of a producer."""
        if len(self._producers) < _KNOWN_MAX:
            self._producers.add(producer_id)

    def consumer(self, consumer_id: str) -> None:
        """Record a request of a consumer."""
        if len(self._consumers) < _KNOWN_MAX:
            self._consumers.add(consumer_id)

    async def follow(self) -> None:
        """Write last-seen times periodically, until cancelled."""
        while True:
            await asyncio.sleep(_TOUCH_S)
            with contextlib.suppress(MetadataError):  # lost; the next request is recorded again
                await self.write()

    async def write(self) -> None:
        """Write the clients seen since the last write."""
        producers, self._producers = self._producers, set()
        if producers:
            await self._database.call(self._database.store.touch_producers, sorted(producers))
        consumers, self._consumers = self._consumers, set()
        if consumers:
            await self._database.call(self._database.store.touch_consumers, sorted(consumers))
