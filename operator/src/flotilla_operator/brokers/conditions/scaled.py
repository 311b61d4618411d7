"""Whether there are as many brokers as the spec says."""

from flotilla_operator.brokers.scaling import Scaling
from flotilla_operator.conditions import FALSE, TRUE, Condition, count, some

NAME = "Scaled"


def judge(wanted: int, scaling: Scaling) -> Condition:
    """Tell it, and who is kept, and why."""
    if scaling.held:
        return Condition(NAME, FALSE, "ReplicasRemain", some(scaling.held))
    if scaling.replicas != wanted:
        return Condition(NAME, FALSE, "Scaling", f"{scaling.replicas} brokers, on the way to {wanted}")
    return Condition(NAME, TRUE, "Scaled", f"{count(wanted, 'broker')}, as wanted")
