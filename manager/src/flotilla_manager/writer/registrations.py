"""Registrations of producers and consumers (simple API), made by the writer."""

from collections.abc import Callable

from flotilla.protocol.errors import Refusal, not_found
from flotilla.protocol.simple import BAD_PARTITION_TO_CONSUME, NO_TOPIC
from flotilla_manager.metadata import AsyncMetadata
from flotilla_manager.metadata.errors import TopicMissing
from flotilla_manager.metadata_cache import MetadataCache
from flotilla_manager.model import Producer, Topic
from flotilla_manager.routing.gateway import Gateway
from flotilla_manager.writer.election import WriterElection
from flotilla_manager.writer.topic_service import TopicService

_ID_BYTES = 16


class RegistrationService:
    """Registers producers and consumers. Raises Refusal if this manager is not the writer."""

    def __init__(
        self,
        election: WriterElection,
        database: AsyncMetadata,
        metadata: MetadataCache,
        topics: TopicService,
        gateway: Gateway,
        *,
        timeout_s: float,
        random_bytes: Callable[[int], bytes],
    ) -> None:
        """`timeout_s` limits the requests to leaders for the end of a partition."""
        self._election = election
        self._database = database
        self._metadata = metadata
        self._topics = topics
        self._gateway = gateway
        self._timeout_s = timeout_s
        self._random_bytes = random_bytes

    async def register_producer(self, name: str, before_create: Callable[[], None] = lambda: None) -> Producer:
        """Register a producer. Creates the topic if it does not exist, unless `before_create` raises."""
        epoch = self._election.require_epoch()
        topic = await self._find_or_create(name, before_create)
        try:
            return await self._database.call(
                self._database.store.register_producer, epoch, self._random_bytes(_ID_BYTES).hex(), topic.id
            )
        except TopicMissing as error:
            raise Refusal("unavailable", "The topic was deleted during the request; try again.") from error

    async def _find_or_create(self, name: str, before_create: Callable[[], None]) -> Topic:
        topic = await self._metadata.find_topic(name)
        while topic is None:
            before_create()
            try:
                topic = await self._topics.create(name)
            except Refusal as refusal:
                if refusal.code != "exists":
                    raise
                topic = await self._metadata.find_topic(name)  # a concurrent request created it
        return topic

    async def register_consumer(self, name: str, partition: int | None, *, latest: bool) -> str:
        """Register a consumer of a topic or of one partition; return its id."""
        epoch = self._election.require_epoch()
        topic = await self._metadata.find_topic(name)
        if topic is None:
            raise not_found("topic", NO_TOPIC)
        if partition is not None and not 0 <= partition < len(topic.partitions):
            raise Refusal("bad_request", BAD_PARTITION_TO_CONSUME)
        positions = [0] * len(topic.partitions)
        if latest:
            for index in range(len(positions)) if partition is None else (partition,):
                positions[index] = (await self._gateway.offsets(topic, index, timeout_s=self._timeout_s)).next
        id_ = self._random_bytes(_ID_BYTES).hex()
        try:
            await self._database.call(
                self._database.store.register_consumer, epoch, id_, topic.id, partition, positions
            )
        except TopicMissing as error:
            raise not_found("topic", NO_TOPIC) from error
        return id_
