"""Rolling update: which broker is replaced next. Pure.

Brokers are replaced one at a time, and only while all brokers run and every replica of every partition is in sync: then
the cluster tolerates the loss of any one broker. An exception is a broker that cannot start, or that is not ready while
no replica of another broker is out of sync. It is replaced first, even if its own replicas are not in sync: no replica
in use is stopped, and the update may repair it. The broker that leads the most partitions is replaced last, so that
leadership changes rarely.

The disruption budget is checked as well (see `Evict`): another client may evict another broker at the same time.
"""

from dataclasses import dataclass

from flotilla_operator.brokers.instances import FAILED, LEAVING, LOSS_ADVICE, RUNNING, BrokerInstance, describe_phase
from flotilla_operator.cluster_state import ClusterState, view_partition
from flotilla_operator.conditions import count, join_names, join_sentences


@dataclass(frozen=True)
class Rollout:
    """Progress of an update: the next broker, or what the update waits for; neither if it is complete."""

    outdated: tuple[BrokerInstance, ...] = ()
    next: BrokerInstance | None = None
    waits: str = ""  # completes "The update waits …"
    is_known: bool = True  # whether the StatefulSet controller has processed the spec


def plan_rollout(instances: tuple[BrokerInstance, ...], revision: str | None, state: ClusterState | None) -> Rollout:
    """Choose the next broker. `revision` is that of updated pods; None if the StatefulSet controller has not set it."""
    if revision is None:
        return Rollout(waits="for the StatefulSet controller", is_known=False)
    outdated = tuple(one for one in instances if one.pod is not None and one.pod.revision != revision)
    if not outdated:
        return Rollout()
    restarting = [one.name for one in instances if one.pod is None or one.phase == LEAVING]
    if restarting:
        return Rollout(outdated, None, f"for {join_names(restarting)} to restart")
    not_serving = _find_not_serving(instances, outdated, state)
    if not_serving is not None:
        return Rollout(outdated, not_serving)
    waits = _find_obstacle(instances, state)
    if waits or state is None:
        return Rollout(outdated, None, waits)
    return Rollout(outdated, _find_fewest_leaders(outdated, state))


def _find_fewest_leaders(outdated: tuple[BrokerInstance, ...], state: ClusterState) -> BrokerInstance:
    """Choose the broker that leads the fewest partitions; of several, the one with the highest ordinal."""
    return min(outdated, key=lambda one: (_leads(one, state), -one.ordinal))


def _find_not_serving(
    instances: tuple[BrokerInstance, ...], outdated: tuple[BrokerInstance, ...], state: ClusterState | None
) -> BrokerInstance | None:
    """Find a broker that cannot start, or that is not ready while all replicas of other brokers are in sync."""
    not_running = [one for one in instances if _is_not_running(one)]
    for one in outdated:
        could_not_start = one.phase == FAILED or (one.pod is not None and one.pod.never_ran)
        is_alone = not_running == [one] and one.pod is not None and not one.pod.is_ready
        if could_not_start or (is_alone and state is not None and _are_others_in_sync(one, state)):
            return one
    return None


def _are_others_in_sync(instance: BrokerInstance, state: ClusterState) -> bool:
    """Whether the replicas of other brokers are in sync: if not, a broker that is not ready may be needed."""
    own = {instance.broker.id} if instance.broker is not None else set()
    return all(set(view_partition(state, topic, one).out_of_sync) <= own for topic, one in state.partitions())


def _find_obstacle(instances: tuple[BrokerInstance, ...], state: ClusterState | None) -> str:
    """Describe what prevents the replacement of any broker; empty if nothing does."""
    not_running = [describe_phase(one) for one in instances if _is_not_running(one)]
    if not_running:
        return f"until all brokers are running. {join_sentences(not_running)}"
    if state is None:
        return "for managers, which are unavailable"
    behind = [
        f"{topic.name}/{one.index}"
        for topic, one in state.partitions()
        if not view_partition(state, topic, one).is_fully_replicated
    ]
    if behind:
        lost = [one.name for one in instances if any(state.partitions_by_broker.get(broker.id) for broker in one.lost)]
        disks = "disk" if len(lost) == 1 else "disks"
        was = "was" if len(lost) == 1 else "were"
        loss = f". The {disks} of {join_names(lost)} {was} lost. {LOSS_ADVICE}" if lost else ""
        are = "is" if len(behind) == 1 else "are"
        return f"until {count(len(behind), 'partition')} {are} fully replicated: {join_names(behind)}{loss}"
    return ""


def _is_not_running(instance: BrokerInstance) -> bool:
    return instance.phase != RUNNING


def _leads(instance: BrokerInstance, state: ClusterState) -> int:
    return state.count_leaders(instance.broker.id) if instance.broker is not None else 0
