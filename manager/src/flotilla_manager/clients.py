"""Who has registered: remembered here, so that a message costs no query; a miss asks the database.

A registration belongs to a topic's id, so those of a topic that was removed count for nothing, even if there is another
one with its name.
"""

import asyncio
import contextlib
import logging
from collections import OrderedDict

from flotilla.serving.errors import Refusal
from flotilla_manager.metadata import AsyncMetadata
from flotilla_manager.metadata.errors import MetadataError
from flotilla_manager.model import Producer

logger = logging.getLogger(__name__)

_KNOWN_MAX = 200_000
_TAIL_ROWS = 5_000
_TAIL_S = 1.0
_TOUCH_S = 1.0
_ID_CHARS_MAX = 64


class NotRegistered(Refusal):
    """A client is not registered with a topic, as far as is known here: there may be another topic of that name."""

    def __init__(self, message: str) -> None:
        super().__init__("bad_request", message)


def may_be_id(text: str) -> bool:
    """Tell whether a text can be a client's id at all. Nothing else gets to the database, which may choke on it."""
    return 0 < len(text) <= _ID_CHARS_MAX and text.isascii() and text.isalnum()


class Producers:
    """Registrations of producers, and their turns."""

    def __init__(self, database: AsyncMetadata) -> None:
        self._database = database
        self._known: OrderedDict[str, str] = OrderedDict()
        self._turns: OrderedDict[str, int] = OrderedDict()
        self._serial = 0

    @property
    def count(self) -> int:
        """How many are known here."""
        return len(self._known)

    async def is_registered(self, producer_id: str, topic_id: str) -> bool:
        """Tell whether a producer has registered with a topic. Raises MetadataError."""
        return await self._topic_of(producer_id) == topic_id

    async def is_known(self, producer_id: str) -> bool:
        """Tell whether a producer has registered with any topic. Raises MetadataError."""
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
        """Take note of a registration."""
        self._known[producer.id] = producer.topic_id
        if len(self._known) > _KNOWN_MAX:
            self._known.popitem(last=False)

    def next_turn(self, producer_id: str, partitions: int) -> int:
        """Choose a partition: round robin, from 0, for each producer."""
        turn = self._turns.get(producer_id, 0) % partitions
        self._turns[producer_id] = turn + 1
        if len(self._turns) > _KNOWN_MAX:
            self._turns.popitem(last=False)
        return turn

    async def follow(self) -> None:
        """Learn of registrations as they are made, so that they are known if the database goes away."""
        while True:
            try:
                rows = await self._database.call(self._database.store.newest_producers, self._serial, _TAIL_ROWS)
            except MetadataError:
                rows = []
            for serial, producer in rows:
                self._serial = serial
                self.learn(producer)
            if len(rows) < _TAIL_ROWS:
                await asyncio.sleep(_TAIL_S)


class SignsOfLife:
    """Clients that were heard of: written down together, once in a while."""

    def __init__(self, database: AsyncMetadata) -> None:
        self._database = database
        self._producers: set[str] = set()
        self._consumers: set[str] = set()

    def producer(self, producer_id: str) -> None:
        """A producer was heard of."""
        if len(self._producers) < _KNOWN_MAX:
            self._producers.add(producer_id)

    def consumer(self, consumer_id: str) -> None:
        """A consumer was heard of."""
        if len(self._consumers) < _KNOWN_MAX:
            self._consumers.add(consumer_id)

    async def follow(self) -> None:
        """Write them down, until cancelled."""
        while True:
            await asyncio.sleep(_TOUCH_S)
            with contextlib.suppress(MetadataError):  # they are forgotten: the next sign of life is on its way
                await self.write()

    async def write(self) -> None:
        """Write down who was heard of since the last time."""
        producers, self._producers = self._producers, set()
        if producers:
            await self._database.call(self._database.store.touch_producers, sorted(producers))
        consumers, self._consumers = self._consumers, set()
        if consumers:
            await self._database.call(self._database.store.touch_consumers, sorted(consumers))
