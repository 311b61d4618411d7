"""Handlers of the simple API. Messages and the order of checks are a contract with its users."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from flotilla import __version__
from flotilla.access import Scope
from flotilla.protocol import simple_params
from flotilla.protocol.errors import Refusal, not_found
from flotilla.protocol.simple import (
    BAD_PARTITION_TO_CONSUME,
    BAD_PARTITION_TO_PRODUCE,
    NO_CONSUMER,
    NO_LOGS,
    NO_PRODUCER,
    NO_TOPIC,
    ResponseBody,
    read_message,
)
from flotilla.protocol.simple_responses import (
    BrokerChangedResponse,
    ConsumedResponse,
    ConsumerIdResponse,
    ConsumersResponse,
    ListedConsumerResponse,
    ListedManagerResponse,
    ListedProducerResponse,
    ManagersResponse,
    MessageResponse,
    ProducedResponse,
    ProducerIdResponse,
    ProducersResponse,
    RootResponse,
    SimplePartitionResponse,
    SimpleTopicResponse,
    SizesResponse,
    TopicNamesResponse,
    status,
)
from flotilla.records import encode
from flotilla_manager.clients import NotRegistered
from flotilla_manager.manager import Manager
from flotilla_manager.model import Topic
from flotilla_manager.routing.batching import batch_bytes
from flotilla_server.authorization import require_scope
from flotilla_server.callers import Caller

T = TypeVar("T")


class SimpleApi:
    """Handlers of all calls. Each returns the fields of the response besides `"status": "success"`."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager

    async def _with_topic(
        self, name: str, index: int | None, bad_partition: str, act: Callable[[Topic], Awaitable[T]]
    ) -> T:
        """Check that the topic exists, then the partition index, then call `act`, which checks the client.

        The cache may be a second old. Before a request is rejected, the cache is refreshed: the topic, its partitions
        or a new topic of the same name may be missing in it.
        """
        topic = self._manager.metadata.topic(name)
        if topic is not None and is_partition(topic, index):
            try:
                return await act(topic)
            except NotRegistered:
                pass  # not with the cached topic
        await self._manager.metadata.refresh()
        topic = self._manager.metadata.topic(name)
        if topic is None:
            raise not_found("topic", NO_TOPIC)
        if not is_partition(topic, index):
            raise Refusal("bad_request", bad_partition)
        return await act(topic)

    # -- topics -------------------------------------------------------------------------------------------

    async def create_topic(self, params: simple_params.CreateTopic) -> ResponseBody:
        """Create a topic."""
        await self._manager.writer.topics.create(
            params.name,
            partitions=params.number_of_partitions,
            replication=params.replication,
            **params.retention,
            batch_bytes_max=params.batch_bytes_max,
            compression=params.compression,
        )
        return MessageResponse.created(params.name).to_dict()

    async def list_topics(self, _: simple_params.NoParams, caller: Caller) -> ResponseBody:
        """List topics in order of creation. Topics on which the caller has no scope are left out."""
        await self._manager.metadata.refresh()
        names = [name for name in self._manager.snapshot.ready if caller.sees(name)]
        return TopicNamesResponse(topics=names).to_dict()

    async def list_partitions(self, params: simple_params.NamedTopic) -> ResponseBody:
        """List the partitions of a topic, with leader, replicas, offsets and size."""
        await self._manager.metadata.refresh()
        topic = self._manager.metadata.topic(params.name)
        if topic is None:
            raise not_found("topic", NO_TOPIC)
        found = await asyncio.gather(*(self._describe(topic, index) for index in range(len(topic.partitions))))
        return SimpleTopicResponse(topic=topic.name, topic_id=topic.id, partitions=found).to_dict()

    async def _describe(self, topic: Topic, index: int) -> SimplePartitionResponse:
        partition = topic.partitions[index]
        described = await self._manager.describe_leader(topic, partition)
        return SimplePartitionResponse.of(
            index,
            leader=described.get("leader"),
            replicas=partition.members,
            size_bytes=described.get("size_bytes"),
            first_offset=described.get("first_offset"),
            next_offset=described.get("next_offset"),
        )

    async def delete_topic(self, params: simple_params.NamedTopic) -> ResponseBody:
        """Delete a topic and its messages."""
        await self._manager.writer.topics.delete(params.name)
        return MessageResponse.deleted(params.name).to_dict()

    # -- producers ----------------------------------------------------------------------------------------

    async def register_producer(self, params: simple_params.RegisterProducer, caller: Caller) -> ResponseBody:
        """Register a producer. Creates the topic if it does not exist."""
        producer = await self._manager.writer.registrations.register_producer(
            params.topic, before_create=lambda: require_scope(caller, Scope.ADMIN, params.topic)
        )
        self._manager.producers.learn(producer)
        return ProducerIdResponse(producer_id=producer.id).to_dict()

    async def produce(self, params: simple_params.Produce) -> ResponseBody:
        """Append a message to a partition. Without `partition_index`, partitions are used in turn."""
        value = read_message(params, self._manager.settings.message_bytes_max)
        index, offset = await self._with_topic(
            params.topic,
            params.partition_index,
            BAD_PARTITION_TO_PRODUCE,
            lambda topic: self._append(topic, params, value),
        )
        return ProducedResponse(partition_index=index, offset=offset).to_dict()

    async def _append(self, topic: Topic, params: simple_params.Produce, value: bytes) -> tuple[int, int]:
        manager = self._manager
        if not await manager.producers.is_registered(params.producer_id, topic.id):
            raise NotRegistered(NO_PRODUCER)
        manager.liveness.producer(params.producer_id)
        check_topic_takes(topic, value)
        if params.sequence is not None:
            return await self._append_in_sequence(topic, params, value)
        index = params.partition_index
        if index is None:
            index = manager.producers.next_partition(params.producer_id, len(topic.partitions))
        return index, await manager.batchers.append(topic, index, value)

    async def _append_in_sequence(self, topic: Topic, params: simple_params.Produce, value: bytes) -> tuple[int, int]:
        """Append a message with a sequence: retries are stored once."""
        index, sequence = params.partition_index, params.sequence
        if index is None or sequence is None:
            text = "'sequence' requires 'partition_index': sequences are counted per partition."
            raise Refusal("bad_request", text)
        batch = encode(
            [value],
            producer_id=bytes.fromhex(params.producer_id),
            producer_epoch=params.producer_epoch,
            base_sequence=sequence,
        )
        with self._manager.batchers.in_flight.hold(len(batch)):
            appended = await self._manager.gateway.append(
                topic,
                index,
                batch,
                timeout_s=self._manager.settings.request_s_max,
                advice="send the message again with the same 'sequence'",
            )
        return index, appended.base_offset

    async def producer_heartbeat(self, params: simple_params.ProducerHeartbeat) -> ResponseBody:
        """Send a producer's heartbeat."""
        if not await self._manager.producers.is_known(params.producer_id):
            raise Refusal("bad_request", NO_PRODUCER)
        self._manager.liveness.producer(params.producer_id)
        return {}

    async def list_producers(self, params: simple_params.Page) -> ResponseBody:
        """List registered producers by id. Producers without a recent request or heartbeat are inactive."""
        manager = self._manager
        await manager.liveness.write()
        found = await manager.database.call(
            manager.database.store.list_producers, params.after, params.limit, manager.settings.client_silence_s
        )
        await manager.metadata.refresh()
        names = manager.snapshot.topics_by_id
        producers = [
            ListedProducerResponse(
                producer_id=one.id, topic=names[one.topic_id].name, status=status(is_active=one.active)
            )
            for one in found
            if one.topic_id in names
        ]
        after = found[-1].id if len(found) == params.limit else None
        return ProducersResponse(producers=producers, after=after).to_dict()

    # -- consumers ----------------------------------------------------------------------------------------

    async def register_consumer(self, params: simple_params.RegisterConsumer) -> ResponseBody:
        """Register a consumer of a topic, or of one partition."""
        id_ = await self._manager.writer.registrations.register_consumer(
            params.topic, params.partition_index, latest=params.start == "latest"
        )
        return ConsumerIdResponse(consumer_id=id_).to_dict()

    async def consume(self, params: simple_params.Consume) -> ResponseBody:
        """Return the next message, and advance the consumer's position."""
        found = await self._with_topic(
            params.topic,
            params.partition_index,
            BAD_PARTITION_TO_CONSUME,
            lambda topic: self._manager.consumers.consume(topic, params.consumer_id, params.partition_index),
        )
        if found is None:
            self._manager.liveness.consumer(params.consumer_id)  # a step updates the last-seen time itself
            raise Refusal("no_records", NO_LOGS)
        return ConsumedResponse.of(found.value, found.partition, found.offset).to_dict()

    async def size(self, params: simple_params.Consume) -> ResponseBody:
        """Count the messages that a consumer has not read."""
        timeout_s = self._manager.settings.request_s_max
        left = await self._with_topic(
            params.topic,
            params.partition_index,
            BAD_PARTITION_TO_CONSUME,
            lambda topic: self._manager.consumers.lag(topic, params.consumer_id, params.partition_index, timeout_s),
        )
        self._manager.liveness.consumer(params.consumer_id)
        return SizesResponse.of(left).to_dict()

    async def consumer_heartbeat(self, params: simple_params.ConsumerHeartbeat) -> ResponseBody:
        """Send a consumer's heartbeat."""
        if not await self._manager.consumers.is_known(params.consumer_id):
            raise Refusal("bad_request", NO_CONSUMER)
        self._manager.liveness.consumer(params.consumer_id)
        return {}

    async def list_consumers(self, params: simple_params.Page) -> ResponseBody:
        """List registered consumers by id. Consumers without a recent request or heartbeat are inactive."""
        manager = self._manager
        await manager.liveness.write()
        found = await manager.database.call(
            manager.database.store.list_consumers, params.after, params.limit, manager.settings.client_silence_s
        )
        await manager.metadata.refresh()
        names = manager.snapshot.topics_by_id
        consumers = [
            ListedConsumerResponse(
                consumer_id=one.id,
                topic=names[one.topic_id].name,
                partition_index=one.partition,
                status=status(is_active=one.active),
            )
            for one in found
            if one.topic_id in names
        ]
        after = found[-1].id if len(found) == params.limit else None
        return ConsumersResponse(consumers=consumers, after=after).to_dict()

    # -- the system ---------------------------------------------------------------------------------------

    async def root(self, _: simple_params.NoParams) -> ResponseBody:
        """Show the version and role of this manager."""
        return RootResponse(version=__version__, role=self._manager.role).to_dict()

    async def list_brokers(self, _: simple_params.NoParams) -> ResponseBody:
        """List brokers."""
        await self._manager.metadata.refresh()
        return {"brokers": self._manager.describe_brokers()}

    async def list_managers(self, _: simple_params.NoParams) -> ResponseBody:
        """List managers. Managers without a recent heartbeat are inactive."""
        found = await self._manager.list_managers()
        managers = [
            ListedManagerResponse(name=one.name, role=one.role, url=one.url, status=status(is_active=one.active))
            for one in found
        ]
        return ManagersResponse(managers=managers).to_dict()

    async def add_broker(self, params: simple_params.BrokerHost) -> ResponseBody:
        """Add a broker. A broker that was removed takes part again."""
        id_ = await self._manager.writer.brokers.add(params.broker_host)
        return BrokerChangedResponse.of("added", id_).to_dict()

    async def remove_broker(self, params: simple_params.BrokerHost) -> ResponseBody:
        """Remove a broker that holds no replicas."""
        id_ = await self._manager.writer.brokers.remove(params.broker_host)
        return BrokerChangedResponse.of("removed", id_).to_dict()

    async def activate_broker(self, params: simple_params.BrokerHost) -> ResponseBody:
        """Uncordon a broker. It can get new replicas and lead partitions."""
        id_ = await self._manager.writer.brokers.cordon(params.broker_host, cordoned=False)
        return BrokerChangedResponse.of("activated", id_).to_dict()

    async def deactivate_broker(self, params: simple_params.BrokerHost) -> ResponseBody:
        """Cordon a broker. It gets no new replicas, and its leaders move to other brokers."""
        id_ = await self._manager.writer.brokers.cordon(params.broker_host, cordoned=True)
        return BrokerChangedResponse.of("deactivated", id_).to_dict()


def is_partition(topic: Topic, index: int | None) -> bool:
    """Return whether a topic has a partition; None stands for any."""
    return index is None or 0 <= index < len(topic.partitions)


def check_topic_takes(topic: Topic, value: bytes) -> None:
    """Reject a message that exceeds the batch limit of its topic."""
    size, bytes_max = batch_bytes(1, len(value)), topic.batch_bytes_max
    if bytes_max is not None and size > bytes_max:
        text = f"The message needs a batch of {size} bytes; the limit of topic '{topic.name}' is {bytes_max}."
        raise Refusal("too_large", text)
