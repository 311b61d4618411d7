"""Whether Kubernetes and managers have taken what the spec says."""

from flotilla_operator.conditions import FALSE, TRUE, Condition

NAME = "Accepted"


def judge(refusal: str | None, waits_for: str | None) -> Condition:
    """Tell it. `refusal` is what was said to a step, `waits_for` why a step fails again and again."""
    if refusal is not None:
        return Condition(NAME, FALSE, "Refused", refusal)
    if waits_for is not None:
        return Condition(NAME, FALSE, "Waiting", waits_for)
    return Condition(NAME, TRUE, "Accepted", "Kubernetes has what the spec says")
