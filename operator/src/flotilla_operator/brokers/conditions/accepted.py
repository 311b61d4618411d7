"""Whether Kubernetes has taken what the spec says."""

from flotilla_operator.conditions import FALSE, TRUE, Condition

NAME = "Accepted"


def judge(refusal: str | None) -> Condition:
    """Tell it. `refusal` is what Kubernetes said to a child."""
    if refusal is not None:
        return Condition(NAME, FALSE, "Refused", refusal)
    return Condition(NAME, TRUE, "Accepted", "Kubernetes has what the spec says")
