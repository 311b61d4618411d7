"""Status of a Topic besides its conditions. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from flotilla_operator.cluster_state import ClusterState, PartitionView, Topic, view_partition

SHOWN_MAX = 200  # partitions in a status; unhealthy ones take precedence


def view_partitions(state: ClusterState, topic: Topic) -> tuple[PartitionView, ...]:
    """View all partitions of a topic."""
    return tuple(view_partition(state, topic, one) for one in topic.partitions)


def status_fields(topic: Topic, views: Sequence[PartitionView], broker_names: Mapping[str, str]) -> dict[str, Any]:
    """Build the status besides conditions. Brokers appear by name."""
    shown = views
    if len(views) > SHOWN_MAX:
        shown = sorted(sorted(views, key=lambda one: one.is_fully_replicated)[:SHOWN_MAX], key=lambda one: one.index)
    return {
        "topicId": topic.id,
        "topicName": topic.name,
        "partitions": len(topic.partitions),
        "replication": topic.replication,
        "messages": sum(one.messages for one in views),
        "bytes": sum(one.bytes for one in views),
        "partitionStatus": [_partition_fields(one, broker_names) for one in shown],
    }


def _partition_fields(one: PartitionView, broker_names: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {"partition": one.index}
    if one.leader is not None:
        found["leader"] = broker_names.get(one.leader, one.leader)
    found["replicas"] = [broker_names.get(broker, broker) for broker in one.members]
    if one.out_of_sync:
        found["missing"] = [broker_names.get(broker, broker) for broker in one.out_of_sync]
    return {**found, "lag": one.lag, "messages": one.messages, "bytes": one.bytes}
