"""Whether managers have taken what the spec says."""

from flotilla_operator.conditions import FALSE, TRUE, Condition

NAME = "Accepted"


def judge(trouble: tuple[str, str] | None) -> Condition:
    """Tell it. `trouble` is a reason and a message."""
    if trouble is not None:
        return Condition(NAME, FALSE, *trouble)
    return Condition(NAME, TRUE, "Accepted", "the topic is as the spec says")
