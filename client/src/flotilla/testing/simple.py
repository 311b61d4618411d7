"""The simple API of the fake, with the messages and the order of checks of managers; see `docs/api.md`."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar

from flotilla.limits import (
    CLIENT_SILENCE_S_DEFAULT,
    MESSAGE_BYTES_MAX_DEFAULT,
    PARTITIONS_DEFAULT,
    REPLICATION_DEFAULT,
)
from flotilla.protocol import simple_params
from flotilla.protocol.errors import Refusal, not_found
from flotilla.protocol.simple import (
    BAD_PARTITION_TO_CONSUME,
    BAD_PARTITION_TO_PRODUCE,
    NO_CONSUMER,
    NO_LOGS,
    NO_PRODUCER,
    NO_TOPIC,
    read_message,
    read_order,
)
from flotilla.protocol.simple_responses import (
    ConsumedResponse,
    ConsumerIdResponse,
    ConsumersResponse,
    ListedConsumerResponse,
    ListedProducerResponse,
    MessageResponse,
    ProducedResponse,
    ProducerIdResponse,
    ProducersResponse,
    SimplePartitionResponse,
    SimpleTopicResponse,
    SizesResponse,
    TopicNamesResponse,
    status,
)
from flotilla.records import NO_PRODUCER as NO_PRODUCER_ID
from flotilla.records import encode
from flotilla.testing.partition import Partition
from flotilla.testing.routing import Routes, simple_handler
from flotilla.testing.state import ClusterState, Settings, Topic

C = TypeVar("C", bound="RegisteredClient")

_NO_PARTITION_FOR_SEQUENCE = "'sequence' requires 'partition_index': sequences are counted per partition."


@dataclass
class RegisteredClient:
    """A registered client."""

    id: str
    topic_id: str
    seen: float


@dataclass
class Producer(RegisteredClient):
    """A registered producer."""

    next_partition: int = 0


@dataclass
class Consumer(RegisteredClient):
    """A registered consumer."""

    partition: int | None
    cursor: int = 0
    positions: dict[int, int] = field(default_factory=dict)


class SimpleApi:
    """Handlers of the simple API."""

    def __init__(self, state: ClusterState, now_ms: Callable[[], int], clock: Callable[[], float]) -> None:
        self._state = state
        self._now_ms = now_ms
        self._clock = clock
        self._producers: dict[str, Producer] = {}
        self._consumers: dict[str, Consumer] = {}

    @property
    def routes(self) -> Routes:
        """The routes."""
        return {
            ("POST", "/topics"): simple_handler(simple_params.CreateTopic, self.create_topic),
            ("GET", "/topics"): simple_handler(simple_params.NoParams, self.list_topics),
            ("GET", "/topics/{name}/partitions"): simple_handler(simple_params.NamedTopic, self.list_partitions),
            ("DELETE", "/topics/{name}"): simple_handler(simple_params.NamedTopic, self.delete_topic),
            ("POST", "/producer/register"): simple_handler(simple_params.RegisterProducer, self.register_producer),
            ("POST", "/producer/produce"): simple_handler(simple_params.Produce, self.produce),
            ("POST", "/producer/heartbeat"): simple_handler(simple_params.ProducerHeartbeat, self.producer_heartbeat),
            ("GET", "/producers"): simple_handler(simple_params.Page, self.list_producers),
            ("POST", "/consumer/register"): simple_handler(simple_params.RegisterConsumer, self.register_consumer),
            ("GET", "/consumer/consume"): simple_handler(simple_params.Consume, self.consume),
            ("GET", "/size"): simple_handler(simple_params.Consume, self.size),
            ("POST", "/consumer/heartbeat"): simple_handler(simple_params.ConsumerHeartbeat, self.consumer_heartbeat),
            ("GET", "/consumers"): simple_handler(simple_params.Page, self.list_consumers),
        }

    def _require(self, name: str, index: int | None, bad_partition: str) -> Topic:
        """Return a topic that has a partition; None means any. Raises Refusal."""
        topic = self._state.topics.get(name)
        if topic is None:
            raise not_found("topic", NO_TOPIC)
        if index is not None and not 0 <= index < len(topic.partitions):
            raise Refusal("bad_request", bad_partition)
        return topic

    # -- topics -------------------------------------------------------------------------------------------

    def create_topic(self, params: simple_params.CreateTopic) -> dict[str, Any]:
        """Create a topic."""
        settings = Settings(
            **params.retention,
            batch_bytes_max=params.batch_bytes_max,
            compression=params.compression,
        )
        self._state.create(params.name, params.number_of_partitions, params.replication, settings)
        return MessageResponse.created(params.name).to_dict()

    def list_topics(self, _: simple_params.NoParams) -> dict[str, Any]:
        """List the topics, in order of creation."""
        return TopicNamesResponse(topics=list(self._state.topics)).to_dict()

    def list_partitions(self, params: simple_params.NamedTopic) -> dict[str, Any]:
        """Describe a topic's partitions."""
        topic = self._require(params.name, None, "")
        found = [self._describe(topic, index, one) for index, one in enumerate(topic.partitions)]
        return SimpleTopicResponse(topic=topic.name, topic_id=topic.id, partitions=found).to_dict()

    def _describe(self, topic: Topic, index: int, partition: Partition) -> SimplePartitionResponse:
        replicas = self._state.replicas(topic, index)
        return SimplePartitionResponse.of(
            index,
            leader=replicas[0],
            replicas=replicas,
            size_bytes=partition.size_bytes,
            first_offset=partition.first_offset,
            next_offset=partition.next_offset,
        )

    def delete_topic(self, params: simple_params.NamedTopic) -> dict[str, Any]:
        """Delete a topic and its messages."""
        self._state.delete(params.name)
        return MessageResponse.deleted(params.name).to_dict()

    # -- producers ----------------------------------------------------------------------------------------

    def register_producer(self, params: simple_params.RegisterProducer) -> dict[str, Any]:
        """Register a producer; create the topic if it does not exist."""
        topic = self._state.topics.get(params.topic)
        if topic is None:
            topic = self._state.create(params.topic, PARTITIONS_DEFAULT, REPLICATION_DEFAULT, Settings())
        producer = Producer(self._state.draw_id(), topic.id, self._clock())
        self._producers[producer.id] = producer
        return ProducerIdResponse(producer_id=producer.id).to_dict()

    def produce(self, params: simple_params.Produce) -> dict[str, Any]:
        """Append one message."""
        value = read_message(params, MESSAGE_BYTES_MAX_DEFAULT)
        topic = self._require(params.topic, params.partition_index, BAD_PARTITION_TO_PRODUCE)
        producer = self._producers.get(params.producer_id)
        if producer is None or producer.topic_id != topic.id:
            raise Refusal("bad_request", NO_PRODUCER)
        producer.seen = self._clock()
        batch = _batch(topic, params, value)
        index = params.partition_index
        if index is None:
            index = producer.next_partition % len(topic.partitions)
            producer.next_partition = index + 1
        offset, _ = topic.partitions[index].append(batch, self._now_ms())
        return ProducedResponse(partition_index=index, offset=offset).to_dict()

    def producer_heartbeat(self, params: simple_params.ProducerHeartbeat) -> dict[str, Any]:
        """Record a heartbeat of a producer."""
        self._touch(self._producers.get(params.producer_id), NO_PRODUCER)
        return {}

    def list_producers(self, params: simple_params.Page) -> dict[str, Any]:
        """List producers; those without recent requests are inactive."""
        found = _page(self._producers.values(), params)
        producers = [
            ListedProducerResponse(producer_id=one.id, topic=topic.name, status=self._status(one))
            for one in found
            if (topic := self._state.by_id(one.topic_id)) is not None
        ]
        after = found[-1].id if len(found) == params.limit else None
        return ProducersResponse(producers=producers, after=after).to_dict()

    # -- consumers ----------------------------------------------------------------------------------------

    def register_consumer(self, params: simple_params.RegisterConsumer) -> dict[str, Any]:
        """Register a consumer."""
        topic = self._require(params.topic, params.partition_index, BAD_PARTITION_TO_CONSUME)
        consumer = Consumer(self._state.draw_id(), topic.id, self._clock(), params.partition_index)
        if params.start == "latest":
            consumer.positions = {index: one.next_offset for index, one in enumerate(topic.partitions)}
        self._consumers[consumer.id] = consumer
        return ConsumerIdResponse(consumer_id=consumer.id).to_dict()

    def consume(self, params: simple_params.Consume) -> dict[str, Any]:
        """Return the next message."""
        topic, consumer = self._find_consumer(params)
        for index in _partitions_to_read(topic, consumer, params.partition_index):
            record = next(topic.partitions[index].records(consumer.positions.get(index, 0)), None)
            if record is not None:
                consumer.positions[index] = record.offset + 1
                if params.partition_index is None:
                    consumer.cursor = (index + 1) % len(topic.partitions)
                return ConsumedResponse.of(record.value, index, record.offset).to_dict()
        raise Refusal("no_records", NO_LOGS)

    def size(self, params: simple_params.Consume) -> dict[str, Any]:
        """Count the messages left to consume."""
        topic, consumer = self._find_consumer(params)
        left = {
            index: max(0, one.next_offset - max(one.first_offset, consumer.positions.get(index, 0)))
            for index in sorted(_partitions_to_read(topic, consumer, params.partition_index))
            for one in (topic.partitions[index],)
        }
        return SizesResponse.of(left).to_dict()

    def _find_consumer(self, params: simple_params.Consume) -> tuple[Topic, Consumer]:
        topic = self._require(params.topic, params.partition_index, BAD_PARTITION_TO_CONSUME)
        consumer, index = self._consumers.get(params.consumer_id), params.partition_index
        is_covered = consumer is not None and (index is None or consumer.partition in {None, index})
        if consumer is None or consumer.topic_id != topic.id or not is_covered:
            raise Refusal("bad_request", NO_CONSUMER)
        consumer.seen = self._clock()
        return topic, consumer

    def consumer_heartbeat(self, params: simple_params.ConsumerHeartbeat) -> dict[str, Any]:
        """Record a heartbeat of a consumer."""
        self._touch(self._consumers.get(params.consumer_id), NO_CONSUMER)
        return {}

    def list_consumers(self, params: simple_params.Page) -> dict[str, Any]:
        """List consumers; those without recent requests are inactive."""
        found = _page(self._consumers.values(), params)
        consumers = [
            ListedConsumerResponse(
                consumer_id=one.id, topic=topic.name, partition_index=one.partition, status=self._status(one)
            )
            for one in found
            if (topic := self._state.by_id(one.topic_id)) is not None
        ]
        after = found[-1].id if len(found) == params.limit else None
        return ConsumersResponse(consumers=consumers, after=after).to_dict()

    def _touch(self, client: RegisteredClient | None, missing: str) -> None:
        if client is None:
            raise Refusal("bad_request", missing)
        client.seen = self._clock()

    def _status(self, client: RegisteredClient) -> str:
        return status(is_active=self._clock() - client.seen <= CLIENT_SILENCE_S_DEFAULT)


def _batch(topic: Topic, params: simple_params.Produce, value: bytes) -> bytearray:
    """Encode a batch of one message. Raises Refusal."""
    if params.sequence is not None and params.partition_index is None:
        raise Refusal("bad_request", _NO_PARTITION_FOR_SEQUENCE)
    batch = encode(
        [value],
        producer_id=NO_PRODUCER_ID if params.sequence is None else bytes.fromhex(params.producer_id),
        producer_epoch=0 if params.sequence is None else params.producer_epoch,
        base_sequence=params.sequence or 0,
    )
    bytes_max = topic.settings.batch_bytes_max
    if bytes_max is not None and len(batch) > bytes_max:
        text = f"The message needs a batch of {len(batch)} bytes; the limit of topic '{topic.name}' is {bytes_max}."
        raise Refusal("too_large", text)
    return batch


def _partitions_to_read(topic: Topic, consumer: Consumer, partition: int | None) -> list[int]:
    """Return the partitions to consume from, in order."""
    only = consumer.partition if partition is None else partition
    return read_order(len(topic.partitions), consumer.cursor, only)


def _page(clients: Iterable[C], params: simple_params.Page) -> list[C]:
    following = (one for one in sorted(clients, key=lambda one: one.id) if one.id > params.after)
    return list(islice(following, params.limit))
