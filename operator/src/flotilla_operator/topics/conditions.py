"""Conditions of a Topic: Ready, Accepted, Placed, FullyReplicated. Pure."""

from collections.abc import Mapping, Sequence

from flotilla_operator.cluster_state import READY, PartitionView, Topic
from flotilla_operator.conditions import (
    FALSE,
    MANAGERS_UNAVAILABLE,
    TRUE,
    UNKNOWN,
    Condition,
    Problem,
    count,
    first_not_true,
    join_names,
)

_TYPES = ("Ready", "Accepted", "Placed", "FullyReplicated")


def evaluate(
    topic: Topic, views: Sequence[PartitionView], problem: Problem | None, broker_names: Mapping[str, str]
) -> tuple[Condition, ...]:
    """Evaluate all conditions of a topic that exists. `problem` is the reason why it differs from the spec."""
    accepted, placed, replicated = _accepted(problem), _placed(topic, views), _replicated(views, broker_names)
    return (_ready(accepted, placed), accepted, placed, replicated)


def unknown(message: str) -> tuple[Condition, ...]:
    """All conditions while managers are unavailable."""
    return tuple(Condition(one, UNKNOWN, MANAGERS_UNAVAILABLE, message) for one in _TYPES)


def all_false(problem: Problem) -> tuple[Condition, ...]:
    """All conditions if the topic does not exist, or the spec is invalid."""
    return tuple(Condition(one, FALSE, *problem) for one in _TYPES)


def _ready(accepted: Condition, placed: Condition) -> Condition:
    """Summarize Accepted and Placed, without FullyReplicated: under-replicated partitions can be used."""
    problem = first_not_true((accepted, placed))
    if problem is not None:
        return Condition("Ready", problem.status, problem.reason, problem.message)
    return Condition("Ready", TRUE, "Ready", "Records can be produced and consumed")


def _accepted(problem: Problem | None) -> Condition:
    if problem is not None:
        return Condition("Accepted", FALSE, *problem)
    return Condition("Accepted", TRUE, "Accepted", "The topic matches the spec")


def _placed(topic: Topic, views: Sequence[PartitionView]) -> Condition:
    if topic.state != READY:
        return Condition("Placed", FALSE, "Creating", "Brokers are creating the partitions")
    leaderless = [str(one.index) for one in views if one.leader is None]
    if leaderless:
        has = "has" if len(leaderless) == 1 else "have"
        text = f"{count(len(leaderless), 'partition')} {has} no leader: {join_names(leaderless)}"
        return Condition("Placed", FALSE, "NoLeader", text)
    return Condition("Placed", TRUE, "Placed", "Every partition has a leader")


def _replicated(views: Sequence[PartitionView], broker_names: Mapping[str, str]) -> Condition:
    out_of_sync = [f"{one.index} on {broker_names.get(broker, broker)}" for one in views for broker in one.out_of_sync]
    if out_of_sync:
        are = "is" if len(out_of_sync) == 1 else "are"
        text = f"{count(len(out_of_sync), 'replica')} {are} unavailable or out of sync: {join_names(out_of_sync)}"
        return Condition("FullyReplicated", FALSE, "UnderReplicated", text)
    return Condition("FullyReplicated", TRUE, "InSync", "All replicas are in sync")
