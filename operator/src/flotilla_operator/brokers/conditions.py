"""Conditions of a Broker: Ready, Accepted, Running, Updated, Scaled, FullyReplicated. Pure."""

from collections.abc import Sequence

from flotilla_operator.brokers.members import DISK_LOST, RUNNING, Member, describe_loss
from flotilla_operator.brokers.rollout import Rollout
from flotilla_operator.brokers.scaling import Scaling
from flotilla_operator.cluster_state import ClusterState
from flotilla_operator.conditions import (
    FALSE,
    TRUE,
    UNKNOWN,
    Condition,
    count,
    first_not_true,
    join_names,
    join_sentences,
)


def ready(others: Sequence[Condition], broker_count: int) -> Condition:
    """Summarize all other conditions."""
    problem = first_not_true(others)
    if problem is not None:
        return Condition("Ready", problem.status, problem.reason, problem.message)
    return Condition("Ready", TRUE, "Ready", f"{broker_count} of {broker_count} brokers are ready and up to date")


def accepted(rejection: str | None, waiting_for: str | None) -> Condition:
    """Whether all objects are applied. `waiting_for` is the error of an action that fails repeatedly."""
    if rejection is not None:
        return Condition("Accepted", FALSE, "Rejected", rejection)
    if waiting_for is not None:
        return Condition("Accepted", FALSE, "Waiting", waiting_for)
    return Condition("Accepted", TRUE, "Accepted", "All objects have been applied")


def running(members: Sequence[Member]) -> Condition:
    """Whether all brokers are in the phase Running."""
    others = [one for one in members if one.phase != RUNNING]
    if not others:
        return Condition("Running", TRUE, "Running", f"{len(members)} of {len(members)} brokers are running")
    text = join_sentences([f"{one.name} is {one.phase}{': ' if one.message else ''}{one.message}" for one in others])
    return Condition("Running", FALSE, others[0].phase, text)


def updated(rollout: Rollout, *, is_rolling: bool) -> Condition:
    """Whether all pods match the spec. With update OnDelete, the message names the pods to delete."""
    if not rollout.outdated and not rollout.waiting_for:
        return Condition("Updated", TRUE, "Updated", "All brokers are up to date")
    names = join_names([one.name for one in rollout.outdated])
    if not is_rolling and names:
        text = f"spec.update is OnDelete; delete these pods to update them: {names}"
        return Condition("Updated", FALSE, "PodDeletionRequired", text)
    if rollout.next is not None:
        pending = join_names([one.name for one in rollout.outdated if one is not rollout.next])
        return Condition(
            "Updated", FALSE, "Replacing", f"The operator is replacing {rollout.next.name}{_pending(pending)}"
        )
    return Condition("Updated", FALSE, "Waiting", f"The update waits for {rollout.waiting_for}{_pending(names)}")


def _pending(names: str) -> str:
    return f"; the update of {names} is pending" if names else ""


def scaled(replicas: int, scaling: Scaling) -> Condition:
    """Whether the number of brokers matches the spec."""
    if scaling.blockers:
        return Condition("Scaled", FALSE, scaling.reason, join_sentences(scaling.blockers))
    if scaling.replicas != replicas:
        text = f"Scaling down from {scaling.replicas} to {count(replicas, 'broker')}"
        return Condition("Scaled", FALSE, "Scaling", text)
    return Condition("Scaled", TRUE, "Scaled", f"spec.replicas of the StatefulSet is {replicas}, as in this Broker")


def replicated(members: Sequence[Member], state: ClusterState | None, managers_error: str) -> Condition:
    """Whether no replica was lost with a disk. `managers_error` is the error of the managers, which know it."""
    if state is None:
        return Condition("FullyReplicated", UNKNOWN, "ManagersUnavailable", managers_error)
    lost = [
        describe_loss(one, broker, state)
        for one in members
        for broker in one.lost
        if state.partitions_by_broker.get(broker.id)
    ]
    if lost:
        return Condition("FullyReplicated", FALSE, DISK_LOST, join_sentences(lost))
    return Condition("FullyReplicated", TRUE, "NoReplicasLost", "No replicas were lost")
