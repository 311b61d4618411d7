"""What brokers fail together with: a label of their pod, or of its node. Pure."""

from collections.abc import Mapping
from typing import Any

from flotilla_operator.brokers.members import Member
from flotilla_operator.brokers.spec import BrokerSet
from flotilla_operator.steps import PutBroker, Step


def rack_of(member: Member, topology_key: str, nodes: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Tell the rack of a broker. Kubernetes 1.35 puts zone and region on pods; other labels are the node's."""
    if member.pod is None:
        return None
    node = nodes.get(member.pod.node or "", {})
    return member.pod.labels.get(topology_key) or ((node.get("metadata") or {}).get("labels") or {}).get(topology_key)


def plan_racks(
    wanted: BrokerSet, members: tuple[Member, ...], nodes: Mapping[str, Mapping[str, Any]]
) -> tuple[Step, ...]:
    """Tell managers the racks of brokers that they know, where they do not know them yet."""
    if wanted.topology_key is None:
        return ()
    steps = []
    for member in members:
        rack, broker = rack_of(member, wanted.topology_key, nodes), member.broker
        if rack is not None and broker is not None and not broker.removed and broker.rack != rack:
            body = {"rack": rack, "wanted": member.ordinal < wanted.replicas, "cordoned": broker.cordoned}
            steps.append(PutBroker(broker.id, body))
    return tuple(steps)
