"""Conditions as in the API conventions of Kubernetes: a type, a status, a reason and a message. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

TRUE, FALSE, UNKNOWN = "True", "False", "Unknown"
MANAGERS_UNAVAILABLE = "ManagersUnavailable"  # reason of conditions that need the state of the managers
_MESSAGE_MAX = 1000
_NAMES_MAX = 5  # names or sentences in a message


class Problem(NamedTuple):
    """Reason and message of a condition that is not true."""

    reason: str
    message: str


@dataclass(frozen=True)
class Condition:
    """One condition. `reason` is a CamelCase word for programs, `message` a text for users."""

    type: str
    status: str
    reason: str
    message: str


def build_status(
    resource: Mapping[str, Any], conditions: Iterable[Condition], status_fields: Mapping[str, Any], now: str
) -> dict[str, Any]:
    """Build the status of a resource. A condition whose status did not change keeps its transition time."""
    before = {one.get("type"): one for one in (resource.get("status") or {}).get("conditions") or []}
    generation = resource["metadata"].get("generation", 0)
    return {
        **status_fields,
        "observedGeneration": generation,
        "conditions": [_encode(one, before.get(one.type), generation, now) for one in conditions],
    }


def _encode(one: Condition, before: Mapping[str, Any] | None, generation: int, now: str) -> dict[str, Any]:
    is_same = before is not None and before.get("status") == one.status
    return {
        "type": one.type,
        "status": one.status,
        "reason": one.reason,
        "message": one.message[:_MESSAGE_MAX],
        "lastTransitionTime": (before or {}).get("lastTransitionTime") or now if is_same else now,
        "observedGeneration": generation,
    }


def first_not_true(conditions: Iterable[Condition]) -> Condition | None:
    """Return the first condition that is not true."""
    return next((one for one in conditions if one.status != TRUE), None)


def join_names(names: Sequence[str]) -> str:
    """Join names for a message, at most five."""
    shown = ", ".join(names[:_NAMES_MAX])
    return shown if len(names) <= _NAMES_MAX else f"{shown} and {len(names) - _NAMES_MAX} more"


def join_sentences(sentences: Sequence[str]) -> str:
    """Join sentences for a message, at most five."""
    shown = ". ".join(sentences[:_NAMES_MAX])
    return shown if len(sentences) <= _NAMES_MAX else f"{shown}. And {len(sentences) - _NAMES_MAX} more"


def count(number: int, noun: str) -> str:
    """Format a number with its noun, in singular or plural."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
