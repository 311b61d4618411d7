"""Which broker is replaced next, if any may be. Pure.

One at a time, and only while every replica of every partition follows its leader: then any one broker may be away. A
broker that does not serve anyhow goes first: it costs nothing, and a bad image that it has may be what the change
mends. Whoever leads most goes last, so that partitions change their leaders as seldom as can be.

The disruption budget is asked besides (see `Evict`): somebody else may be about to take another broker away.
"""

from dataclasses import dataclass

from flotilla_operator.brokers.members import FAILED, LEAVING, RUNNING, Member
from flotilla_operator.conditions import count, some
from flotilla_operator.partitions import view
from flotilla_operator.world import World


@dataclass(frozen=True)
class Rollout:
    """Where an update is: who goes next, or what it waits for; nothing of both if it is done."""

    outdated: tuple[Member, ...] = ()
    next: Member | None = None
    waits_for: str = ""
    is_known: bool = True  # whether Kubernetes has said who is outdated


def plan_rollout(members: tuple[Member, ...], revision: str | None, world: World | None) -> Rollout:
    """Decide. `revision` is what pods should be of; None while Kubernetes has not said it."""
    if revision is None:
        return Rollout(waits_for="Kubernetes, which has not taken the change up yet", is_known=False)
    outdated = tuple(one for one in members if one.pod is not None and one.pod.revision != revision)
    if not outdated:
        return Rollout()
    gone = [one.name for one in members if one.pod is None or one.phase == LEAVING]
    if gone:
        return Rollout(outdated, None, f"{some(gone)} to come back")
    useless = _find_useless(members, outdated, world)
    if useless is not None:
        return Rollout(outdated, useless)
    waits_for = _what_to_wait_for(members, world)
    if waits_for or world is None:
        return Rollout(outdated, None, waits_for)
    known = world
    return Rollout(outdated, min(outdated, key=lambda one: (_leads(one, known), -one.ordinal)))


def _find_useless(members: tuple[Member, ...], outdated: tuple[Member, ...], world: World | None) -> Member | None:
    """Find one that does not serve: it could not start, or nobody but it is away."""
    unwell = [one for one in members if _is_unwell(one)]
    for one in outdated:
        could_not_start = one.phase == FAILED or (one.pod is not None and one.pod.never_ran)
        is_alone = unwell == [one] and one.pod is not None and not one.pod.is_ready
        if could_not_start or (is_alone and world is not None and _misses_only(one, world)):
            return one
    return None


def _misses_only(member: Member, world: World) -> bool:
    """Tell whether no replica is missing but this broker's. One that is not ready may serve all the same."""
    own = {member.broker.id} if member.broker is not None else set()
    return all(set(view(world, topic, one).missing) <= own for topic, one in world.groups())


def _what_to_wait_for(members: tuple[Member, ...], world: World | None) -> str:
    """Say what is in the way of taking any one broker away; nothing, if nothing is."""
    unwell = [
        f"{one.name} ({one.phase}{': ' if one.message else ''}{one.message})" for one in members if _is_unwell(one)
    ]
    if unwell:
        return f"{some(unwell)} to be well"
    if world is None:
        return "managers, who know whether replicas follow"
    behind = [f"{topic.name}/{one.index}" for topic, one in world.groups() if not view(world, topic, one).is_whole]
    if behind:
        return f"all replicas to follow in {count(len(behind), 'partition')}: {some(behind)}"
    return ""


def _is_unwell(member: Member) -> bool:
    return member.phase != RUNNING


def _leads(member: Member, world: World) -> int:
    return world.leaders(member.broker.id) if member.broker is not None else 0
