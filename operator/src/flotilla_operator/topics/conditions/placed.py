"""Whether every partition has its brokers, and one of them leads."""

from collections.abc import Sequence

from flotilla_operator.conditions import FALSE, TRUE, Condition, count, some
from flotilla_operator.partitions import PartitionView
from flotilla_operator.world import READY, Topic

NAME = "Placed"


def judge(topic: Topic, views: Sequence[PartitionView]) -> Condition:
    """Tell it."""
    if topic.state != READY:
        return Condition(NAME, FALSE, "BeingMade", "brokers are opening its partitions")
    headless = [str(one.index) for one in views if one.leader is None]
    if headless:
        text = f"{count(len(headless), 'partition')} without a leader: {some(headless)}"
        return Condition(NAME, FALSE, "NoLeader", text)
    return Condition(NAME, TRUE, "Placed", "every partition has a leader")
