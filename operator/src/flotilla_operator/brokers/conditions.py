"""Conditions of a Broker: Ready, Accepted, Running, Updated, Scaled, FullyReplicated. Pure."""

from collections.abc import Sequence

from flotilla_operator.brokers.instances import (
    DISK_LOST,
    LOSS_ADVICE,
    RUNNING,
    BrokerInstance,
    describe_loss,
    describe_phase,
)
from flotilla_operator.brokers.rollout import Rollout
from flotilla_operator.brokers.scaling import Scaling
from flotilla_operator.cluster_state import ClusterState
from flotilla_operator.conditions import (
    FALSE,
    MANAGERS_UNAVAILABLE,
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


def accepted(rejection: str | None, repeated_error: str | None) -> Condition:
    """Whether no request was rejected. `repeated_error` is the error of an action that fails repeatedly."""
    if rejection is not None:
        return Condition("Accepted", FALSE, "Rejected", rejection)
    if repeated_error is not None:
        return Condition("Accepted", FALSE, "Waiting", repeated_error)
    return Condition("Accepted", TRUE, "Accepted", "No request to Kubernetes or managers was rejected")


def running(instances: Sequence[BrokerInstance]) -> Condition:
    """Whether all brokers are in the phase Running."""
    others = [one for one in instances if one.phase != RUNNING]
    if not others:
        return Condition("Running", TRUE, "Running", f"{len(instances)} of {len(instances)} brokers are running")
    return Condition("Running", FALSE, others[0].phase, join_sentences([describe_phase(one) for one in others]))


def updated(rollout: Rollout, *, is_rolling: bool) -> Condition:
    """Whether all pods match the spec. With update OnDelete, the message names the pods to delete."""
    if not rollout.outdated and not rollout.waits:
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
    return Condition("Updated", FALSE, "Waiting", f"The update waits {rollout.waits}{_pending(names)}")


def _pending(names: str) -> str:
    return f". The update of {names} is pending" if names else ""


def scaled(replicas: int, scaling: Scaling) -> Condition:
    """Whether the number of brokers matches the spec."""
    if scaling.blockers:
        return Condition("Scaled", FALSE, scaling.reason, join_sentences(scaling.blockers))
    if scaling.replicas != replicas:
        text = f"The operator is scaling down from {scaling.replicas} to {count(replicas, 'broker')}"
        return Condition("Scaled", FALSE, "Scaling", text)
    return Condition("Scaled", TRUE, "Scaled", f"spec.replicas of the StatefulSet is {replicas}, as in this Broker")


def replicated(instances: Sequence[BrokerInstance], state: ClusterState | None, managers_error: str) -> Condition:
    """Whether no replica was lost with a disk. `managers_error` is why managers, which report it, are unavailable."""
    if state is None:
        return Condition("FullyReplicated", UNKNOWN, MANAGERS_UNAVAILABLE, managers_error)
    lost = [
        describe_loss(one, broker, state)
        for one in instances
        for broker in one.lost
        if state.partitions_by_broker.get(broker.id)
    ]
    if lost:
        return Condition("FullyReplicated", FALSE, DISK_LOST, f"{join_sentences(lost)}. {LOSS_ADVICE}")
    return Condition("FullyReplicated", TRUE, "NoReplicasLost", "No replicas were lost")
