"""What a Broker resource shows besides its conditions. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from flotilla_operator.brokers.members import DISK_LOST, Member, lost_text
from flotilla_operator.brokers.rollout import Rollout
from flotilla_operator.brokers.spec import BrokerSet
from flotilla_operator.world import World


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
        "updatedReplicas": len(pods) - len(rollout.outdated) if rollout.is_known else 0,
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
