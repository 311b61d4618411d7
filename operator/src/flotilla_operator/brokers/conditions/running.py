"""Whether all brokers run, and follow."""

from collections.abc import Sequence

from flotilla_operator.brokers.members import RUNNING, Member
from flotilla_operator.conditions import FALSE, TRUE, Condition, count, some

NAME = "Running"


def judge(members: Sequence[Member]) -> Condition:
    """Tell it."""
    unwell = [one for one in members if one.phase != RUNNING]
    if not unwell:
        return Condition(NAME, TRUE, "Running", f"{count(len(members), 'broker')} run")
    text = some([f"{one.name} is {one.phase}{': ' if one.message else ''}{one.message}" for one in unwell])
    return Condition(NAME, FALSE, unwell[0].phase, text)
