"""What a Topic resource shows. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from flotilla_operator.conditions import FALSE, TRUE, UNKNOWN, Condition, count, first_trouble, some
from flotilla_operator.partitions import PartitionView, view
from flotilla_operator.world import READY, Topic, World

SHOWN_MAX = 200  # partitions; of topics with more, those that are not well are shown before others

READY_CONDITION, ACCEPTED, PLACED, REPLICATED = "Ready", "Accepted", "Placed", "FullyReplicated"


def look(world: World, topic: Topic) -> tuple[PartitionView, ...]:
    """Look at all partitions of a topic."""
    return tuple(view(world, topic, one) for one in topic.partitions)


def placed(topic: Topic, views: Sequence[PartitionView]) -> Condition:
    """Whether every partition has its brokers, and one of them leads."""
    if topic.state != READY:
        return Condition(PLACED, FALSE, "BeingMade", "brokers are opening its partitions")
    headless = [str(one.index) for one in views if one.leader is None]
    if headless:
        text = f"{count(len(headless), 'partition')} without a leader: {some(headless)}"
        return Condition(PLACED, FALSE, "NoLeader", text)
    return Condition(PLACED, TRUE, "Placed", "every partition has a leader")


def replicated(views: Sequence[PartitionView], called: Mapping[str, str]) -> Condition:
    """Whether every replica follows."""
    missing = [f"{one.index} on {called.get(broker, broker)}" for one in views for broker in one.missing]
    if missing:
        text = f"{count(len(missing), 'replica')} missing or far behind: {some(missing)}"
        return Condition(REPLICATED, FALSE, "ReplicasMissing", text)
    return Condition(REPLICATED, TRUE, "InSync", "all replicas follow")


def accepted(trouble: tuple[str, str] | None) -> Condition:
    """Whether managers have taken what the spec says. `trouble` is a reason and a message."""
    if trouble is not None:
        return Condition(ACCEPTED, FALSE, *trouble)
    return Condition(ACCEPTED, TRUE, "Accepted", "the topic is as the spec says")


def ready(others: Sequence[Condition]) -> Condition:
    """Whether it can be used, and is as it should be. That a replica is missing does not keep anybody from using it."""
    trouble = first_trouble(one for one in others if one.type != REPLICATED)
    if trouble is not None:
        return Condition(READY_CONDITION, trouble.status, trouble.reason, trouble.message)
    return Condition(READY_CONDITION, TRUE, "Ready", "records can be written and read")


def unknown(message: str) -> tuple[Condition, ...]:
    """What is known while managers are away: nothing."""
    return tuple(
        Condition(kind, UNKNOWN, "ManagersAway", message) for kind in (READY_CONDITION, ACCEPTED, PLACED, REPLICATED)
    )


def absent(trouble: tuple[str, str]) -> tuple[Condition, ...]:
    """What is known of a topic that is not there."""
    reason, message = trouble
    return tuple(Condition(kind, FALSE, reason, message) for kind in (READY_CONDITION, ACCEPTED, PLACED, REPLICATED))


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
