"""Whether anything was lost with a disk."""

from collections.abc import Sequence

from flotilla_operator.brokers.members import DISK_LOST, Member, lost_text
from flotilla_operator.conditions import FALSE, TRUE, UNKNOWN, Condition, some
from flotilla_operator.world import World

NAME = "FullyReplicated"


def judge(members: Sequence[Member], world: World | None, away: str) -> Condition:
    """Tell it. `away` is why managers, who know it, do not answer."""
    if world is None:
        return Condition(NAME, UNKNOWN, "ManagersAway", away)
    lost = [lost_text(one, broker, world) for one in members for broker in one.lost if world.held.get(broker.id)]
    if lost:
        return Condition(NAME, FALSE, DISK_LOST, some(lost))
    return Condition(NAME, TRUE, "NothingLost", "no disk was lost")
