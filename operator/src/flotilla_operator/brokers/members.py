"""Which broker is in which pod, and how it is. Pure.

A broker is its id, which is on its disk; a pod is only where it runs.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from flotilla_operator.brokers.pods import Pod
from flotilla_operator.brokers.spec import BrokerSet
from flotilla_operator.conditions import count, some
from flotilla_operator.partitions import LAG_MAX
from flotilla_operator.world import Broker, World

PENDING, STARTING, RUNNING, LAGGING = "Pending", "Starting", "Running", "Lagging"
UNREACHABLE, FAILED, LEAVING, DISK_LOST = "Unreachable", "Failed", "Leaving", "DiskLost"


@dataclass(frozen=True, kw_only=True)
class Member:
    """A place in a set: a pod that is or should be, and the broker that is in it now."""

    name: str
    ordinal: int
    pod: Pod | None
    broker: Broker | None
    phase: str
    message: str = ""
    here: tuple[Broker, ...] = ()  # all brokers that were ever here, and were not removed
    lost: tuple[Broker, ...] = ()  # those of them that are gone for good: another one serves in their place


def find_members(wanted: BrokerSet, places: int, pods: tuple[Pod, ...], world: World | None) -> tuple[Member, ...]:
    """Tell how each broker of a set is: `places` that should be there, and pods that still are."""
    by_ordinal = {pod.ordinal: pod for pod in pods}
    ordinals = sorted({*range(places), *by_ordinal})
    return tuple(_find(wanted, at, by_ordinal.get(at), world) for at in ordinals)


def _find(wanted: BrokerSet, ordinal: int, pod: Pod | None, world: World | None) -> Member:
    name = wanted.pod(ordinal)
    here = () if world is None else tuple(one for one in world.brokers if one.host == wanted.host(name))
    current = _current(here, world) if world is not None else None
    phase, message = _phase(pod, current, world)
    known = tuple(one for one in here if not one.removed)
    is_sure = world is not None and current is not None and _is_heard(current, world)
    lost = tuple(one for one in known if one is not current and not one.active) if is_sure else ()
    return Member(
        name=name, ordinal=ordinal, pod=pod, broker=current, phase=phase, message=message, here=known, lost=lost
    )


def _current(here: tuple[Broker, ...], world: World) -> Broker | None:
    """Tell who of those at one address is there now: whoever is heard of; if nobody is, the one that came last."""

    def age(at: int) -> tuple[bool, bool, float, int]:
        report = world.reports.get(here[at].id)
        seconds = report.seconds_ago if report is not None else float("inf")
        return here[at].removed, not here[at].active, seconds, -at

    return here[min(range(len(here)), key=age)] if here else None


def _is_heard(broker: Broker, world: World) -> bool:
    report = world.reports.get(broker.id)
    return report is not None and report.is_fresh


def _phase(pod: Pod | None, broker: Broker | None, world: World | None) -> tuple[str, str]:
    if pod is None:
        return PENDING, "there is no pod yet"
    if pod.is_leaving:
        return LEAVING, "it hands over, and ends"
    if pod.failure is not None:
        return FAILED, pod.failure
    if pod.waits_for is not None:
        return PENDING, pod.waits_for
    return _phase_of_broker(broker, world, is_ready=pod.is_ready)


def _phase_of_broker(broker: Broker | None, world: World | None, *, is_ready: bool) -> tuple[str, str]:
    starting = STARTING, "it is not ready yet"
    if world is None:
        return (RUNNING, "") if is_ready else starting
    report = world.reports.get(broker.id) if broker is not None else None
    if report is None or not report.is_fresh:
        return (UNREACHABLE, "managers do not hear of it") if is_ready else starting
    behind = max((one.lag for one in report.replicas), default=0)
    if behind > LAG_MAX:
        return LAGGING, "replicas on it are far behind"
    return (RUNNING, "") if is_ready else starting


def lost_text(member: Member, broker: Broker, world: World) -> str:
    """Say what is missed with a disk."""
    held = world.held.get(broker.id, ())
    return (
        f"{member.name} came back with an empty disk; {count(len(held), 'replica')} were on the old one: {some(held)}"
    )


def call_brokers(world: World | None) -> Mapping[str, str]:
    """Say what brokers are called: by their pods; those that are not in a pod any more, also by their ids."""
    if world is None:
        return {}
    called = {}
    for one in world.brokers:
        pod = one.host.partition(".")[0]
        called[one.id] = pod if one.active else f"{pod} ({one.id[:8]}, gone)"
    return called
