"""What to do about a Broker resource. Pure.

Its children are applied in every turn in which they are not as they should be. It has no finalizer: when it is deleted,
Kubernetes removes what belongs to it, and keeps the volumes unless `claimRetention` says otherwise.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flotilla_operator import conditions
from flotilla_operator.brokers import scaling, status
from flotilla_operator.brokers.children import make_children, statefulset
from flotilla_operator.brokers.children.ours import why_not_ours
from flotilla_operator.brokers.conditions import accepted, ready, replicated, running, scaled, updated
from flotilla_operator.brokers.members import Member, find_members
from flotilla_operator.brokers.pods import Pod, read_pods
from flotilla_operator.brokers.racks import plan_racks, rack_of
from flotilla_operator.brokers.rollout import Rollout, plan_rollout
from flotilla_operator.brokers.spec import SET_LABEL, BrokerSet, Cluster, read_set
from flotilla_operator.steps import Apply, Evict, Label, Plan, Remove, Step, Tell
from flotilla_operator.world import World

Resource = Mapping[str, Any]

PLACES_MAX = 100  # as the definition of the resource has it


@dataclass(frozen=True)
class Observed:
    """What a plan is made from, besides the resource."""

    cluster: Cluster
    statefulset: Resource | None
    pods: tuple[Resource, ...] = ()  # all broker pods of the cluster
    nodes: Mapping[str, Resource] = field(default_factory=dict, hash=False)
    owners: tuple[Mapping[str, Any], ...] = ()  # references to all Broker resources of the cluster
    world: World | None = None
    away: str = ""  # why managers are
    refusal: str | None = None  # what Kubernetes said to a child that this spec asks for
    waits_for: str | None = None  # why something is not done, though it was tried again and again


def plan_brokers(resource: Resource, observed: Observed, now: str) -> Plan:
    """Decide about one resource. `now` is the time, as Kubernetes writes it."""
    if "deletionTimestamp" in resource["metadata"]:
        return Plan()
    wanted = read_set(resource, observed.cluster)
    pods = read_pods(observed.pods, wanted.name)
    found = observed.statefulset
    current = _count_places(wanted, found, pods, observed.world)
    members = find_members(wanted, max(current, wanted.replicas), pods, observed.world)
    scale = scaling.plan_scaling(wanted.replicas, current, members, observed.world)
    owners = [dict(one) for one in observed.owners] or [wanted.owner]
    children = make_children(wanted, scale.replicas, owners)
    rollout = _rollout(found, children[-1], members, observed.world)
    steps = [
        *_adopt(wanted, pods),
        *_have_children(wanted, found, children),
        *scale.steps,
        *plan_racks(wanted, members, observed.nodes),
        *_farewells(wanted, members, observed.world),
        *_replace(wanted, rollout),
    ]
    return Plan(tuple(steps), _status(resource, wanted, members, scale, rollout, observed, now))


def _count_places(wanted: BrokerSet, found: Resource | None, pods: tuple[Pod, ...], world: World | None) -> int:
    """Count the places that there are.

    A place whose broker holds something counts, whatever the StatefulSet says: it may have been made anew while nobody
    knew, or somebody has scaled it. Without one, pods that it has left behind count, too.
    """
    hosts = {one.host for one in world.brokers if world.held.get(one.id)} if world is not None else set()
    held = [ordinal for ordinal in range(PLACES_MAX) if wanted.host(wanted.pod(ordinal)) in hosts]
    if found is not None:
        return max([int(found["spec"].get("replicas", wanted.replicas)), *(ordinal + 1 for ordinal in held)])
    return max([wanted.replicas, *(pod.ordinal + 1 for pod in pods), *(ordinal + 1 for ordinal in held)])


def _adopt(wanted: BrokerSet, pods: tuple[Pod, ...]) -> list[Step]:
    """Mark pods that were made before there was an operator."""
    return [Label(one.name, {SET_LABEL: wanted.name}) for one in pods if SET_LABEL not in one.labels]


def _have_children(wanted: BrokerSet, found: Resource | None, children: list[dict[str, Any]]) -> list[Step]:
    *others, pods = children
    steps: list[Step] = [Apply(one) for one in others]
    if found is None:
        return [*steps, Apply(pods)]
    if "deletionTimestamp" in found["metadata"]:
        return steps  # it is on its way out; its pods stay
    if why_not_ours(pods, found) is None and statefulset.is_other(dict(found), pods):
        text = (
            f"the StatefulSet {wanted.name} is made anew, because it differs in what cannot be changed; its pods go on"
        )
        gone = Remove("apps/v1", "StatefulSet", wanted.name, found["metadata"]["uid"], orphan=True)
        return [*steps, gone, Tell("Recreating", text)]
    return [*steps, Apply(pods)]


def _rollout(found: Resource | None, pods: Resource, members: tuple[Member, ...], world: World | None) -> Rollout:
    """Look where an update is. What Kubernetes says of revisions counts when it has seen the last change."""
    if found is None:
        return Rollout(waits_for="the StatefulSet", is_known=False)
    seen = found.get("status") or {}
    is_seen = seen.get("observedGeneration") == found["metadata"].get("generation")
    is_seen = is_seen and statefulset.is_applied(found, pods)
    return plan_rollout(members, seen.get("updateRevision") if is_seen else None, world)


def _replace(wanted: BrokerSet, rollout: Rollout) -> list[Step]:
    if rollout.next is None or rollout.next.pod is None or not wanted.is_rolling:
        return []
    pod = rollout.next.pod
    why = "it is not ready, and the change may mend it" if not pod.is_ready else "all replicas follow"
    text = f"{pod.name} is replaced: {why}; {conditions.count(len(rollout.outdated) - 1, 'broker')} to come"
    return [Evict(pod.name, pod.uid, text)]


def _farewells(wanted: BrokerSet, members: tuple[Member, ...], world: World | None) -> tuple[Step, ...]:
    if world is None:
        return ()
    hosts = frozenset(wanted.host(one.name) for one in members)
    suffix = f".{wanted.name}.{wanted.namespace}.svc"
    return scaling.plan_farewells(world.brokers, hosts, suffix, world)


def _status(
    resource: Resource,
    wanted: BrokerSet,
    members: tuple[Member, ...],
    scale: scaling.Scaling,
    rollout: Rollout,
    observed: Observed,
    now: str,
) -> dict[str, Any]:
    racks = {one.name: rack_of(one, wanted.topology_key, observed.nodes) for one in members if wanted.topology_key}
    others = (
        accepted.judge(observed.refusal, observed.waits_for),
        running.judge(members),
        updated.judge(rollout, is_rolling=wanted.is_rolling),
        scaled.judge(wanted.replicas, scale),
        replicated.judge(members, observed.world, observed.away),
    )
    before = (resource.get("status") or {}).get("conditions") or []
    generation = resource["metadata"].get("generation", 0)
    return {
        "observedGeneration": generation,
        "conditions": conditions.write((ready.judge(others), *others), before, generation, now),
        **status.figures(wanted, members, rollout, observed.world, racks),
    }
