"""Scaling: the number of pods of a StatefulSet. A broker is removed only when it holds no replicas. Pure.

A StatefulSet removes its highest ordinal first, so an empty broker waits for the brokers above it. Brokers to remove
are marked as not wanted: managers place no replicas on them.
"""

from dataclasses import dataclass

from flotilla_operator.brokers.addresses import set_of
from flotilla_operator.brokers.instances import FAILED, PENDING, BrokerInstance
from flotilla_operator.cluster_state import Broker, ClusterState
from flotilla_operator.conditions import MANAGERS_UNAVAILABLE, count, join_names
from flotilla_operator.plans import Action, PutBroker, RemoveBroker


@dataclass(frozen=True)
class Scaling:
    """The number of pods to apply now, updates of brokers, and the brokers that prevent a scale-down."""

    replicas: int
    actions: tuple[Action, ...] = ()
    blockers: tuple[str, ...] = ()
    reason: str = "ReplicasRemain"  # reason of the condition Scaled if there are blockers


def plan_scaling(
    desired: int, current: int, instances: tuple[BrokerInstance, ...], state: ClusterState | None
) -> Scaling:
    """Plan the number of pods."""
    if desired >= current:
        return Scaling(desired, _update_brokers(instances, desired, state))
    if state is None:
        text = "The scale-down waits for managers, which are unavailable"
        return Scaling(current, (), (text,), MANAGERS_UNAVAILABLE)
    surplus = [one for one in instances if desired <= one.ordinal < current]
    kept = [one for one in surplus if not _is_removable(one, state)]
    replicas = max((one.ordinal + 1 for one in kept), default=desired)
    blockers = tuple(_describe_blocker(one, state) for one in kept if _held_partitions(one, state))
    return Scaling(replicas, _update_brokers(instances, desired, state), blockers)


def _update_brokers(
    instances: tuple[BrokerInstance, ...], desired: int, state: ClusterState | None
) -> tuple[Action, ...]:
    """Mark brokers as wanted or not, and remove lost brokers without replicas."""
    if state is None:
        return ()
    actions: list[Action] = []
    for instance in instances:
        is_wanted = instance.ordinal < desired
        broker = instance.broker
        # A broker that was removed by a scale-down, and is back with its disk, takes part again.
        is_back = broker is not None and broker.removed and is_wanted and instance.pod is not None
        if broker is not None and (is_back or (not broker.removed and broker.wanted != is_wanted)):
            actions.append(PutBroker(broker.id, {"wanted": is_wanted, "cordoned": broker.cordoned}, broker.pod))
        actions += [
            RemoveBroker(one.id, one.pod) for one in instance.lost if not state.partitions_by_broker.get(one.id)
        ]
    return tuple(actions)


def plan_removals(
    brokers: tuple[Broker, ...], hosts: frozenset[str], suffix: str, state: ClusterState
) -> tuple[Action, ...]:
    """Remove brokers of a set whose ordinals do not exist any more, and that hold no replicas."""
    return tuple(
        RemoveBroker(one.id, one.pod)
        for one in brokers
        if one.host.endswith(suffix)
        and one.host not in hosts
        and not (one.removed or one.active or one.wanted or state.partitions_by_broker.get(one.id))
    )


def plan_orphans(state: ClusterState, namespace: str, sets: frozenset[str], pods: frozenset[str]) -> tuple[Action, ...]:
    """Remove brokers of deleted sets that hold no replicas: managers would wait for them when a topic is created."""

    def is_orphan(one: Broker) -> bool:
        set_name = set_of(one.host, namespace)
        return set_name is not None and set_name not in sets and one.pod not in pods

    return tuple(
        RemoveBroker(one.id, one.pod)
        for one in state.brokers
        if is_orphan(one) and not (one.removed or one.active or state.partitions_by_broker.get(one.id))
    )


def _is_removable(instance: BrokerInstance, state: ClusterState) -> bool:
    """Whether a broker holds no replicas and gets no new ones."""
    if instance.broker is None:  # a starting broker may register at any time
        return instance.pod is None or instance.phase in {PENDING, FAILED}
    is_unwanted = instance.broker.removed or not instance.broker.wanted
    return is_unwanted and not _held_partitions(instance, state)


def _held_partitions(instance: BrokerInstance, state: ClusterState) -> tuple[str, ...]:
    return tuple(name for broker in instance.registered for name in state.partitions_by_broker.get(broker.id, ()))


def _describe_blocker(instance: BrokerInstance, state: ClusterState) -> str:
    held = _held_partitions(instance, state)
    return (
        f"The scale-down waits for {instance.name}, which still holds {count(len(held), 'replica')}: {join_names(held)}"
    )
