"""What a Topic resource shows besides its conditions. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from flotilla_operator.partitions import PartitionView, view
from flotilla_operator.world import Topic, World

SHOWN_MAX = 200  # partitions; of topics with more, those that are not well are shown before others


def look(world: World, topic: Topic) -> tuple[PartitionView, ...]:
    """Look at all partitions of a topic."""
    return tuple(view(world, topic, one) for one in topic.partitions)


def figures(topic: Topic, views: Sequence[PartitionView], called: Mapping[str, str]) -> dict[str, Any]:
    """The rest of what is shown. Brokers are shown as they are called."""
    shown = views
    if len(views) > SHOWN_MAX:
        shown = sorted(sorted(views, key=lambda one: one.is_whole)[:SHOWN_MAX], key=lambda one: one.index)
    return {
        "topicId": topic.id,
        "topicName": topic.name,
        "partitions": len(topic.partitions),
        "replication": topic.replication,
        "messages": sum(one.messages for one in views),
        "bytes": sum(one.bytes for one in views),
        "partitionStatus": [_figures_of(one, called) for one in shown],
    }


def _figures_of(one: PartitionView, called: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {"partition": one.index}
    if one.leader is not None:
        found["leader"] = called.get(one.leader, one.leader)
    found["replicas"] = [called.get(broker, broker) for broker in one.members]
    if one.missing:
        found["missing"] = [called.get(broker, broker) for broker in one.missing]
    return {**found, "lag": one.lag, "messages": one.messages, "bytes": one.bytes}
