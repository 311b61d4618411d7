"""Table of the calls of the simple API: parameters, handler, required scope and documentation."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from flotilla.access import Scope
from flotilla.protocol import simple_params
from flotilla.protocol.simple import (
    BAD_PARTITION_TO_CONSUME,
    BAD_PARTITION_TO_PRODUCE,
    EXISTS,
    NO_CONSUMER,
    NO_LOGS,
    NO_PRODUCER,
    NO_TOPIC,
    ResponseBody,
)
from flotilla_manager.api.simple import SimpleApi


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call of the simple API."""

    method: str
    path: str
    tag: str
    params: type[simple_params.Params]
    answer: Callable[..., Awaitable[ResponseBody]]
    by_writer: bool = False  # other managers forward it
    topic: str | None = None  # parameter with the topic; None if the gate checks everything
    scope: Scope | None = None  # required scope on that topic; None: any scope
    for_caller: bool = False  # the handler gets the caller
    refusals: tuple[str, ...] = ()  # exact messages
    example: ResponseBody = field(default_factory=dict)

    @property
    def text(self) -> str:
        """Description of the call: the docstring of its handler."""
        return (self.answer.__doc__ or "").strip()


def make_calls(simple: SimpleApi) -> tuple[Call, ...]:
    """Create the table."""
    return (*_topic_calls(simple), *_producer_calls(simple), *_consumer_calls(simple), *_system_calls(simple))


def _topic_calls(simple: SimpleApi) -> tuple[Call, ...]:
    return (
        Call(
            method="POST",
            path="/topics",
            tag="topics",
            params=simple_params.CreateTopic,
            answer=simple.create_topic,
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
            params=simple_params.NoParams,
            answer=simple.list_topics,
            for_caller=True,
            example={"topics": ["orders"]},
        ),
        Call(
            method="GET",
            path="/topics/{name}/partitions",
            tag="topics",
            params=simple_params.NamedTopic,
            answer=simple.list_partitions,
            topic="name",
            refusals=(NO_TOPIC,),
        ),
        Call(
            method="DELETE",
            path="/topics/{name}",
            tag="topics",
            params=simple_params.NamedTopic,
            answer=simple.delete_topic,
            topic="name",
            scope=Scope.ADMIN,
            by_writer=True,
            refusals=(NO_TOPIC,),
            example={"message": "Topic 'orders' deleted successfully."},
        ),
    )


def _producer_calls(simple: SimpleApi) -> tuple[Call, ...]:
    return (
        Call(
            method="POST",
            path="/producer/register",
            tag="producers",
            params=simple_params.RegisterProducer,
            answer=simple.register_producer,
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
            params=simple_params.Produce,
            answer=simple.produce,
            topic="topic",
            scope=Scope.PRODUCE,
            refusals=(NO_TOPIC, BAD_PARTITION_TO_PRODUCE, NO_PRODUCER),
            example={"partition_index": 0, "offset": 0},
        ),
        Call(
            method="POST",
            path="/producer/heartbeat",
            tag="producers",
            params=simple_params.ProducerHeartbeat,
            answer=simple.producer_heartbeat,
            refusals=(NO_PRODUCER,),
        ),
        Call(method="GET", path="/producers", tag="producers", params=simple_params.Page, answer=simple.list_producers),
    )


def _consumer_calls(simple: SimpleApi) -> tuple[Call, ...]:
    return (
        Call(
            method="POST",
            path="/consumer/register",
            tag="consumers",
            params=simple_params.RegisterConsumer,
            answer=simple.register_consumer,
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
            params=simple_params.Consume,
            answer=simple.consume,
            topic="topic",
            scope=Scope.CONSUME,
            refusals=(NO_LOGS, NO_TOPIC, BAD_PARTITION_TO_CONSUME, NO_CONSUMER),
            example={"message": "hello", "partition_index": 0, "offset": 0},
        ),
        Call(
            method="GET",
            path="/size",
            tag="consumers",
            params=simple_params.Consume,
            answer=simple.size,
            topic="topic",
            scope=Scope.CONSUME,
            refusals=(NO_TOPIC, BAD_PARTITION_TO_CONSUME, NO_CONSUMER),
            example={"sizes": [{"partition_number": 0, "size": 1}], "size": 1},
        ),
        Call(
            method="POST",
            path="/consumer/heartbeat",
            tag="consumers",
            params=simple_params.ConsumerHeartbeat,
            answer=simple.consumer_heartbeat,
            refusals=(NO_CONSUMER,),
        ),
        Call(method="GET", path="/consumers", tag="consumers", params=simple_params.Page, answer=simple.list_consumers),
    )


def _system_calls(simple: SimpleApi) -> tuple[Call, ...]:
    brokers = {
        "add": simple.add_broker,
        "remove": simple.remove_broker,
        "activate": simple.activate_broker,
        "deactivate": simple.deactivate_broker,
    }
    return (
        Call(method="GET", path="/", tag="cluster", params=simple_params.NoParams, answer=simple.root),
        Call(method="GET", path="/brokers", tag="cluster", params=simple_params.NoParams, answer=simple.list_brokers),
        Call(method="GET", path="/managers", tag="cluster", params=simple_params.NoParams, answer=simple.list_managers),
        *(
            Call(
                method="POST",
                path=f"/admin/broker/{name}",
                tag="cluster",
                params=simple_params.BrokerHost,
                answer=answer,
                by_writer=True,
            )
            for name, answer in brokers.items()
        ),
    )
