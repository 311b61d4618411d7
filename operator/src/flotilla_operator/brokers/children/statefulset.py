"""The brokers themselves.

Parallel, because a start must not depend on an order: with OrderedReady, one that cannot start keeps those behind it
from being made again. OnDelete, because Kubernetes would replace a broker without asking whether its partitions can
do without it: see `rollout`.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from flotilla_operator import unprivileged
from flotilla_operator.brokers.children import configmap
from flotilla_operator.brokers.children.service import CLIENT_PORT, PEER_PORT
from flotilla_operator.brokers.spec import BROKER, BrokerSet, spread
from flotilla_operator.names import GROUP

_DIGEST = f"{GROUP}/digest"  # of the spec that was applied
_TLS = "/etc/flotilla/tls"
_SECRET = "/etc/flotilla/secret"  # noqa: S105 - a folder


def make(wanted: BrokerSet, replicas: int) -> dict[str, Any]:
    """Make the StatefulSet, of as many pods as there should be now."""
    spec = _spec(wanted, replicas)
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {
            "name": wanted.name,
            "namespace": wanted.namespace,
            "labels": wanted.labels,
            "annotations": {_DIGEST: hashlib.sha256(msgspec.json.encode(spec, order="sorted")).hexdigest()[:16]},
            "ownerReferences": [wanted.owner],
        },
        "spec": spec,
    }


def _spec(wanted: BrokerSet, replicas: int) -> dict[str, Any]:
    return {
        "serviceName": wanted.name,
        "replicas": replicas,
        "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "OnDelete"},
        "persistentVolumeClaimRetentionPolicy": {
            "whenDeleted": wanted.when_deleted,
            "whenScaled": wanted.when_scaled,
        },
        "selector": {"matchLabels": wanted.selector},
        "template": {"metadata": _pod_metadata(wanted), "spec": _pod_spec(wanted)},
        "volumeClaimTemplates": [_claim(wanted)],
    }


def is_applied(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Tell whether what is there was made of what is wanted now; what Kubernetes says of it then counts."""
    said = found["metadata"].get("annotations") or {}
    return bool(said.get(_DIGEST) == wanted["metadata"]["annotations"][_DIGEST])


FIXED = ("serviceName", "podManagementPolicy", "selector")


def is_other(found: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Tell whether what is there can only be replaced: what Kubernetes does not let anybody change differs."""
    before, after = found["spec"], wanted["spec"]
    if any(before.get(key) != after[key] for key in FIXED):
        return True
    owners = {one["uid"] for one in found["metadata"].get("ownerReferences") or ()}
    if wanted["metadata"]["ownerReferences"][0]["uid"] not in owners:
        return True  # somebody else made it, and has set fields that we know nothing of
    return [_fixed_of(one) for one in before.get("volumeClaimTemplates") or ()] != [
        _fixed_of(one) for one in after["volumeClaimTemplates"]
    ]


def _fixed_of(claim: dict[str, Any]) -> tuple[Any, ...]:
    """What counts of a claim. Its size does not: Kubernetes writes 1024Gi as 1Ti, and nobody can change it anyhow."""
    return claim["metadata"]["name"], claim["metadata"].get("labels"), claim["spec"].get("storageClassName")


def _claim(wanted: BrokerSet) -> dict[str, Any]:
    spec: dict[str, Any] = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": wanted.size}}}
    if wanted.storage_class is not None:
        spec["storageClassName"] = wanted.storage_class
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "labels": wanted.cluster.labels},
        "spec": spec,
    }


def _pod_metadata(wanted: BrokerSet) -> dict[str, Any]:
    return {
        "labels": {**(wanted.template.get("labels") or {}), **wanted.labels},
        "annotations": {
            **(wanted.template.get("annotations") or {}),
            f"{GROUP}/config": configmap.checksum(wanted),
        },
    }


def _pod_spec(wanted: BrokerSet) -> dict[str, Any]:
    template, cluster = wanted.template, wanted.cluster
    secrets = template.get("imagePullSecrets") or [{"name": name} for name in cluster.image_pull_secrets]
    optional = {
        "imagePullSecrets": secrets,
        "nodeSelector": template.get("nodeSelector"),
        "tolerations": template.get("tolerations"),
        "affinity": template.get("affinity"),
        "priorityClassName": template.get("priorityClassName"),
        "topologySpreadConstraints": spread(wanted),
    }
    return {
        "serviceAccountName": template.get("serviceAccountName") or wanted.name,
        **unprivileged.POD,
        "terminationGracePeriodSeconds": template.get("terminationGracePeriodSeconds", 60),
        **{key: value for key, value in optional.items() if value},
        "containers": [_container(wanted)],
        "volumes": _volumes(wanted),
    }


def _container(wanted: BrokerSet) -> dict[str, Any]:
    return {
        "name": BROKER,
        "image": wanted.image,
        "imagePullPolicy": wanted.image_pull_policy,
        "args": ["python3", "-m", "flotilla_broker"],
        "securityContext": unprivileged.CONTAINER,
        "ports": [
            {"name": "client", "containerPort": CLIENT_PORT},
            {"name": "peer", "containerPort": PEER_PORT},
        ],
        "env": _env(wanted),
        "envFrom": [{"configMapRef": {"name": wanted.name}}],
        **_probes(wanted),
        "resources": dict(wanted.resources),
        "volumeMounts": _mounts(wanted),
    }


def _env(wanted: BrokerSet) -> list[dict[str, Any]]:
    cluster = wanted.cluster
    fields = {"POD_NAME": "metadata.name", "POD_NAMESPACE": "metadata.namespace", "POD_IP": "status.podIP"}
    values = {
        "FLOTILLA_HOST": "0.0.0.0",  # noqa: S104 - the pod's own address
        "FLOTILLA_AUTH": cluster.auth,
        "FLOTILLA_SECRET_FILE": f"{_SECRET}/secret",
        "FLOTILLA_DATA": "/var/lib/flotilla/data",  # inside the volume, which may have a lost+found
        "FLOTILLA_PORT": str(CLIENT_PORT),
        "FLOTILLA_PEER_HOST": "0.0.0.0",  # noqa: S104
        "FLOTILLA_PEER_PORT": str(PEER_PORT),
        "FLOTILLA_ADVERTISE_HOST": f"$(POD_NAME).{wanted.name}.$(POD_NAMESPACE).svc",
        "FLOTILLA_MANAGERS": ",".join(cluster.managers),
        **_tls_env(wanted),
    }
    return [
        *({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()),
        *({"name": name, "value": value} for name, value in values.items()),
        *(wanted.template.get("extraEnv") or ()),
    ]


def _tls_env(wanted: BrokerSet) -> dict[str, str]:
    if wanted.cluster.tls_secret is None:
        return {}
    files = {"CERT": "tls.crt", "KEY": "tls.key", "CA": "ca.crt"}
    kinds = ("TLS", "PEER") if wanted.cluster.tls_peers else ("TLS",)
    return {f"FLOTILLA_{kind}_{what}": f"{_TLS}/{file}" for kind in kinds for what, file in files.items()}


def _probes(wanted: BrokerSet) -> dict[str, Any]:
    scheme = "HTTPS" if wanted.cluster.tls_secret else "HTTP"

    def probe(path: str, period_s: int, failures: int) -> dict[str, Any]:
        get = {"path": path, "port": "client", "scheme": scheme}
        return {"httpGet": get, "periodSeconds": period_s, "timeoutSeconds": 5, "failureThreshold": failures}

    return {
        "startupProbe": probe("/healthz", 2, 900),  # a long log takes its time to be read
        # It finds a loop that does not turn, and nothing else. One that hangs does not hear that it should end.
        "livenessProbe": {**probe("/healthz", 5, 3), "terminationGracePeriodSeconds": 5},
        "readinessProbe": probe("/readyz", 3, 2),
    }


def _mounts(wanted: BrokerSet) -> list[dict[str, Any]]:
    tls = [{"name": "tls", "mountPath": _TLS, "readOnly": True}] if wanted.cluster.tls_secret else []
    return [
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - the pod's own
        {"name": "secret", "mountPath": _SECRET, "readOnly": True},
        *tls,
        {"name": "data", "mountPath": "/var/lib/flotilla"},
    ]


def _volumes(wanted: BrokerSet) -> list[dict[str, Any]]:
    """Whole folders and no subPath: so files change when their Secret does."""
    cluster = wanted.cluster
    items = [{"key": cluster.secret_key, "path": "secret"}]
    secret = {"secretName": cluster.secret, "defaultMode": 0o440, "items": items}
    tls = {"secretName": cluster.tls_secret, "defaultMode": 0o440}
    return [
        {"name": "tmp", "emptyDir": {}},
        {"name": "secret", "secret": secret},
        *([{"name": "tls", "secret": tls}] if cluster.tls_secret else []),
    ]
