"""Plan for a Topic resource. Pure.

A resource owns the topic of its name: managers then reject changes and the deletion of the topic over HTTP. A resource
adopts a topic that has no owner, and never one that another resource owns.

Records are deleted in one case only: the resource is being deleted, its policy is Delete, and the topic has the id in
the status and is owned by the resource. In any doubt the topic is kept.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from flotilla.limits import REPLICATION_DEFAULT
from flotilla_operator.cluster_state import READY, ClusterState, Topic
from flotilla_operator.conditions import Problem, build_status, count
from flotilla_operator.names import FINALIZER
from flotilla_operator.plans import Action, DeleteTopic, EmitEvent, Plan, PutTopic, ReleaseTopic, SetFinalizers
from flotilla_operator.topics import conditions, status
from flotilla_operator.topics.spec import Resource, TopicSpec, owner_prefix, read_spec

_REJECTED = "Rejected"
_CONFLICTS = {"NameConflict", "OwnershipConflict"}
_PARTIAL = {"CannotDecreasePartitions", "CannotChangeReplication"}  # the rest of the spec is applied


@dataclass(frozen=True)
class TopicObservation:
    """Observed state that a plan depends on, besides the resource."""

    state: ClusterState | None  # None while managers are unavailable
    managers_error: str = ""  # why managers are unavailable
    is_namespace_terminating: bool = False  # checked only while managers are unavailable: they will not come back
    conflict: str | None = None  # the resource that manages the topic instead
    rejection: str | None = None  # error of the managers for this spec
    may_resend_rejected: bool = True  # whether to send a rejected spec again
    are_racks_registered: bool = True  # whether managers know the racks of all brokers
    last_error: str | None = None  # error of the last attempt, which is retried
    broker_names: Mapping[str, str] = field(default_factory=dict, hash=False)  # pod names by broker id
    broker_count: int = 0  # number of brokers in the specs of all Broker resources


def plan_topic(resource: Resource, observed: TopicObservation, now: str) -> Plan:
    """Plan for one resource. `now` is the time in the format of Kubernetes."""
    is_deleted = "deletionTimestamp" in resource["metadata"]
    try:
        spec = read_spec(resource)
    except ValueError as error:
        if is_deleted:  # a topic that an earlier spec created is kept
            return Plan(_remove_finalizer(resource))
        return Plan((), build_status(resource, conditions.all_false(Problem("SpecInvalid", str(error))), {}, now))
    if is_deleted:
        return Plan(_finalize(resource, spec, observed))
    if observed.state is None:
        kept = {key: value for key, value in (resource.get("status") or {}).items() if key != "conditions"}
        new_status = build_status(resource, conditions.unknown(observed.managers_error), kept, now)
        return Plan(_update_finalizer(resource, spec), new_status)
    return _plan(resource, spec, observed.state, observed, now)


def _plan(resource: Resource, spec: TopicSpec, state: ClusterState, observed: TopicObservation, now: str) -> Plan:
    actions = list(_update_finalizer(resource, spec))
    topic = state.topics_by_name.get(spec.name)
    problem = _find_problem(spec, topic, observed) or _find_missing_brokers(spec, topic, state, observed)
    if _should_put(spec, topic, problem, observed):
        actions.append(PutTopic(spec.name, spec.body(topic)))
        problem = problem or _describe_put(topic, observed)
    if topic is None:
        missing = problem or Problem("Missing", f"Topic '{spec.name}' does not exist")
        new_status = build_status(resource, conditions.all_false(missing), {"topicName": spec.name}, now)
        return Plan(tuple(actions), new_status)
    views = status.view_partitions(state, topic)
    status_fields = status.status_fields(topic, views, observed.broker_names)
    if problem is not None and problem.reason in _CONFLICTS:
        status_fields.pop("topicId")  # the topic belongs to another resource
    evaluated = conditions.evaluate(topic, views, problem, observed.broker_names)
    return Plan(tuple(actions), build_status(resource, evaluated, status_fields, now))


def _should_put(spec: TopicSpec, topic: Topic | None, problem: Problem | None, observed: TopicObservation) -> bool:
    if spec.is_mirror or (topic is not None and not spec.differs(topic)):
        return False
    return (
        problem is None or problem.reason in _PARTIAL or (problem.reason == _REJECTED and observed.may_resend_rejected)
    )


def _describe_put(topic: Topic | None, observed: TopicObservation) -> Problem:
    if observed.last_error is not None:
        return Problem("Waiting", observed.last_error)
    if topic is None:
        return Problem("Creating", "The topic is being created")
    return Problem("Updating", "The topic is being updated")


def _find_problem(spec: TopicSpec, topic: Topic | None, observed: TopicObservation) -> Problem | None:
    """Return the reason and the message why the topic cannot match the spec."""
    if observed.conflict is not None:
        text = f"The topic '{spec.name}' is managed by {observed.conflict}"
        return Problem("NameConflict", f"{text}; delete this resource, which owns no records")
    if topic is None:
        return Problem(_REJECTED, observed.rejection) if observed.rejection is not None else None
    if topic.owner not in {None, spec.owner}:
        text = f"The topic '{spec.name}' is owned by {topic.owner}"
        release = "delete its owner with deletionPolicy Retain, or release it over the control API"
        remedy = f"delete this resource, which owns no records, or free the topic: {release}"
        return Problem("OwnershipConflict", f"{text}; {remedy}")
    immutable = _find_immutable(spec, topic)
    if immutable is None and observed.rejection is not None and (spec.differs(topic) or topic.state != READY):
        return Problem(_REJECTED, observed.rejection)
    return immutable


def _find_immutable(spec: TopicSpec, topic: Topic) -> Problem | None:
    if spec.partitions is not None and spec.partitions < len(topic.partitions):
        now = len(topic.partitions)
        text = f"The number of partitions cannot be decreased from {now} to {spec.partitions}"
        return Problem("CannotDecreasePartitions", f"{text}; set spec.partitions to at least {now}")
    if spec.replication is not None and spec.replication != topic.replication:
        text = f"Replication cannot be changed from {topic.replication} to {spec.replication}"
        return Problem("CannotChangeReplication", f"{text}; remove spec.replication")
    return None


def _find_missing_brokers(
    spec: TopicSpec, topic: Topic | None, state: ClusterState, observed: TopicObservation
) -> Problem | None:
    """Return why a new topic must wait for brokers or racks: its replicas are placed at creation and never move.

    While a cluster starts, managers know few brokers and no racks. They would place all replicas on these brokers,
    without regard to racks.
    """
    if topic is not None or spec.is_mirror:
        return None
    needed = spec.replication if spec.replication is not None else min(REPLICATION_DEFAULT, observed.broker_count)
    if state.address_count < needed:
        reason = "Waiting" if observed.broker_count >= needed else "TooFewBrokers"
        are = "is" if state.address_count == 1 else "are"
        text = f"Replication {needed} needs {count(needed, 'broker')}, but {state.address_count} {are} registered"
        remedy = "" if reason == "Waiting" else "; add brokers, or remove spec.replication"
        return Problem(reason, f"{text}{remedy}")
    return None if observed.are_racks_registered else Problem("Waiting", "The racks of brokers are not registered yet")


def _update_finalizer(resource: Resource, spec: TopicSpec) -> tuple[Action, ...]:
    """Set the finalizer only with the policy Delete: without a finalizer, no deletion can hang."""
    current = tuple(resource["metadata"].get("finalizers") or ())
    if spec.deletes and FINALIZER not in current:
        return (SetFinalizers((*current, FINALIZER)),)
    return () if spec.deletes else _remove_finalizer(resource)


def _remove_finalizer(resource: Resource) -> tuple[Action, ...]:
    current = tuple(resource["metadata"].get("finalizers") or ())
    return (SetFinalizers(tuple(one for one in current if one != FINALIZER)),) if FINALIZER in current else ()


def _finalize(resource: Resource, spec: TopicSpec, observed: TopicObservation) -> tuple[Action, ...]:
    """Delete the topic if the policy says so and it is certainly the resource's own, then remove the finalizer."""
    remove = _remove_finalizer(resource)
    if not remove or observed.is_namespace_terminating or not spec.deletes:
        return remove
    topic = observed.state.topics_by_name.get(spec.name) if observed.state is not None else None
    if observed.state is None or (topic is not None and topic.state != READY):
        return ()  # retried when managers are available and the topic is created
    if topic is None:
        return remove
    if topic.id != (resource.get("status") or {}).get("topicId") or topic.owner != spec.owner:
        text = f"Topic '{spec.name}' was kept: it is not the topic in status.topicId, or it has another owner"
        return (*remove, EmitEvent("TopicKept", text, is_warning=True))
    return (
        DeleteTopic(spec.name, topic.id, spec.owner),
        *remove,  # before the event, which a namespace that is being deleted rejects
        EmitEvent("TopicDeleted", f"Topic '{spec.name}' and its records were deleted"),
    )


def plan_releases(state: ClusterState, namespace: str, owners: frozenset[str]) -> tuple[Action, ...]:
    """Release topics whose resources do not exist any more: the topics are kept without an owner."""
    prefix = owner_prefix(namespace)
    return tuple(
        ReleaseTopic(topic.name, topic.owner)
        for topic in state.topics_by_name.values()
        if topic.owner is not None and topic.owner.startswith(prefix) and topic.owner not in owners
    )
