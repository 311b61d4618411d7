"""The table of calls for people: what each takes, who answers it, and what the docs say."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from flotilla.access import Scope
from flotilla.serving import shapes
from flotilla.serving.people import (
    BAD_PARTITION_TO_CONSUME,
    BAD_PARTITION_TO_PRODUCE,
    EXISTS,
    NO_CONSUMER,
    NO_LOGS,
    NO_PRODUCER,
    NO_TOPIC,
    Answer,
)
from flotilla_manager.api.people import People


@dataclass(frozen=True, kw_only=True)
class Call:
    """One row of the table."""

    method: str
    path: str
    tag: str
    params: type[shapes.Params]
    answer: Callable[..., Awaitable[Answer]]
    by_writer: bool = False  # others pass it on
    topic: str | None = None  # the parameter that names the topic; without one, the gate knows all that is to know
    scope: Scope | None = None  # what a caller needs on that topic; without one, any scope will do
    for_caller: bool = False  # the answer depends on who asks
    refusals: tuple[str, ...] = ()  # word for word
    example: Answer = field(default_factory=dict)

    @property
    def text(self) -> str:
        """What it does."""
        return (self.answer.__doc__ or "").strip()


def make_calls(people: People) -> tuple[Call, ...]:
    """Make the table."""
    return (*_topic_calls(people), *_producer_calls(people), *_consumer_calls(people), *_system_calls(people))


def _topic_calls(people: People) -> tuple[Call, ...]:
    return (
        Call(
            method="POST",
            path="/topics",
            tag="topics",
            params=shapes.CreateTopic,
            answer=people.create_topic,
            topic="name",
            scope=Scope.ADMIN,
            by_writer=True,
            refusals=(EXISTS,),
            example={"message": "Topic 'orders' created successfully."},
        ),
        Call(
            method="GET",
            path="/topics",
            tag="topics",
            params=shapes.Nothing,
            answer=people.list_topics,
            for_caller=True,
            example={"topics": ["orders"]},
        ),
        Call(
            method="GET",
            path="/topics/{name}/partitions",
            tag="topics",
            params=shapes.NamedTopic,
            answer=people.list_partitions,
            topic="name",
            refusals=(NO_TOPIC,),
        ),
        Call(
            method="DELETE",
            path="/topics/{name}",
            tag="topics",
            params=shapes.NamedTopic,
            answer=people.delete_topic,
            topic="name",
            scope=Scope.ADMIN,
            by_writer=True,
            refusals=(NO_TOPIC,),
            example={"message": "Topic 'orders' deleted successfully."},
        ),
    )


def _producer_calls(people: People) -> tuple[Call, ...]:
    return (
        Call(
            method="POST",
            path="/producer/register",
            tag="producers",
            params=shapes.RegisterProducer,
            answer=people.register_producer,
            topic="topic",
            scope=Scope.PRODUCE,
            for_caller=True,
            by_writer=True,
            example={"producer_id": "5f0c…"},
        ),
        Call(
            method="POST",
            path="/producer/produce",
            tag="producers",
            params=shapes.Produce,
            answer=people.produce,
            topic="topic",
            scope=Scope.PRODUCE,
            refusals=(NO_TOPIC, BAD_PARTITION_TO_PRODUCE, NO_PRODUCER),
            example={"partition_index": 0, "offset": 0},
        ),
        Call(
            method="POST",
            path="/producer/heartbeat",
            tag="producers",
            params=shapes.ProducerBeat,
            answer=people.producer_heartbeat,
            refusals=(NO_PRODUCER,),
        ),
        Call(method="GET", path="/producers", tag="producers", params=shapes.Page, answer=people.list_producers),
    )


def _consumer_calls(people: People) -> tuple[Call, ...]:
    return (
        Call(
            method="POST",
            path="/consumer/register",
            tag="consumers",
            params=shapes.RegisterConsumer,
            answer=people.register_consumer,
            topic="topic",
            scope=Scope.CONSUME,
            by_writer=True,
            refusals=(NO_TOPIC, BAD_PARTITION_TO_CONSUME),
            example={"consumer_id": "a61e…"},
        ),
        Call(
            method="GET",
            path="/consumer/consume",
            tag="consumers",
            params=shapes.Consume,
            answer=people.consume,
            topic="topic",
            scope=Scope.CONSUME,
            refusals=(NO_LOGS, NO_TOPIC, BAD_PARTITION_TO_CONSUME, NO_CONSUMER),
            example={"message": "hello", "partition_index": 0, "offset": 0},
        ),
        Call(
            method="GET",
            path="/size",
            tag="consumers",
            params=shapes.Consume,
            answer=people.size,
            topic="topic",
            scope=Scope.CONSUME,
            refusals=(NO_TOPIC, BAD_PARTITION_TO_CONSUME, NO_CONSUMER),
            example={"sizes": [{"partition_number": 0, "size": 1}], "size": 1},
        ),
        Call(
            method="POST",
            path="/consumer/heartbeat",
            tag="consumers",
            params=shapes.ConsumerBeat,
            answer=people.consumer_heartbeat,
            refusals=(NO_CONSUMER,),
        ),
        Call(method="GET", path="/consumers", tag="consumers", params=shapes.Page, answer=people.list_consumers),
    )


def _system_calls(people: People) -> tuple[Call, ...]:
    brokers = {
        "add": people.add_broker,
        "remove": people.remove_broker,
        "activate": people.activate_broker,
        "deactivate": people.deactivate_broker,
    }
    return (
        Call(method="GET", path="/", tag="system", params=shapes.Nothing, answer=people.root),
        Call(method="GET", path="/brokers", tag="system", params=shapes.Nothing, answer=people.list_brokers),
        Call(method="GET", path="/managers", tag="system", params=shapes.Nothing, answer=people.list_managers),
        *(
            Call(
                method="POST",
                path=f"/admin/broker/{name}",
                tag="system",
                params=shapes.BrokerHost,
                answer=answer,
                by_writer=True,
            )
            for name, answer in brokers.items()
        ),
    )
