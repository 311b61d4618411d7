"""Instances of a set: each pod, the broker in it, and its phase. Pure.

The identity of a broker is its id, which is on its disk; a pod is only where it runs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flotilla_operator.brokers.pods import Pod
from flotilla_operator.brokers.spec import BrokerSet
from flotilla_operator.cluster_state import LAG_MAX, Broker, ClusterState, Report
from flotilla_operator.conditions import count, join_names

PENDING, STARTING, RUNNING, LAGGING = "Pending", "Starting", "Running", "Lagging"
UNREACHABLE, FAILED, LEAVING, DISK_LOST = "Unreachable", "Failed", "Leaving", "DiskLost"
LOSS_ADVICE = (
    "Lost replicas cannot be re-created yet; copy the records of the affected topics to new topics, "
    "then delete the affected topics"
)


@dataclass(frozen=True, kw_only=True)
class BrokerInstance:
    """An ordinal of the StatefulSet: its pod, if it exists, and the broker that runs in it."""

    name: str
    ordinal: int
    pod: Pod | None
    broker: Broker | None
    phase: str
    message: str = ""
    registered: tuple[Broker, ...] = ()  # all brokers registered at this address and not removed
    lost: tuple[Broker, ...] = ()  # those of them whose disk was lost: another broker runs at their address


def find_instances(
    desired: BrokerSet, ordinal_count: int, pods: tuple[Pod, ...], state: ClusterState | None
) -> tuple[BrokerInstance, ...]:
    """Find the instances of a set: the first `ordinal_count` ordinals, and all further pods."""
    by_ordinal = {pod.ordinal: pod for pod in pods}
    ordinals = sorted({*range(ordinal_count), *by_ordinal})
    return tuple(_find(desired, ordinal, by_ordinal.get(ordinal), state) for ordinal in ordinals)


def _find(desired: BrokerSet, ordinal: int, pod: Pod | None, state: ClusterState | None) -> BrokerInstance:
    name = desired.pod(ordinal)
    at_address = () if state is None else tuple(one for one in state.brokers if one.host == desired.host(name))
    current = _current(at_address, state) if state is not None else None
    phase, message = _phase(pod, current, state)
    registered = tuple(one for one in at_address if not one.removed)
    is_certain = state is not None and current is not None and _has_fresh_report(current, state)
    lost = tuple(one for one in registered if one is not current and not one.active) if is_certain else ()
    return BrokerInstance(
        name=name,
        ordinal=ordinal,
        pod=pod,
        broker=current,
        phase=phase,
        message=message,
        registered=registered,
        lost=lost,
    )


def _current(at_address: tuple[Broker, ...], state: ClusterState) -> Broker | None:
    """Find the current broker of an address.

    In this order: one that was not removed, an active one, the one with the latest heartbeat, the last registered one.
    """

    def preference(index: int) -> tuple[bool, bool, float, int]:
        broker = at_address[index]
        report = state.reports.get(broker.id)
        seconds = report.seconds_ago if report is not None else float("inf")
        return broker.removed, not broker.active, seconds, -index

    return at_address[min(range(len(at_address)), key=preference)] if at_address else None


def _has_fresh_report(broker: Broker, state: ClusterState) -> bool:
    report = state.reports.get(broker.id)
    return report is not None and report.is_fresh


def _phase(pod: Pod | None, broker: Broker | None, state: ClusterState | None) -> tuple[str, str]:
    if pod is None:
        return PENDING, "The pod does not exist yet"
    if pod.is_terminating:
        return LEAVING, "The broker is shutting down and transferring leadership"
    if pod.failure is not None:
        return FAILED, f"The container does not run: {pod.failure}"
    if pod.scheduling_error is not None:
        return PENDING, f"The pod is not scheduled: {pod.scheduling_error}"
    return _phase_of_broker(broker, state, is_ready=pod.is_ready)


def _phase_of_broker(broker: Broker | None, state: ClusterState | None, *, is_ready: bool) -> tuple[str, str]:
    starting = STARTING, "The pod is not ready"
    if state is None:
        return (RUNNING, "") if is_ready else starting
    report = state.reports.get(broker.id) if broker is not None else None
    if report is None or not report.is_fresh:
        return (UNREACHABLE, _describe_silence(report)) if is_ready else starting
    behind = max((one.lag for one in report.replicas), default=0)
    if behind > LAG_MAX:
        return LAGGING, f"A replica is more than {LAG_MAX:,} entries behind its leader"
    return (RUNNING, "") if is_ready else starting


def _describe_silence(report: Report | None) -> str:
    """Describe a missing heartbeat by its limit. With its age, every reconcile would write the status."""
    text = "Managers have received no heartbeat"
    return text if report is None else f"{text} for {report.fresh_s:g} s"


def rack_of(instance: BrokerInstance, topology_key: str, nodes: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Return the rack of a broker. Kubernetes 1.35 copies zone and region to pods; other labels are on the node."""
    if instance.pod is None:
        return None
    node = nodes.get(instance.pod.node or "", {})
    return instance.pod.labels.get(topology_key) or ((node.get("metadata") or {}).get("labels") or {}).get(topology_key)


def describe_phase(instance: BrokerInstance) -> str:
    """Describe the phase of a broker."""
    return f"{instance.name} is {instance.phase}{': ' if instance.message else ''}{instance.message}"


def describe_loss(instance: BrokerInstance, broker: Broker, state: ClusterState) -> str:
    """Describe the replicas that were lost with a disk. `LOSS_ADVICE` is what to do."""
    held = state.partitions_by_broker.get(broker.id, ())
    return f"The disk of {instance.name} was lost with {count(len(held), 'replica')}: {join_names(held)}"


def name_brokers(state: ClusterState | None) -> Mapping[str, str]:
    """Map broker ids to pod names; inactive brokers get their id appended."""
    if state is None:
        return {}
    names = {}
    for one in state.brokers:
        names[one.id] = one.pod if one.active else f"{one.pod} ({one.id[:8]}, inactive)"
    return names
