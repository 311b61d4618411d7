"""Rolling update: which broker is replaced next. Pure.

Brokers are replaced one at a time, and only while all brokers run and every replica of every partition is in sync: then
the cluster tolerates the loss of any one broker. An exception is a broker that does not serve. It is replaced first,
even if replicas are not in sync: no replica in use is stopped, and the update may repair it. The broker that leads the
most partitions is replaced last, so that leadership changes rarely.

The disruption budget is checked as well (see `Evict`): another client may evict another broker at the same time.
"""

from dataclasses import dataclass

from flotilla_operator.brokers.members import FAILED, LEAVING, RUNNING, Member
from flotilla_operator.cluster_state import ClusterState, view_partition
from flotilla_operator.conditions import count, join_names


@dataclass(frozen=True)
class Rollout:
    """Progress of an update: the next broker, or what the update waits for; neither if it is complete."""

    outdated: tuple[Member, ...] = ()
    next: Member | None = None
    waiting_for: str = ""
    is_known: bool = True  # whether the StatefulSet controller has processed the spec


def plan_rollout(members: tuple[Member, ...], revision: str | None, state: ClusterState | None) -> Rollout:
    """Choose the next broker. `revision` is that of updated pods; None if the StatefulSet controller has not set it."""
    if revision is None:
        return Rollout(waiting_for="the StatefulSet controller", is_known=False)
    outdated = tuple(one for one in members if one.pod is not None and one.pod.revision != revision)
    if not outdated:
        return Rollout()
    restarting = [one.name for one in members if one.pod is None or one.phase == LEAVING]
    if restarting:
        return Rollout(outdated, None, f"{join_names(restarting)} to restart")
    unserving = _find_unserving(members, outdated, state)
    if unserving is not None:
        return Rollout(outdated, unserving)
    waiting_for = _find_obstacle(members, state)
    if waiting_for or state is None:
        return Rollout(outdated, None, waiting_for)
    known = state
    return Rollout(outdated, min(outdated, key=lambda one: (_leads(one, known), -one.ordinal)))


def _find_unserving(
    members: tuple[Member, ...], outdated: tuple[Member, ...], state: ClusterState | None
) -> Member | None:
    """Find a broker that does not serve: it cannot start, or it is the only one with missing replicas."""
    not_running = [one for one in members if _is_not_running(one)]
    for one in outdated:
        could_not_start = one.phase == FAILED or (one.pod is not None and one.pod.never_ran)
        is_alone = not_running == [one] and one.pod is not None and not one.pod.is_ready
        if could_not_start or (is_alone and state is not None and _misses_only(one, state)):
            return one
    return None


def _misses_only(member: Member, state: ClusterState) -> bool:
    """Whether no other broker's replica is missing: a broker that is not ready may still serve, and be needed."""
    own = {member.broker.id} if member.broker is not None else set()
    return all(set(view_partition(state, topic, one).missing) <= own for topic, one in state.partitions())


def _find_obstacle(members: tuple[Member, ...], state: ClusterState | None) -> str:
    """Describe what prevents the replacement of any broker; empty if nothing does."""
    not_running = [
        f"{one.name} ({one.phase}{': ' if one.message else ''}{one.message})" for one in members if _is_not_running(one)
    ]
    if not_running:
        return f"{join_names(not_running)} to become Running"
    if state is None:
        return "managers, which are unavailable"
    behind = [
        f"{topic.name}/{one.index}"
        for topic, one in state.partitions()
        if not view_partition(state, topic, one).is_fully_replicated
    ]
    if behind:
        lost = [one.name for one in members if any(state.partitions_by_broker.get(broker.id) for broker in one.lost)]
        advice = "replicas cannot be re-created, so their partitions stay under-replicated"
        disks = f" (lost disks: {join_names(lost)}; {advice})" if lost else ""
        return f"{count(len(behind), 'under-replicated partition')}: {join_names(behind)}{disks}"
    return ""


def _is_not_running(member: Member) -> bool:
    return member.phase != RUNNING


def _leads(member: Member, state: ClusterState) -> int:
    return state.count_leaders(member.broker.id) if member.broker is not None else 0
