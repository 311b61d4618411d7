"""When to write a status, and when to emit an event for it. Pure."""

from collections.abc import Mapping
from typing import Any

from flotilla_operator.conditions import FALSE, MANAGERS_UNAVAILABLE, TRUE
from flotilla_operator.plans import EmitEvent

VOLATILE_S = 15.0  # interval of updates that change only volatile fields
_VOLATILE = {"messages", "bytes", "lag", "diskBytes", "offsets", "lastProgress"}
# Reasons of normal transitions: their events are not warnings.
_NORMAL = {"Creating", "Leaving", "Pending", "Replacing", "Scaling", "Starting", "Stopping", "Updating", "Waiting"}

Status = Mapping[str, Any]


def needs_update(before: Status, after: Status, seconds: float) -> bool:
    """Whether to write a status, this many seconds after the last update."""
    if _without_volatile(before) != _without_volatile(after):
        return True
    return before != after and seconds >= VOLATILE_S


def ready_event(before: Status, after: Status) -> EmitEvent | None:
    """Return the event for a change of the status or the reason of Ready.

    An outage of the managers affects all resources at once, so neither its begin nor its end is an event.
    """
    old, new = _ready(before), _ready(after)
    if new is None or new["reason"] == MANAGERS_UNAVAILABLE:
        return None
    if old is not None and old["reason"] == MANAGERS_UNAVAILABLE and new["status"] == TRUE:
        return None
    if old is not None and (old["status"], old["reason"]) == (new["status"], new["reason"]):
        return None
    is_warning = new["status"] == FALSE and new["reason"] not in _NORMAL
    return EmitEvent(new["reason"], new["message"], is_warning=is_warning)


def _ready(status: Status) -> Mapping[str, Any] | None:
    return next((one for one in status.get("conditions") or () if one["type"] == "Ready"), None)


def _without_volatile(value: Any) -> Any:  # noqa: ANN401 - any JSON
    if isinstance(value, Mapping):
        return {key: _without_volatile(one) for key, one in value.items() if key not in _VOLATILE}
    if isinstance(value, list):
        return [_without_volatile(one) for one in value]
    return value
