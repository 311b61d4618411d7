"""What a Broker resource shows. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from flotilla_operator.brokers.members import DISK_LOST, RUNNING, Member, lost_text
from flotilla_operator.brokers.rollout import Rollout
from flotilla_operator.brokers.scaling import Scaling
from flotilla_operator.brokers.spec import BrokerSet
from flotilla_operator.conditions import FALSE, TRUE, UNKNOWN, Condition, count, first_trouble, some
from flotilla_operator.world import World

READY, ACCEPTED, RUNS, UPDATED, SCALED, REPLICATED = (
    "Ready",
    "Accepted",
    "Running",
    "Updated",
    "Scaled",
    "FullyReplicated",
)


def accepted(refusal: str | None) -> Condition:
    """Whether Kubernetes has taken what the spec says."""
    if refusal is not None:
        return Condition(ACCEPTED, FALSE, "Refused", refusal)
    return Condition(ACCEPTED, TRUE, "Accepted", "Kubernetes has what the spec says")


def running(members: Sequence[Member]) -> Condition:
    """Whether all brokers run, and follow."""
    unwell = [one for one in members if one.phase != RUNNING]
    if not unwell:
        return Condition(RUNS, TRUE, "Running", f"{count(len(members), 'broker')} run")
    text = some([f"{one.name} is {one.phase}{': ' if one.message else ''}{one.message}" for one in unwell])
    return Condition(RUNS, FALSE, unwell[0].phase, text)


def updated(rollout: Rollout, *, is_rolling: bool) -> Condition:
    """Whether all brokers are as the spec says."""
    if not rollout.outdated and not rollout.waits_for:
        return Condition(UPDATED, TRUE, "Updated", "all brokers are as the spec says")
    names = some([one.name for one in rollout.outdated])
    if not is_rolling:
        return Condition(UPDATED, FALSE, "WaitsForYou", f"delete these pods when it suits you: {names}")
    if rollout.next is not None:
        return Condition(UPDATED, FALSE, "Replacing", f"{rollout.next.name} is being replaced; still to come: {names}")
    return Condition(UPDATED, FALSE, "Waiting", f"waits for {rollout.waits_for}; still to come: {names or 'all'}")


def scaled(wanted: int, scaling: Scaling) -> Condition:
    """Whether there are as many brokers as the spec says."""
    if scaling.held:
        return Condition(SCALED, FALSE, "ReplicasRemain", some(scaling.held))
    if scaling.replicas != wanted:
        return Condition(SCALED, FALSE, "Scaling", f"{scaling.replicas} brokers, on the way to {wanted}")
    return Condition(SCALED, TRUE, "Scaled", f"{count(wanted, 'broker')}, as wanted")


def replicated(members: Sequence[Member], world: World | None, away: str) -> Condition:
    """Whether anything was lost with a disk."""
    if world is None:
        return Condition(REPLICATED, UNKNOWN, "ManagersAway", away)
    lost = [lost_text(one, broker, world) for one in members for broker in one.lost if world.held.get(broker.id)]
    if lost:
        return Condition(REPLICATED, FALSE, DISK_LOST, some(lost))
    return Condition(REPLICATED, TRUE, "NothingLost", "no disk was lost")


def ready(others: Sequence[Condition]) -> Condition:
    """Whether all is well."""
    trouble = first_trouble(others)
    if trouble is not None:
        return Condition(READY, trouble.status, trouble.reason, trouble.message)
    return Condition(READY, TRUE, "Ready", "all brokers run, and are as the spec says")


def figures(
    wanted: BrokerSet,
    members: Sequence[Member],
    rollout: Rollout,
    world: World | None,
    racks: Mapping[str, str | None],
) -> dict[str, Any]:
    """The rest of what is shown."""
    pods = [one for one in members if one.pod is not None]
    brokers = [_broker(one, world, racks.get(one.name)) for one in members]
    brokers += [_lost(one, id_, text) for one in members for id_, text in _missed(one, world)]
    return {
        "replicas": len(pods),
        "readyReplicas": sum(one.pod is not None and one.pod.is_ready for one in members),
        "updatedReplicas": len(pods) - len(rollout.outdated),
        "selector": ",".join(f"{key}={value}" for key, value in wanted.selector.items()),
        "image": wanted.image,
        "partitions": sum(one.get("partitions", 0) for one in brokers),
        "brokers": brokers,
    }


def _broker(member: Member, world: World | None, rack: str | None) -> dict[str, Any]:
    found: dict[str, Any] = {"name": member.name, "phase": member.phase}
    if member.message:
        found["message"] = member.message
    if member.pod is not None and member.pod.node is not None:
        found["node"] = member.pod.node
    if member.broker is None or world is None:
        return found
    rack = rack or member.broker.rack
    report = world.reports.get(member.broker.id)
    return {
        **found,
        "id": member.broker.id,
        **({"rack": rack} if rack else {}),
        "partitions": len(world.held.get(member.broker.id, ())),
        "leaders": world.leaders(member.broker.id),
        **({"diskBytes": report.disk.used_bytes} if report is not None else {}),
    }


def _missed(member: Member, world: World | None) -> list[tuple[str, str]]:
    if world is None:
        return []
    return [(one.id, lost_text(member, one, world)) for one in member.lost if world.held.get(one.id)]


def _lost(member: Member, id_: str, text: str) -> dict[str, Any]:
    return {"name": member.name, "id": id_, "phase": DISK_LOST, "message": text}
