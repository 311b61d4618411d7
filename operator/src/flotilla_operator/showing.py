"""When a status is worth writing, and when it is worth an event. Pure."""

from collections.abc import Mapping
from typing import Any

from flotilla_operator.conditions import FALSE
from flotilla_operator.steps import Tell

FIGURES_S = 15.0  # figures change all the time; so often they are shown
_AWAY = "ManagersAway"  # of everything at once, and no news of any one
_FIGURES = {"messages", "bytes", "lag", "diskBytes", "offsets", "lastProgress"}
# Reasons that pass by themselves: nobody has to be warned of them.
_PASSING = {
    "BeingChanged",
    "BeingMade",
    "Leaving",
    "Pending",
    "Replacing",
    "Scaling",
    "Starting",
    "Stopping",
    "Waiting",
}

Status = Mapping[str, Any]


def should_show(before: Status, after: Status, seconds: float) -> bool:
    """Tell whether to write a status, so many seconds after the last time."""
    if _without_figures(before) != _without_figures(after):
        return True
    return before != after and seconds >= FIGURES_S


def news(before: Status, after: Status) -> Tell | None:
    """Tell of a change that people want to hear of: that a resource is ready, or why it is not."""
    was, is_ = _ready(before), _ready(after)
    if (
        is_ is None
        or is_["reason"] == _AWAY
        or (was is not None and (was["status"], was["reason"]) == (is_["status"], is_["reason"]))
    ):
        return None
    return Tell(is_["reason"], is_["message"], warning=is_["status"] == FALSE and is_["reason"] not in _PASSING)


def _ready(status: Status) -> Mapping[str, Any] | None:
    return next((one for one in status.get("conditions") or () if one["type"] == "Ready"), None)


def _without_figures(value: Any) -> Any:  # noqa: ANN401 - any JSON
    if isinstance(value, Mapping):
        return {key: _without_figures(one) for key, one in value.items() if key not in _FIGURES}
    if isinstance(value, list):
        return [_without_figures(one) for one in value]
    return value
