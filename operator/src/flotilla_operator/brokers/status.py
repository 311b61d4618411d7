"""Status of a Broker besides its conditions. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from flotilla_operator.brokers.members import DISK_LOST, Member, describe_loss
from flotilla_operator.brokers.rollout import Rollout
from flotilla_operator.brokers.spec import BrokerSet
from flotilla_operator.cluster_state import ClusterState


def status_fields(
    desired: BrokerSet,
    members: Sequence[Member],
    rollout: Rollout,
    state: ClusterState | None,
    racks: Mapping[str, str | None],
) -> dict[str, Any]:
    """Build the status besides conditions."""
    pods = [one for one in members if one.pod is not None]
    brokers = [_broker(one, state, racks.get(one.name)) for one in members]
    brokers += [_lost(one, id_, text) for one in members for id_, text in _find_losses(one, state)]
    return {
        "replicas": len(pods),
        "readyReplicas": sum(one.pod is not None and one.pod.is_ready for one in members),
        "updatedReplicas": len(pods) - len(rollout.outdated) if rollout.is_known else 0,
        "selector": ",".join(f"{key}={value}" for key, value in desired.selector.items()),
        "image": desired.image,
        "partitions": sum(one.get("partitions", 0) for one in brokers),
        "brokers": brokers,
    }


def _broker(member: Member, state: ClusterState | None, rack: str | None) -> dict[str, Any]:
    found: dict[str, Any] = {"name": member.name, "phase": member.phase}
    if member.message:
        found["message"] = member.message
    if member.pod is not None and member.pod.node is not None:
        found["node"] = member.pod.node
    if member.broker is None or state is None:
        return found
    rack = rack or member.broker.rack
    report = state.reports.get(member.broker.id)
    return {
        **found,
        "id": member.broker.id,
        **({"rack": rack} if rack else {}),
        "partitions": len(state.partitions_by_broker.get(member.broker.id, ())),
        "leaders": state.count_leaders(member.broker.id),
        **({"diskBytes": report.disk.used_bytes} if report is not None else {}),
    }


def _find_losses(member: Member, state: ClusterState | None) -> list[tuple[str, str]]:
    if state is None:
        return []
    return [
        (one.id, describe_loss(member, one, state)) for one in member.lost if state.partitions_by_broker.get(one.id)
    ]


def _lost(member: Member, id_: str, text: str) -> dict[str, Any]:
    return {"name": member.name, "id": id_, "phase": DISK_LOST, "message": text}
