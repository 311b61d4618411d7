"""Whether every replica follows."""

from collections.abc import Mapping, Sequence

from flotilla_operator.conditions import FALSE, TRUE, Condition, count, some
from flotilla_operator.partitions import PartitionView

NAME = "FullyReplicated"


def judge(views: Sequence[PartitionView], called: Mapping[str, str]) -> Condition:
    """Tell it. `called` is what brokers are called, by id."""
    missing = [f"{one.index} on {called.get(broker, broker)}" for one in views for broker in one.missing]
    if missing:
        text = f"{count(len(missing), 'replica')} missing or far behind: {some(missing)}"
        return Condition(NAME, FALSE, "ReplicasMissing", text)
    return Condition(NAME, TRUE, "InSync", "all replicas follow")
