"""Conditions, as every resource in Kubernetes has them: what holds, since when, and why not. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

TRUE, FALSE, UNKNOWN = "True", "False", "Unknown"
_MESSAGE_MAX = 1000
_NAMED_MAX = 5


@dataclass(frozen=True)
class Condition:
    """One thing that holds or does not. `reason` is one word for programs, `message` a sentence for people."""

    type: str
    status: str
    reason: str
    message: str

    @property
    def holds(self) -> bool:
        """Whether it is certain, and true."""
        return self.status == TRUE


def write(
    conditions: Iterable[Condition], before: Sequence[Mapping[str, Any]], generation: int, now: str
) -> list[dict[str, Any]]:
    """Write conditions down. One whose status is as before has been so since then."""
    since = {one.get("type"): one for one in before}
    return [
        {
            "type": one.type,
            "status": one.status,
            "reason": one.reason,
            "message": one.message[:_MESSAGE_MAX],
            "lastTransitionTime": _since(since.get(one.type), one, now),
            "observedGeneration": generation,
        }
        for one in conditions
    ]


def _since(before: Mapping[str, Any] | None, one: Condition, now: str) -> str:
    if before is not None and before.get("status") == one.status and before.get("lastTransitionTime"):
        return str(before["lastTransitionTime"])
    return now


def first_trouble(conditions: Iterable[Condition]) -> Condition | None:
    """Give the first that does not hold."""
    return next((one for one in conditions if not one.holds), None)


def some(names: Sequence[str]) -> str:
    """Name a few of many."""
    shown = ", ".join(names[:_NAMED_MAX])
    return shown if len(names) <= _NAMED_MAX else f"{shown} and {len(names) - _NAMED_MAX} more"


def count(number: int, what: str) -> str:
    """Say how many."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
