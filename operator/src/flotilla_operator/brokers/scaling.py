"""Scaling: the number of pods of a StatefulSet. A broker is removed only when it holds no replicas. Pure.

A StatefulSet removes its highest ordinal first, so an empty broker waits for the brokers above it. Brokers to remove
are marked as not wanted: managers place no replicas on them.
"""

from dataclasses import dataclass

from flotilla_operator.brokers.members import FAILED, PENDING, Member
from flotilla_operator.cluster_state import Broker, ClusterState
from flotilla_operator.conditions import count, join_names
from flotilla_operator.plans import Action, PutBroker, RemoveBroker


@dataclass(frozen=True)
class Scaling:
    """The number of pods to apply now, changes of brokers, and what prevents a scale-down."""

    replicas: int
    actions: tuple[Action, ...] = ()
    blockers: tuple[str, ...] = ()
    reason: str = "ReplicasRemain"  # of the condition Scaled, if anything does


def plan_scaling(desired: int, current: int, members: tuple[Member, ...], state: ClusterState | None) -> Scaling:
    """Plan the number of pods."""
    if desired >= current:
        return Scaling(desired, _want(members, desired, state))
    if state is None:
        text = "The scale-down waits for managers, which are unavailable"
        return Scaling(current, (), (text,), "ManagersUnavailable")
    removed = [one for one in members if desired <= one.ordinal < current]
    kept = [one for one in removed if not _may_go(one, state)]
    replicas = max((one.ordinal + 1 for one in kept), default=desired)
    blockers = tuple(_why(one, state) for one in kept if _holds(one, state))
    return Scaling(replicas, _want(members, desired, state), blockers)


def _want(members: tuple[Member, ...], desired: int, state: ClusterState | None) -> tuple[Action, ...]:
    """Mark brokers as wanted or not, and remove lost brokers without replicas."""
    if state is None:
        return ()
    actions: list[Action] = []
    for member in members:
        is_wanted = member.ordinal < desired
        broker = member.broker
        # A broker that was removed by a scale-down, and is back with its disk, takes part again.
        is_back = broker is not None and broker.removed and is_wanted and member.pod is not None
        if broker is not None and (is_back or (not broker.removed and broker.wanted != is_wanted)):
            actions.append(PutBroker(broker.id, {"wanted": is_wanted, "cordoned": broker.cordoned}))
        actions += [RemoveBroker(one.id) for one in member.lost if not state.partitions_by_broker.get(one.id)]
    return tuple(actions)


def plan_removals(
    brokers: tuple[Broker, ...], hosts: frozenset[str], suffix: str, state: ClusterState
) -> tuple[Action, ...]:
    """Remove brokers of a set whose ordinals do not exist any more, and that hold no replicas."""
    return tuple(
        RemoveBroker(one.id)
        for one in brokers
        if one.host.endswith(suffix)
        and one.host not in hosts
        and not (one.removed or one.active or one.wanted or state.partitions_by_broker.get(one.id))
    )


def plan_orphans(state: ClusterState, namespace: str, sets: frozenset[str], pods: frozenset[str]) -> tuple[Action, ...]:
    """Remove brokers of deleted sets that hold no replicas: managers would wait for them when a topic is created."""

    def is_orphan(one: Broker) -> bool:
        pod, _, where = one.host.partition(".")
        name, _, suffix = where.partition(".")
        return suffix == f"{namespace}.svc" and name not in sets and pod not in pods

    return tuple(
        RemoveBroker(one.id)
        for one in state.brokers
        if is_orphan(one) and not (one.removed or one.active or state.partitions_by_broker.get(one.id))
    )


def _may_go(member: Member, state: ClusterState) -> bool:
    """Whether a broker holds no replicas and gets no new ones."""
    if member.broker is None:  # a starting broker may register at any time
        return member.pod is None or member.phase in {PENDING, FAILED}
    is_unwanted = member.broker.removed or not member.broker.wanted
    return is_unwanted and not _holds(member, state)


def _holds(member: Member, state: ClusterState) -> tuple[str, ...]:
    return tuple(name for broker in member.here for name in state.partitions_by_broker.get(broker.id, ()))


def _why(member: Member, state: ClusterState) -> str:
    held = _holds(member, state)
    return (
        f"The scale-down waits for {member.name}, which still holds {count(len(held), 'replica')}: {join_names(held)}"
    )
