"""Plan for a Broker resource. Pure.

Every plan applies all children. A Broker has no finalizer: when it is deleted, Kubernetes deletes its children, and
keeps the volumes unless `claimRetention` says otherwise.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flotilla_operator.brokers import conditions, scaling, status
from flotilla_operator.brokers.addresses import domain_of
from flotilla_operator.brokers.children import make_children, statefulset
from flotilla_operator.brokers.instances import BrokerInstance, find_instances, rack_of
from flotilla_operator.brokers.ownership import describe_foreign_owner
from flotilla_operator.brokers.pods import Pod, read_pods
from flotilla_operator.brokers.rollout import Rollout, plan_rollout
from flotilla_operator.brokers.spec import SET_LABEL, BrokerInstallation, BrokerSet, read_broker_set
from flotilla_operator.cluster_state import ClusterState
from flotilla_operator.conditions import build_status
from flotilla_operator.plans import Action, Apply, Delete, EmitEvent, Evict, Label, Plan, PutBroker

Resource = Mapping[str, Any]

ORDINALS_MAX = 100  # as in the CRD


@dataclass(frozen=True)
class BrokerSetObservation:
    """Observed state that a plan depends on, besides the resource."""

    installation: BrokerInstallation
    statefulset: Resource | None
    pods: tuple[Resource, ...] = ()  # all broker pods of the cluster
    nodes: Mapping[str, Resource] = field(default_factory=dict, hash=False)
    owners: tuple[Mapping[str, Any], ...] = ()  # references to all Broker resources of the cluster
    state: ClusterState | None = None
    managers_error: str = ""  # why managers are unavailable
    rejection: str | None = None  # error of Kubernetes or the managers for this spec
    repeated_error: str | None = None  # error of an action that fails repeatedly


def plan_broker_set(resource: Resource, observed: BrokerSetObservation, now: str) -> Plan:
    """Plan for one resource. `now` is the time in the format of Kubernetes."""
    if "deletionTimestamp" in resource["metadata"]:
        return Plan()
    desired = read_broker_set(resource, observed.installation)
    pods = read_pods(observed.pods, desired.name)
    existing = observed.statefulset
    current = _count_ordinals(desired, existing, pods, observed.state)
    instances = find_instances(desired, max(current, desired.replicas), pods, observed.state)
    scale = scaling.plan_scaling(desired.replicas, current, instances, observed.state)
    owners = [dict(one) for one in observed.owners] or [desired.owner]
    children = make_children(desired, scale.replicas, owners)
    rollout = _rollout(existing, children[-1], instances, observed.state)
    actions = [
        *_adopt(desired, pods),
        *_apply_children(desired, existing, children),
        *scale.actions,
        *_register_racks(desired, instances, observed.nodes),
        *_remove_gone(desired, instances, observed.state),
        *_replace(desired, rollout),
    ]
    return Plan(tuple(actions), _status(resource, desired, instances, scale, rollout, observed, now))


def _count_ordinals(
    desired: BrokerSet, existing: Resource | None, pods: tuple[Pod, ...], state: ClusterState | None
) -> int:
    """Count the ordinals in use.

    An ordinal whose broker holds replicas counts, whatever the StatefulSet says: it may have been recreated or scaled
    by another client. Without a StatefulSet, the pods that it left behind count as well.
    """
    hosts = (
        {one.host for one in state.brokers if state.partitions_by_broker.get(one.id)} if state is not None else set()
    )
    used = [ordinal for ordinal in range(ORDINALS_MAX) if desired.host(desired.pod(ordinal)) in hosts]
    if existing is not None:
        return max([int(existing["spec"].get("replicas", desired.replicas)), *(ordinal + 1 for ordinal in used)])
    return max([desired.replicas, *(pod.ordinal + 1 for pod in pods), *(ordinal + 1 for ordinal in used)])


def _adopt(desired: BrokerSet, pods: tuple[Pod, ...]) -> list[Action]:
    """Label pods of chart 0.1, which had no operator."""
    return [Label(one.name, {SET_LABEL: desired.name}) for one in pods if SET_LABEL not in one.labels]


def _apply_children(desired: BrokerSet, existing: Resource | None, children: list[dict[str, Any]]) -> list[Action]:
    *others, statefulset_manifest = children
    actions: list[Action] = [Apply(one) for one in others]
    if existing is None:
        return [*actions, Apply(statefulset_manifest)]
    if "deletionTimestamp" in existing["metadata"]:
        return actions  # it is being deleted without its pods
    is_foreign = describe_foreign_owner(statefulset_manifest, existing) is not None
    if not is_foreign and statefulset.needs_recreation(dict(existing), statefulset_manifest):
        why = "because its owner or an immutable field differs; its pods keep running"
        text = f"The operator recreates StatefulSet {desired.name} {why}"
        delete_statefulset = Delete("StatefulSet", desired.name, existing["metadata"]["uid"], orphan=True)
        return [*actions, delete_statefulset, EmitEvent("Recreating", text)]
    return [*actions, Apply(statefulset_manifest)]


def _rollout(
    existing: Resource | None,
    statefulset_manifest: Resource,
    instances: tuple[BrokerInstance, ...],
    state: ClusterState | None,
) -> Rollout:
    """Plan the rolling update. The revision is valid only if the StatefulSet controller has seen the last change."""
    if existing is None:
        return Rollout(waits="for the StatefulSet to be created", is_known=False)
    seen = existing.get("status") or {}
    is_seen = seen.get("observedGeneration") == existing["metadata"].get("generation")
    is_seen = is_seen and statefulset.is_applied(existing, statefulset_manifest)
    return plan_rollout(instances, seen.get("updateRevision") if is_seen else None, state)


def _replace(desired: BrokerSet, rollout: Rollout) -> list[Action]:
    if rollout.next is None or rollout.next.pod is None or not desired.is_rolling:
        return []
    pod = rollout.next.pod
    why = "not ready, and the update may fix it" if not pod.is_ready else "all replicas in sync"
    return [Evict(pod.name, pod.uid, why, pending=len(rollout.outdated) - 1)]


def _register_racks(
    desired: BrokerSet, instances: tuple[BrokerInstance, ...], nodes: Mapping[str, Resource]
) -> list[Action]:
    """Register the racks of brokers that managers do not know yet."""
    if desired.topology_key is None:
        return []
    actions: list[Action] = []
    for instance in instances:
        rack, broker = rack_of(instance, desired.topology_key, nodes), instance.broker
        if rack is not None and broker is not None and not broker.removed and broker.rack != rack:
            body = {"rack": rack, "wanted": instance.ordinal < desired.replicas, "cordoned": broker.cordoned}
            actions.append(PutBroker(broker.id, body, broker.pod))
    return actions


def _remove_gone(
    desired: BrokerSet, instances: tuple[BrokerInstance, ...], state: ClusterState | None
) -> tuple[Action, ...]:
    if state is None:
        return ()
    hosts = frozenset(desired.host(one.name) for one in instances)
    suffix = f".{domain_of(desired.name, desired.namespace)}"
    return scaling.plan_removals(state.brokers, hosts, suffix, state)


def _status(
    resource: Resource,
    desired: BrokerSet,
    instances: tuple[BrokerInstance, ...],
    scale: scaling.Scaling,
    rollout: Rollout,
    observed: BrokerSetObservation,
    now: str,
) -> dict[str, Any]:
    racks = {one.name: rack_of(one, desired.topology_key, observed.nodes) for one in instances if desired.topology_key}
    others = (
        conditions.accepted(observed.rejection, observed.repeated_error),
        conditions.running(instances),
        conditions.updated(rollout, is_rolling=desired.is_rolling),
        conditions.scaled(desired.replicas, scale),
        conditions.replicated(instances, observed.state, observed.managers_error),
    )
    status_fields = status.status_fields(desired, instances, rollout, observed.state, racks)
    return build_status(resource, (conditions.ready(others, len(instances)), *others), status_fields, now)
