"""Whether all is well."""

from collections.abc import Sequence

from flotilla_operator.conditions import TRUE, Condition, first_trouble

NAME = "Ready"


def judge(others: Sequence[Condition]) -> Condition:
    """Tell it, from all other conditions."""
    trouble = first_trouble(others)
    if trouble is not None:
        return Condition(NAME, trouble.status, trouble.reason, trouble.message)
    return Condition(NAME, TRUE, "Ready", "all brokers run, and are as the spec says")
