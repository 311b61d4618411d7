"""Pods that may do nothing: what all that we make have in common. Pure."""

from typing import Any

UID = 10001  # of nobody in particular; images have it

POD: dict[str, Any] = {
    "enableServiceLinks": False,  # FLOTILLA_PORT=tcp://… of a Service `flotilla` would be taken for a setting
    "automountServiceAccountToken": False,
    "securityContext": {
        "runAsNonRoot": True,
        "runAsUser": UID,
        "runAsGroup": UID,
        "fsGroup": UID,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    },
}
CONTAINER: dict[str, Any] = {
    "runAsNonRoot": True,
    "readOnlyRootFilesystem": True,
    "allowPrivilegeEscalation": False,
    "privileged": False,
    "capabilities": {"drop": ["ALL"]},
}
