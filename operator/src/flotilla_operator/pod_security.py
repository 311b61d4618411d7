"""Pod settings without privileges, for all pods that the operator creates. Pure."""

from typing import Any

UID = 10001  # user of the images

POD_SPEC: dict[str, Any] = {
    "enableServiceLinks": False,  # FLOTILLA_PORT=tcp://… of a Service `flotilla` would be read as a setting
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
CONTAINER_SECURITY_CONTEXT: dict[str, Any] = {
    "runAsNonRoot": True,
    "readOnlyRootFilesystem": True,
    "allowPrivilegeEscalation": False,
    "privileged": False,
    "capabilities": {"drop": ["ALL"]},
}
