"""Whether a topic can be used, and is as it should be.

That a replica is missing does not keep anybody from using it.
"""

from collections.abc import Sequence

from flotilla_operator.conditions import TRUE, Condition, first_trouble
from flotilla_operator.topics.conditions import replicated

NAME = "Ready"


def judge(others: Sequence[Condition]) -> Condition:
    """Tell it, from all other conditions."""
    trouble = first_trouble(one for one in others if one.type != replicated.NAME)
    if trouble is not None:
        return Condition(NAME, trouble.status, trouble.reason, trouble.message)
    return Condition(NAME, TRUE, "Ready", "records can be written and read")
