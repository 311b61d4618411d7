"""What a Topic tells of itself, one file for each condition, in the order in which they are shown. Pure."""

from collections.abc import Mapping, Sequence

from flotilla_operator.conditions import FALSE, UNKNOWN, Condition
from flotilla_operator.partitions import PartitionView
from flotilla_operator.topics.conditions import accepted, placed, ready, replicated
from flotilla_operator.world import Topic

_NAMES = (ready.NAME, accepted.NAME, placed.NAME, replicated.NAME)


def judge(
    topic: Topic, views: Sequence[PartitionView], trouble: tuple[str, str] | None, called: Mapping[str, str]
) -> tuple[Condition, ...]:
    """Tell how a topic is. `trouble` is why it is not as the spec says: a reason and a message."""
    others = (accepted.judge(trouble), placed.judge(topic, views), replicated.judge(views, called))
    return (ready.judge(others), *others)


def unknown(message: str) -> tuple[Condition, ...]:
    """What is known while managers are away: nothing."""
    return tuple(Condition(name, UNKNOWN, "ManagersAway", message) for name in _NAMES)


def absent(trouble: tuple[str, str]) -> tuple[Condition, ...]:
    """What is known of a topic that is not there."""
    return tuple(Condition(name, FALSE, *trouble) for name in _NAMES)
