"""Broker pods as the API server returns them, reduced to the fields in use. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flotilla_operator.names import REVISION

_FAILURES = {
    "CrashLoopBackOff",
    "CreateContainerConfigError",
    "CreateContainerError",
    "ErrImageNeverPull",
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "RunContainerError",
}

Resource = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Pod:
    """A broker pod."""

    name: str
    uid: str
    ordinal: int
    labels: Mapping[str, str]
    revision: str | None = None
    node: str | None = None
    is_ready: bool = False
    is_terminating: bool = False
    never_ran: bool = False  # its container was never started
    scheduling_error: str | None = None  # why it is not scheduled
    failure: str | None = None  # why its container does not start


def read_pods(resources: Sequence[Resource], set_name: str) -> tuple[Pod, ...]:
    """Find the pods of a set by name: pods of chart 0.1, which had no operator, have no label for it."""
    found = [_read(one, set_name) for one in resources]
    return tuple(sorted((one for one in found if one is not None), key=lambda one: one.ordinal))


def _read(resource: Resource, set_name: str) -> Pod | None:
    metadata, status = resource["metadata"], resource.get("status") or {}
    name, _, ordinal = metadata["name"].rpartition("-")
    if name != set_name or not ordinal.isdecimal():
        return None
    conditions = {one["type"]: one for one in status.get("conditions") or ()}
    scheduled = conditions.get("PodScheduled", {})
    return Pod(
        name=metadata["name"],
        uid=metadata["uid"],
        ordinal=int(ordinal),
        labels=metadata.get("labels") or {},
        revision=(metadata.get("labels") or {}).get(REVISION),
        node=(resource.get("spec") or {}).get("nodeName"),
        is_ready=conditions.get("Ready", {}).get("status") == "True",
        is_terminating="deletionTimestamp" in metadata,
        never_ran=status.get("phase") == "Pending",
        scheduling_error=scheduled.get("message") if scheduled.get("status") == "False" else None,
        failure=failure_of(status),
    )


def failure_of(status: Mapping[str, Any]) -> str | None:
    """Return the reason why a container of a pod does not start."""
    for container in status.get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") in _FAILURES:
            ended = (container.get("lastState") or {}).get("terminated") or {}
            code = f"; the last exit code was {ended['exitCode']}" if "exitCode" in ended else ""
            message = f": {waiting['message']}" if waiting.get("message") else ""
            return f"{waiting['reason']}{message}{code}"
    return None
