"""The StatefulSet of a Broker. Pure.

podManagementPolicy is Parallel: with OrderedReady, a pod that cannot start would block the pods after it.
updateStrategy is OnDelete: the operator replaces pods itself, when all replicas are in sync (see `rollout`).
"""

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from flotilla_operator import pod_security
from flotilla_operator.brokers.addresses import host_of
from flotilla_operator.brokers.children.objects import CLIENT_PORT, PEER_PORT, config_digest
from flotilla_operator.brokers.spec import BROKER_COMPONENT, BrokerSet, spread
from flotilla_operator.names import GROUP

_DIGEST = f"{GROUP}/digest"  # of the spec that was applied
_TLS = "/etc/flotilla/tls"
_SECRET = "/etc/flotilla/secret"  # noqa: S105 - a folder


def make(desired: BrokerSet, replicas: int) -> dict[str, Any]:
    """Make the StatefulSet with the current number of pods."""
    spec = _spec(desired, replicas)
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {
            "name": desired.name,
            "namespace": desired.namespace,
            "labels": desired.labels,
            "annotations": {_DIGEST: hashlib.sha256(msgspec.json.encode(spec, order="sorted")).hexdigest()[:16]},
            "ownerReferences": [desired.owner],
        },
        "spec": spec,
    }


def _spec(desired: BrokerSet, replicas: int) -> dict[str, Any]:
    return {
        "serviceName": desired.name,
        "replicas": replicas,
        "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "OnDelete"},
        "persistentVolumeClaimRetentionPolicy": {
            "whenDeleted": desired.when_deleted,
            "whenScaled": desired.when_scaled,
        },
        "selector": {"matchLabels": desired.selector},
        "template": {"metadata": _pod_metadata(desired), "spec": _pod_spec(desired)},
        "volumeClaimTemplates": [_claim(desired)],
    }


def is_applied(found: Mapping[str, Any], desired: Mapping[str, Any]) -> bool:
    """Whether an existing StatefulSet was applied from the desired manifest, so that its status is valid."""
    annotations = found["metadata"].get("annotations") or {}
    return bool(annotations.get(_DIGEST) == desired["metadata"]["annotations"][_DIGEST])


IMMUTABLE = ("serviceName", "podManagementPolicy", "selector")


def needs_recreation(found: dict[str, Any], desired: dict[str, Any]) -> bool:
    """Whether a StatefulSet must be deleted and created again, because an immutable field or its owner differs."""
    before, after = found["spec"], desired["spec"]
    if any(before.get(key) != after[key] for key in IMMUTABLE):
        return True
    owners = {one["uid"] for one in found["metadata"].get("ownerReferences") or ()}
    if desired["metadata"]["ownerReferences"][0]["uid"] not in owners:
        return True  # created by another client, with unknown fields
    return [_immutable_fields(one) for one in before.get("volumeClaimTemplates") or ()] != [
        _immutable_fields(one) for one in after["volumeClaimTemplates"]
    ]


def _immutable_fields(claim: dict[str, Any]) -> tuple[Any, ...]:
    """Immutable fields of a claim except its size, which is immutable in the CRD: Kubernetes writes 1024Gi as 1Ti."""
    return claim["metadata"]["name"], claim["metadata"].get("labels"), claim["spec"].get("storageClassName")


def _claim(desired: BrokerSet) -> dict[str, Any]:
    spec: dict[str, Any] = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": desired.size}}}
    if desired.storage_class is not None:
        spec["storageClassName"] = desired.storage_class
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "labels": desired.installation.labels},
        "spec": spec,
    }


def _pod_metadata(desired: BrokerSet) -> dict[str, Any]:
    return {
        "labels": {**(desired.template.get("labels") or {}), **desired.labels},
        "annotations": {
            **(desired.template.get("annotations") or {}),
            f"{GROUP}/config": config_digest(desired),
        },
    }


def _pod_spec(desired: BrokerSet) -> dict[str, Any]:
    template, installation = desired.template, desired.installation
    secrets = template.get("imagePullSecrets") or [{"name": name} for name in installation.image_pull_secrets]
    optional = {
        "imagePullSecrets": secrets,
        "nodeSelector": template.get("nodeSelector"),
        "tolerations": template.get("tolerations"),
        "affinity": template.get("affinity"),
        "priorityClassName": template.get("priorityClassName"),
        "topologySpreadConstraints": spread(desired),
    }
    return {
        "serviceAccountName": template.get("serviceAccountName") or desired.name,
        **pod_security.POD_SPEC,
        "terminationGracePeriodSeconds": template.get("terminationGracePeriodSeconds", 60),
        **{key: value for key, value in optional.items() if value},
        "containers": [_container(desired)],
        "volumes": _volumes(desired),
    }


def _container(desired: BrokerSet) -> dict[str, Any]:
    return {
        "name": BROKER_COMPONENT,
        "image": desired.image,
        "imagePullPolicy": desired.image_pull_policy,
        "args": ["python3", "-m", "flotilla_broker"],
        "securityContext": pod_security.CONTAINER_SECURITY_CONTEXT,
        "ports": [
            {"name": "client", "containerPort": CLIENT_PORT},
            {"name": "peer", "containerPort": PEER_PORT},
        ],
        "env": _env(desired),
        "envFrom": [{"configMapRef": {"name": desired.name}}],
        **_probes(desired),
        "resources": dict(desired.resources),
        "volumeMounts": _mounts(desired),
    }


def _env(desired: BrokerSet) -> list[dict[str, Any]]:
    installation = desired.installation
    fields = {"POD_NAME": "metadata.name", "POD_NAMESPACE": "metadata.namespace", "POD_IP": "status.podIP"}
    values = {
        "FLOTILLA_NAME": "$(POD_NAME)",
        "FLOTILLA_HOST": "0.0.0.0",  # noqa: S104 - the pod's own address
        "FLOTILLA_AUTH": installation.auth,
        "FLOTILLA_SECRET_FILE": f"{_SECRET}/secret",
        "FLOTILLA_DATA": "/var/lib/flotilla/data",  # inside the volume, which may have a lost+found
        "FLOTILLA_PORT": str(CLIENT_PORT),
        "FLOTILLA_PEER_HOST": "0.0.0.0",  # noqa: S104
        "FLOTILLA_PEER_PORT": str(PEER_PORT),
        "FLOTILLA_ADVERTISE_HOST": host_of("$(POD_NAME)", desired.name, "$(POD_NAMESPACE)"),
        "FLOTILLA_MANAGERS": ",".join(installation.managers),
        **_tls_env(desired),
    }
    return [
        *({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()),
        *({"name": name, "value": value} for name, value in values.items()),
        *(desired.template.get("extraEnv") or ()),
    ]


def _tls_env(desired: BrokerSet) -> dict[str, str]:
    if desired.installation.tls_secret is None:
        return {}
    files = {"CERT": "tls.crt", "KEY": "tls.key", "CA": "ca.crt"}
    kinds = ("TLS", "PEER") if desired.installation.tls_peers else ("TLS",)
    return {f"FLOTILLA_{kind}_{what}": f"{_TLS}/{file}" for kind in kinds for what, file in files.items()}


def _probes(desired: BrokerSet) -> dict[str, Any]:
    scheme = "HTTPS" if desired.installation.tls_secret else "HTTP"

    def probe(path: str, period_s: int, failures: int) -> dict[str, Any]:
        get = {"path": path, "port": "client", "scheme": scheme}
        return {"httpGet": get, "periodSeconds": period_s, "timeoutSeconds": 5, "failureThreshold": failures}

    return {
        "startupProbe": probe("/healthz", 2, 900),  # reading a long log takes time
        # It detects a blocked event loop only. A blocked broker does not react to SIGTERM.
        "livenessProbe": {**probe("/healthz", 5, 3), "terminationGracePeriodSeconds": 5},
        "readinessProbe": probe("/readyz", 3, 2),
    }


def _mounts(desired: BrokerSet) -> list[dict[str, Any]]:
    tls = [{"name": "tls", "mountPath": _TLS, "readOnly": True}] if desired.installation.tls_secret else []
    return [
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - the pod's own
        {"name": "secret", "mountPath": _SECRET, "readOnly": True},
        *tls,
        {"name": "data", "mountPath": "/var/lib/flotilla"},
    ]


def _volumes(desired: BrokerSet) -> list[dict[str, Any]]:
    """Whole directories instead of subPath, so that files follow changes of their Secret."""
    installation = desired.installation
    items = [{"key": installation.secret_key, "path": "secret"}]
    secret = {"secretName": installation.secret, "defaultMode": 0o440, "items": items}
    tls = {"secretName": installation.tls_secret, "defaultMode": 0o440}
    return [
        {"name": "tmp", "emptyDir": {}},
        {"name": "secret", "secret": secret},
        *([{"name": "tls", "secret": tls}] if installation.tls_secret else []),
    ]
