"""The API for people and curl, word for word: what each call does, in the stated order of checks."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from flotilla import __version__
from flotilla.access import Caller, Scope
from flotilla.records import encode
from flotilla.serving import shapes
from flotilla.serving.errors import Refusal
from flotilla.serving.gate import require_of
from flotilla.serving.people import (
    BAD_PARTITION_TO_CONSUME,
    BAD_PARTITION_TO_PRODUCE,
    NO_CONSUMER,
    NO_LOGS,
    NO_PRODUCER,
    NO_TOPIC,
    Answer,
    read_message,
    write_message,
)
from flotilla_manager.clients import NotRegistered
from flotilla_manager.manager import Manager
from flotilla_manager.model import Topic
from flotilla_manager.routing.lanes import batch_bytes

T = TypeVar("T")


class People:
    """Every call of the table; each returns what is told beside `"status": "success"`."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager

    async def _with_topic(
        self, name: str, index: int | None, bad_partition: str, act: Callable[[Topic], Awaitable[T]]
    ) -> T:
        """Act on a topic: it exists, then the partition index is valid, and then `act` looks for the client.

        What is known here may be a second old: before anybody is refused, the database is asked for a newer topic,
        for partitions that were added, for another topic of the same name.
        """
        topic = self._manager.view.topic(name)
        if topic is not None and is_partition(topic, index):
            try:
                return await act(topic)
            except NotRegistered:
                pass  # with this one
        await self._manager.view.refresh()
        topic = self._manager.view.topic(name)
        if topic is None:
            raise Refusal("bad_request", NO_TOPIC)
        if not is_partition(topic, index):
            raise Refusal("bad_request", bad_partition)
        return await act(topic)

    # -- topics -------------------------------------------------------------------------------------------

    async def create_topic(self, params: shapes.CreateTopic) -> Answer:
        """Make a topic. Only the writer does."""
        await self._manager.writer.create_topic(
            params.name,
            partitions=params.number_of_partitions,
            replication=params.replication,
            **params.retention,
            batch_bytes_max=params.batch_bytes_max,
            compression=params.compression,
        )
        return {"message": f"Topic '{params.name}' created successfully."}

    async def list_topics(self, _: shapes.Nothing, caller: Caller) -> Answer:
        """List the topics, in order of creation: those on which the caller has any scope."""
        await self._manager.view.refresh()
        return {"topics": [name for name in self._manager.snapshot.ready if caller.sees(name)]}

    async def list_partitions(self, params: shapes.NamedTopic) -> Answer:
        """Tell where a topic's partitions are, and what is in them."""
        await self._manager.view.refresh()
        topic = self._manager.view.topic(params.name)
        if topic is None:
            raise Refusal("bad_request", NO_TOPIC)
        found = await asyncio.gather(*(self._describe(topic, index) for index in range(len(topic.partitions))))
        return {"topic": topic.name, "topic_id": topic.id, "partitions": found}

    async def _describe(self, topic: Topic, index: int) -> Answer:
        partition = topic.partitions[index]
        described = await self._manager.describe_leader(topic, partition)
        first, end = described.get("first_offset"), described.get("next_offset")
        return {
            "partition_index": index,
            "leader": described.get("leader"),
            "replicas": list(partition.members),
            "size": None if first is None or end is None else end - first,
            "size_bytes": described.get("size_bytes"),
            "first_offset": first,
            "next_offset": end,
        }

    async def delete_topic(self, params: shapes.NamedTopic) -> Answer:
        """Remove a topic and its messages. Only the writer does."""
        await self._manager.writer.delete_topic(params.name)
        return {"message": f"Topic '{params.name}' deleted successfully."}

    # -- producers ----------------------------------------------------------------------------------------

    async def register_producer(self, params: shapes.RegisterProducer, caller: Caller) -> Answer:
        """Register a producer, and make the topic if it is not there. Only the writer does."""
        producer = await self._manager.writer.register_producer(
            params.topic, before_making=lambda: require_of(caller, Scope.ADMIN, params.topic)
        )
        self._manager.producers.learn(producer)
        return {"producer_id": producer.id}

    async def produce(self, params: shapes.Produce) -> Answer:
        """Append one message."""
        value = read_message(params, self._manager.settings.message_bytes_max)
        index, offset = await self._with_topic(
            params.topic,
            params.partition_index,
            BAD_PARTITION_TO_PRODUCE,
            lambda topic: self._append(topic, params, value),
        )
        return {"partition_index": index, "offset": offset}

    async def _append(self, topic: Topic, params: shapes.Produce, value: bytes) -> tuple[int, int]:
        manager = self._manager
        if not await manager.producers.is_registered(params.producer_id, topic.id):
            raise NotRegistered(NO_PRODUCER)
        manager.signs.producer(params.producer_id)
        check_topic_takes(topic, value)
        if params.sequence is not None:
            return await self._append_in_sequence(topic, params, value)
        index = params.partition_index
        if index is None:
            index = manager.producers.next_turn(params.producer_id, len(topic.partitions))
        return index, await manager.lanes.append(topic, index, value)

    async def _append_in_sequence(self, topic: Topic, params: shapes.Produce, value: bytes) -> tuple[int, int]:
        """Append a message that may be sent again: it is stored once."""
        index, sequence = params.partition_index, params.sequence
        if index is None or sequence is None:
            text = "A 'sequence' counts messages in one partition: give its 'partition_index' too."
            raise Refusal("bad_request", text)
        batch = encode(
            [value],
            producer_id=bytes.fromhex(params.producer_id),
            producer_epoch=params.producer_epoch,
            base_sequence=sequence,
        )
        with self._manager.lanes.in_flight.hold(len(batch)):
            appended = await self._manager.gateway.append(
                topic, index, batch, seconds=self._manager.settings.request_s_max
            )
        return index, appended.base_offset

    async def producer_heartbeat(self, params: shapes.ProducerBeat) -> Answer:
        """Show that a producer lives."""
        if not await self._manager.producers.is_known(params.producer_id):
            raise Refusal("bad_request", NO_PRODUCER)
        self._manager.signs.producer(params.producer_id)
        return {}

    async def list_producers(self, params: shapes.Page) -> Answer:
        """List the producers; those that fell silent show as inactive."""
        manager = self._manager
        await manager.signs.write()
        found = await manager.database.call(
            manager.database.store.list_producers, params.after, params.limit, manager.settings.client_silence_s
        )
        await manager.view.refresh()
        names = manager.snapshot.topics_by_id
        producers = [
            {"producer_id": one.id, "topic": names[one.topic_id].name, "status": _status(one.active)}
            for one in found
            if one.topic_id in names
        ]
        return {"producers": producers, "after": found[-1].id if len(found) == params.limit else None}

    # -- consumers ----------------------------------------------------------------------------------------

    async def register_consumer(self, params: shapes.RegisterConsumer) -> Answer:
        """Register a consumer. Only the writer does."""
        id_ = await self._manager.writer.register_consumer(
            params.topic, params.partition_index, latest=params.start == "latest"
        )
        return {"consumer_id": id_}

    async def consume(self, params: shapes.Consume) -> Answer:
        """Hand out the next message."""
        found = await self._with_topic(
            params.topic,
            params.partition_index,
            BAD_PARTITION_TO_CONSUME,
            lambda topic: self._manager.consuming.consume(topic, params.consumer_id, params.partition_index),
        )
        if found is None:
            self._manager.signs.consumer(params.consumer_id)  # a step, if there is one, is a sign of life itself
            raise Refusal("bad_request", NO_LOGS)
        return {**write_message(found.value), "partition_index": found.partition, "offset": found.offset}

    async def size(self, params: shapes.Consume) -> Answer:
        """Count what is left for a consumer."""
        seconds = self._manager.settings.request_s_max
        left = await self._with_topic(
            params.topic,
            params.partition_index,
            BAD_PARTITION_TO_CONSUME,
            lambda topic: self._manager.consuming.left(topic, params.consumer_id, params.partition_index, seconds),
        )
        self._manager.signs.consumer(params.consumer_id)
        sizes = [{"partition_number": index, "size": size} for index, size in left.items()]
        return {"sizes": sizes, "size": sum(left.values())}

    async def consumer_heartbeat(self, params: shapes.ConsumerBeat) -> Answer:
        """Show that a consumer lives."""
        if not await self._manager.consuming.is_known(params.consumer_id):
            raise Refusal("bad_request", NO_CONSUMER)
        self._manager.signs.consumer(params.consumer_id)
        return {}

    async def list_consumers(self, params: shapes.Page) -> Answer:
        """List the consumers; those that fell silent show as inactive."""
        manager = self._manager
        await manager.signs.write()
        found = await manager.database.call(
            manager.database.store.list_consumers, params.after, params.limit, manager.settings.client_silence_s
        )
        await manager.view.refresh()
        names = manager.snapshot.topics_by_id
        consumers = [
            {
                "consumer_id": one.id,
                "topic": names[one.topic_id].name,
                "partition_index": one.partition,
                "status": _status(one.active),
            }
            for one in found
            if one.topic_id in names
        ]
        return {"consumers": consumers, "after": found[-1].id if len(found) == params.limit else None}

    # -- the system ---------------------------------------------------------------------------------------

    async def root(self, _: shapes.Nothing) -> Answer:
        """Say hello."""
        role = self._manager.role
        return {"message": "Flotilla, a replicated log queue.", "version": __version__, "role": role, "docs": "/docs"}

    async def list_brokers(self, _: shapes.Nothing) -> Answer:
        """List the brokers."""
        await self._manager.view.refresh()
        return {"brokers": self._manager.describe_brokers()}

    async def list_managers(self, _: shapes.Nothing) -> Answer:
        """List the managers; those that fell silent show as inactive."""
        found = await self._manager.list_managers()
        managers = [
            {"name": one.name, "role": one.role, "url": one.url, "status": _status(one.active)} for one in found
        ]
        return {"managers": managers}

    async def add_broker(self, params: shapes.BrokerHost) -> Answer:
        """Let a broker take part. Only the writer does."""
        id_ = await self._manager.writer.add_broker(params.broker_host)
        return {"message": "Broker added successfully.", "broker_id": id_}

    async def remove_broker(self, params: shapes.BrokerHost) -> Answer:
        """Do without a broker that holds no replicas. Only the writer does."""
        id_ = await self._manager.writer.remove_broker(params.broker_host)
        return {"message": "Broker removed successfully.", "broker_id": id_}

    async def activate_broker(self, params: shapes.BrokerHost) -> Answer:
        """Let a broker take new replicas and lead. Only the writer does."""
        id_ = await self._manager.writer.cordon_broker(params.broker_host, cordoned=False)
        return {"message": "Broker activated successfully.", "broker_id": id_}

    async def deactivate_broker(self, params: shapes.BrokerHost) -> Answer:
        """Keep new replicas from a broker, and move leaders away. Only the writer does."""
        id_ = await self._manager.writer.cordon_broker(params.broker_host, cordoned=True)
        return {"message": "Broker deactivated successfully.", "broker_id": id_}


def is_partition(topic: Topic, index: int | None) -> bool:
    """Tell whether a topic has a partition; no index means any."""
    return index is None or 0 <= index < len(topic.partitions)


def _status(active: bool) -> str:
    return "active" if active else "inactive"


def check_topic_takes(topic: Topic, value: bytes) -> None:
    """Refuse a message that is too large for its topic, alone in a batch."""
    size, bytes_max = batch_bytes(1, len(value)), topic.batch_bytes_max
    if bytes_max is not None and size > bytes_max:
        text = f"The message makes a batch of {size} bytes; topic '{topic.name}' takes up to {bytes_max}."
        raise Refusal("too_large", text)
