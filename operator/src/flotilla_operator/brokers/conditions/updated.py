"""Whether all brokers are as the spec says."""

from flotilla_operator.brokers.rollout import Rollout
from flotilla_operator.conditions import FALSE, TRUE, Condition, some

NAME = "Updated"


def judge(rollout: Rollout, *, is_rolling: bool) -> Condition:
    """Tell it. Unless brokers are replaced by the operator, users are told which pods to delete."""
    if not rollout.outdated and not rollout.waits_for:
        return Condition(NAME, TRUE, "Updated", "all brokers are as the spec says")
    names = some([one.name for one in rollout.outdated])
    if not is_rolling and names:
        return Condition(NAME, FALSE, "WaitsForYou", f"delete these pods when it suits you: {names}")
    if rollout.next is not None:
        return Condition(NAME, FALSE, "Replacing", f"{rollout.next.name} is being replaced; still to come: {names}")
    return Condition(
        NAME, FALSE, "Waiting", f"waits for {rollout.waits_for}{'; still to come: ' if names else ''}{names}"
    )
