"""Conditions of a Topic: Ready, Accepted, Placed, FullyReplicated. Pure."""

from collections.abc import Mapping, Sequence

from flotilla_operator.cluster_state import READY, PartitionView, Topic
from flotilla_operator.conditions import FALSE, TRUE, UNKNOWN, Condition, Problem, count, first_not_true, join_names

_TYPES = ("Ready", "Accepted", "Placed", "FullyReplicated")


def evaluate(
    topic: Topic, views: Sequence[PartitionView], problem: Problem | None, broker_names: Mapping[str, str]
) -> tuple[Condition, ...]:
    """Evaluate all conditions of a topic that exists. `problem` is the reason why it differs from the spec."""
    accepted, placed, replicated = _accepted(problem), _placed(topic, views), _replicated(views, broker_names)
    return (_ready(accepted, placed), accepted, placed, replicated)


def unknown(message: str) -> tuple[Condition, ...]:
    """All conditions while managers are unavailable."""
    return tuple(Condition(one, UNKNOWN, "ManagersUnavailable", message) for one in _TYPES)


def absent(problem: Problem) -> tuple[Condition, ...]:
    """All conditions of a topic that does not exist."""
    return tuple(Condition(one, FALSE, *problem) for one in _TYPES)


def _ready(accepted: Condition, placed: Condition) -> Condition:
    """Under-replicated partitions can be used, so FullyReplicated does not count."""
    problem = first_not_true((accepted, placed))
    if problem is not None:
        return Condition("Ready", problem.status, problem.reason, problem.message)
    return Condition("Ready", TRUE, "Ready", "records can be produced and consumed")


def _accepted(problem: Problem | None) -> Condition:
    if problem is not None:
        return Condition("Accepted", FALSE, *problem)
    return Condition("Accepted", TRUE, "Accepted", "topic matches the spec")


def _placed(topic: Topic, views: Sequence[PartitionView]) -> Condition:
    if topic.state != READY:
        return Condition("Placed", FALSE, "Creating", "brokers are creating the partitions")
    leaderless = [str(one.index) for one in views if one.leader is None]
    if leaderless:
        text = f"{count(len(leaderless), 'partition')} without a leader: {join_names(leaderless)}"
        return Condition("Placed", FALSE, "NoLeader", text)
    return Condition("Placed", TRUE, "Placed", "every partition has a leader")


def _replicated(views: Sequence[PartitionView], broker_names: Mapping[str, str]) -> Condition:
    missing = [f"{one.index} on {broker_names.get(broker, broker)}" for one in views for broker in one.missing]
    if missing:
        text = f"{count(len(missing), 'replica')} unavailable or out of sync: {join_names(missing)}"
        return Condition("FullyReplicated", FALSE, "UnderReplicated", text)
    return Condition("FullyReplicated", TRUE, "InSync", "all replicas in sync")
