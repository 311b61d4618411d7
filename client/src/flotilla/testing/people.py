"""The API for people and curl, word for word, in the stated order of checks; see `docs/api.md`."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar

from flotilla.records import NO_PRODUCER as NOBODY
from flotilla.records import encode
from flotilla.serving import shapes
from flotilla.serving.errors import Refusal
from flotilla.serving.people import (
    BAD_PARTITION_TO_CONSUME,
    BAD_PARTITION_TO_PRODUCE,
    NO_CONSUMER,
    NO_LOGS,
    NO_PRODUCER,
    NO_TOPIC,
    read_message,
    write_message,
)
from flotilla.testing.calls import Table, for_people
from flotilla.testing.partition import Partition
from flotilla.testing.world import MESSAGE_BYTES_MAX, Settings, Topic, World

C = TypeVar("C", bound="Client")

_SILENCE_S = 30.0  # who says nothing for so long shows as inactive
_NO_SEQUENCE_PLACE = "A 'sequence' counts messages in one partition: give its 'partition_index' too."


@dataclass
class Client:
    """Somebody who has registered."""

    id: str
    topic_id: str
    seen: float


@dataclass
class Producer(Client):
    """A producer, and whose turn it is."""

    turn: int = 0


@dataclass
class Consumer(Client):
    """A consumer, and where it is."""

    partition: int | None
    cursor: int = 0
    positions: dict[int, int] = field(default_factory=dict)


class People:
    """Answers people."""

    def __init__(self, world: World, now_ms: Callable[[], int], clock: Callable[[], float]) -> None:
        self._world = world
        self._now_ms = now_ms
        self._clock = clock
        self._producers: dict[str, Producer] = {}
        self._consumers: dict[str, Consumer] = {}

    @property
    def table(self) -> Table:
        """The calls."""
        return {
            ("POST", "/topics"): for_people(shapes.CreateTopic, self.create_topic),
            ("GET", "/topics"): for_people(shapes.Nothing, lambda _: {"topics": list(self._world.topics)}),
            ("GET", "/topics/{name}/partitions"): for_people(shapes.NamedTopic, self.list_partitions),
            ("DELETE", "/topics/{name}"): for_people(shapes.NamedTopic, self.delete_topic),
            ("POST", "/producer/register"): for_people(shapes.RegisterProducer, self.register_producer),
            ("POST", "/producer/produce"): for_people(shapes.Produce, self.produce),
            ("POST", "/producer/heartbeat"): for_people(shapes.ProducerBeat, self.producer_heartbeat),
            ("GET", "/producers"): for_people(shapes.Page, self.list_producers),
            ("POST", "/consumer/register"): for_people(shapes.RegisterConsumer, self.register_consumer),
            ("GET", "/consumer/consume"): for_people(shapes.Consume, self.consume),
            ("GET", "/size"): for_people(shapes.Consume, self.size),
            ("POST", "/consumer/heartbeat"): for_people(shapes.ConsumerBeat, self.consumer_heartbeat),
            ("GET", "/consumers"): for_people(shapes.Page, self.list_consumers),
        }

    def _require(self, name: str, index: int | None, bad_partition: str) -> Topic:
        """Find a topic that has a partition; no index means any. Raises Refusal."""
        topic = self._world.topics.get(name)
        if topic is None:
            raise Refusal("bad_request", NO_TOPIC)
        if index is not None and not 0 <= index < len(topic.partitions):
            raise Refusal("bad_request", bad_partition)
        return topic

    # -- topics -------------------------------------------------------------------------------------------

    def create_topic(self, params: shapes.CreateTopic) -> dict[str, Any]:
        """Make a topic."""
        settings = Settings(
            **params.retention,
            batch_bytes_max=params.batch_bytes_max,
            compression=params.compression,
        )
        self._world.create(params.name, params.number_of_partitions, params.replication, settings)
        return {"message": f"Topic '{params.name}' created successfully."}

    def list_partitions(self, params: shapes.NamedTopic) -> dict[str, Any]:
        """Tell where a topic's partitions are, and what is in them."""
        topic = self._require(params.name, None, "")
        found = [self._describe(topic, index, one) for index, one in enumerate(topic.partitions)]
        return {"topic": topic.name, "topic_id": topic.id, "partitions": found}

    def _describe(self, topic: Topic, index: int, partition: Partition) -> dict[str, Any]:
        replicas = self._world.replicas(topic, index)
        return {
            "partition_index": index,
            "leader": replicas[0],
            "replicas": replicas,
            "size": partition.next_offset - partition.first_offset,
            "size_bytes": partition.size_bytes,
            "first_offset": partition.first_offset,
            "next_offset": partition.next_offset,
        }

    def delete_topic(self, params: shapes.NamedTopic) -> dict[str, Any]:
        """Remove a topic and its messages."""
        self._world.delete(params.name)
        return {"message": f"Topic '{params.name}' deleted successfully."}

    # -- producers ----------------------------------------------------------------------------------------

    def register_producer(self, params: shapes.RegisterProducer) -> dict[str, Any]:
        """Register a producer, and make the topic if it is not there."""
        topic = self._world.topics.get(params.topic) or self._world.create(params.topic, 2, 3, Settings())
        producer = Producer(self._world.draw_id(), topic.id, self._clock())
        self._producers[producer.id] = producer
        return {"producer_id": producer.id}

    def produce(self, params: shapes.Produce) -> dict[str, Any]:
        """Append one message."""
        value = read_message(params, MESSAGE_BYTES_MAX)
        topic = self._require(params.topic, params.partition_index, BAD_PARTITION_TO_PRODUCE)
        producer = self._producers.get(params.producer_id)
        if producer is None or producer.topic_id != topic.id:
            raise Refusal("bad_request", NO_PRODUCER)
        producer.seen = self._clock()
        batch = _batch(topic, params, value)
        index = params.partition_index
        if index is None:
            index = producer.turn % len(topic.partitions)
            producer.turn = index + 1
        offset, _ = topic.partitions[index].append(batch, self._now_ms())
        return {"partition_index": index, "offset": offset}

    def producer_heartbeat(self, params: shapes.ProducerBeat) -> dict[str, Any]:
        """Show that a producer lives."""
        self._hear(self._producers.get(params.producer_id), NO_PRODUCER)
        return {}

    def list_producers(self, params: shapes.Page) -> dict[str, Any]:
        """List the producers; those that fell silent show as inactive."""
        found = _page(self._producers.values(), params)
        producers = [{"producer_id": one.id, **rest} for one in found if (rest := self._status(one))]
        return {"producers": producers, "after": found[-1].id if len(found) == params.limit else None}

    # -- consumers ----------------------------------------------------------------------------------------

    def register_consumer(self, params: shapes.RegisterConsumer) -> dict[str, Any]:
        """Register a consumer."""
        topic = self._require(params.topic, params.partition_index, BAD_PARTITION_TO_CONSUME)
        consumer = Consumer(self._world.draw_id(), topic.id, self._clock(), params.partition_index)
        if params.start == "latest":
            consumer.positions = {index: one.next_offset for index, one in enumerate(topic.partitions)}
        self._consumers[consumer.id] = consumer
        return {"consumer_id": consumer.id}

    def consume(self, params: shapes.Consume) -> dict[str, Any]:
        """Hand out the next message."""
        topic, consumer = self._find_consumer(params)
        for index in _turns(topic, consumer, params.partition_index):
            record = next(topic.partitions[index].records(consumer.positions.get(index, 0)), None)
            if record is not None:
                consumer.positions[index] = record.offset + 1
                if params.partition_index is None:
                    consumer.cursor = (index + 1) % len(topic.partitions)
                return {**write_message(record.value), "partition_index": index, "offset": record.offset}
        raise Refusal("bad_request", NO_LOGS)

    def size(self, params: shapes.Consume) -> dict[str, Any]:
        """Count what is left for a consumer."""
        topic, consumer = self._find_consumer(params)
        left = {
            index: max(0, one.next_offset - max(one.first_offset, consumer.positions.get(index, 0)))
            for index in sorted(_turns(topic, consumer, params.partition_index))
            for one in (topic.partitions[index],)
        }
        sizes = [{"partition_number": index, "size": size} for index, size in left.items()]
        return {"sizes": sizes, "size": sum(left.values())}

    def _find_consumer(self, params: shapes.Consume) -> tuple[Topic, Consumer]:
        topic = self._require(params.topic, params.partition_index, BAD_PARTITION_TO_CONSUME)
        consumer, index = self._consumers.get(params.consumer_id), params.partition_index
        is_covered = consumer is not None and (index is None or consumer.partition in {None, index})
        if consumer is None or consumer.topic_id != topic.id or not is_covered:
            raise Refusal("bad_request", NO_CONSUMER)
        consumer.seen = self._clock()
        return topic, consumer

    def consumer_heartbeat(self, params: shapes.ConsumerBeat) -> dict[str, Any]:
        """Show that a consumer lives."""
        self._hear(self._consumers.get(params.consumer_id), NO_CONSUMER)
        return {}

    def list_consumers(self, params: shapes.Page) -> dict[str, Any]:
        """List the consumers; those that fell silent show as inactive."""
        found = _page(self._consumers.values(), params)
        consumers = [
            {"consumer_id": one.id, "topic": rest["topic"], "partition_index": one.partition, "status": rest["status"]}
            for one in found
            if (rest := self._status(one))
        ]
        return {"consumers": consumers, "after": found[-1].id if len(found) == params.limit else None}

    def _hear(self, client: Client | None, missing: str) -> None:
        if client is None:
            raise Refusal("bad_request", missing)
        client.seen = self._clock()

    def _status(self, client: Client) -> dict[str, str]:
        """Tell of whom a client is, and whether it lives; nothing if its topic is gone."""
        topic = self._world.by_id(client.topic_id)
        is_active = self._clock() - client.seen <= _SILENCE_S
        return {} if topic is None else {"topic": topic.name, "status": "active" if is_active else "inactive"}


def _batch(topic: Topic, params: shapes.Produce, value: bytes) -> bytearray:
    """Make a batch of one message. Raises Refusal."""
    if params.sequence is not None and params.partition_index is None:
        raise Refusal("bad_request", _NO_SEQUENCE_PLACE)
    batch = encode(
        [value],
        producer_id=NOBODY if params.sequence is None else bytes.fromhex(params.producer_id),
        producer_epoch=0 if params.sequence is None else params.producer_epoch,
        base_sequence=params.sequence or 0,
    )
    bytes_max = topic.settings.batch_bytes_max
    if bytes_max is not None and len(batch) > bytes_max:
        text = f"The message makes a batch of {len(batch)} bytes; topic '{topic.name}' takes up to {bytes_max}."
        raise Refusal("too_large", text)
    return batch


def _turns(topic: Topic, consumer: Consumer, partition: int | None) -> list[int]:
    """Name the partitions to look into, in order."""
    only = consumer.partition if partition is None else partition
    if only is not None:
        return [only]
    count = len(topic.partitions)
    return [(consumer.cursor + at) % count for at in range(count)]


def _page(clients: Iterable[C], params: shapes.Page) -> list[C]:
    behind = (one for one in sorted(clients, key=lambda one: one.id) if one.id > params.after)
    return list(islice(behind, params.limit))
