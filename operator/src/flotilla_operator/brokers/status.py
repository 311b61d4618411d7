"""Status of a Broker besides its conditions. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from flotilla_operator.brokers.instances import DISK_LOST, LOSS_ADVICE, BrokerInstance, describe_loss
from flotilla_operator.brokers.rollout import Rollout
from flotilla_operator.brokers.spec import BrokerSet
from flotilla_operator.cluster_state import ClusterState


def status_fields(
    desired: BrokerSet,
    instances: Sequence[BrokerInstance],
    rollout: Rollout,
    state: ClusterState | None,
    racks: Mapping[str, str | None],
) -> dict[str, Any]:
    """Build the status besides conditions."""
    pods = [one for one in instances if one.pod is not None]
    brokers = [_broker(one, state, racks.get(one.name)) for one in instances]
    brokers += [_lost(one, id_, text) for one in instances for id_, text in _find_losses(one, state)]
    return {
        "replicas": len(pods),
        "readyReplicas": sum(one.pod is not None and one.pod.is_ready for one in instances),
        "updatedReplicas": len(pods) - len(rollout.outdated) if rollout.is_known else 0,
        "selector": ",".join(f"{key}={value}" for key, value in desired.selector.items()),
        "image": desired.image,
        "partitions": sum(one.get("partitions", 0) for one in brokers),
        "brokers": brokers,
    }


def _broker(instance: BrokerInstance, state: ClusterState | None, rack: str | None) -> dict[str, Any]:
    found: dict[str, Any] = {"name": instance.name, "phase": instance.phase}
    if instance.message:
        found["message"] = instance.message
    if instance.pod is not None and instance.pod.node is not None:
        found["node"] = instance.pod.node
    if instance.broker is None or state is None:
        return found
    rack = rack or instance.broker.rack
    report = state.reports.get(instance.broker.id)
    return {
        **found,
        "id": instance.broker.id,
        **({"rack": rack} if rack else {}),
        "partitions": len(state.partitions_by_broker.get(instance.broker.id, ())),
        "leaders": state.count_leaders(instance.broker.id),
        **({"diskBytes": report.disk.used_bytes} if report is not None else {}),
    }


def _find_losses(instance: BrokerInstance, state: ClusterState | None) -> list[tuple[str, str]]:
    if state is None:
        return []
    return [
        (one.id, f"{describe_loss(instance, one, state)}. {LOSS_ADVICE}")
        for one in instance.lost
        if state.partitions_by_broker.get(one.id)
    ]


def _lost(instance: BrokerInstance, id_: str, text: str) -> dict[str, Any]:
    return {"name": instance.name, "id": id_, "phase": DISK_LOST, "message": text}
