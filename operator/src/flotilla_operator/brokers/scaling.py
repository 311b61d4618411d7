"""How many brokers there are to be now. More is simple; a broker goes only when it holds nothing. Pure.

Ordinals of a StatefulSet go from the highest down. So a broker that holds nothing stays while one above it holds
something. Those that are to go are not wanted: managers place nothing on them any more.
"""

from dataclasses import dataclass

from flotilla_operator.brokers.members import FAILED, PENDING, Member
from flotilla_operator.conditions import count, some
from flotilla_operator.steps import PutBroker, RemoveBroker, Step
from flotilla_operator.world import Broker, World


@dataclass(frozen=True)
class Scaling:
    """How many pods there should be now, what managers have to be told, and who is kept, and why."""

    replicas: int
    steps: tuple[Step, ...] = ()
    held: tuple[str, ...] = ()


def plan_scaling(wanted: int, current: int, members: tuple[Member, ...], world: World | None) -> Scaling:
    """Decide how many pods there should be."""
    if wanted >= current:
        return Scaling(wanted, _want(members, wanted, world))
    if world is None:
        return Scaling(current, (), ("managers are away, who know what brokers hold",))
    leaving = [one for one in members if wanted <= one.ordinal < current]
    kept = [one for one in leaving if not _may_go(one, world)]
    replicas = max((one.ordinal + 1 for one in kept), default=wanted)
    held = tuple(_why(one, world) for one in kept if _holds(one, world))
    return Scaling(replicas, _want(members, wanted, world), held)


def _want(members: tuple[Member, ...], wanted: int, world: World | None) -> tuple[Step, ...]:
    """Tell managers who is wanted; and to forget those that went, and held nothing."""
    if world is None:
        return ()
    steps: list[Step] = []
    for member in members:
        is_wanted = member.ordinal < wanted
        broker = member.broker
        # One that was removed with its place, and is there again, with the disk that it had, takes part again.
        is_back = broker is not None and broker.removed and is_wanted and member.pod is not None
        if broker is not None and (is_back or (not broker.removed and broker.wanted != is_wanted)):
            steps.append(PutBroker(broker.id, {"wanted": is_wanted, "cordoned": broker.cordoned}))
        steps += [RemoveBroker(one.id) for one in member.lost if not world.held.get(one.id)]
    return tuple(steps)


def plan_farewells(brokers: tuple[Broker, ...], hosts: frozenset[str], suffix: str, world: World) -> tuple[Step, ...]:
    """Forget brokers of a set whose pods are gone for good, and that hold nothing."""
    return tuple(
        RemoveBroker(one.id)
        for one in brokers
        if one.host.endswith(suffix)
        and one.host not in hosts
        and not (one.removed or one.active or one.wanted or world.held.get(one.id))
    )


def plan_lost_sets(world: World, namespace: str, sets: frozenset[str], pods: frozenset[str]) -> tuple[Step, ...]:
    """Forget brokers of sets that are gone, and that hold nothing: managers would wait for them with every topic."""

    def is_lost(one: Broker) -> bool:
        pod, _, where = one.host.partition(".")
        name, _, suffix = where.partition(".")
        return suffix == f"{namespace}.svc" and name not in sets and pod not in pods

    return tuple(
        RemoveBroker(one.id)
        for one in world.brokers
        if is_lost(one) and not (one.removed or one.active or world.held.get(one.id))
    )


def _may_go(member: Member, world: World) -> bool:
    """Whether a broker holds nothing, and nothing can come to it any more."""
    if member.broker is None:  # one that starts may register in the next moment
        return member.pod is None or member.phase in {PENDING, FAILED}
    is_told = member.broker.removed or not member.broker.wanted
    return is_told and not _holds(member, world)


def _holds(member: Member, world: World) -> tuple[str, ...]:
    return tuple(name for broker in member.here for name in world.held.get(broker.id, ()))


def _why(member: Member, world: World) -> str:
    held = _holds(member, world)
    return f"{member.name} holds {count(len(held), 'replica')}: {some(held)}"
