"""Children of a Broker besides its StatefulSet: ServiceAccount, ConfigMap, Service, PodDisruptionBudget. Pure."""

import hashlib
from typing import Any

from flotilla_operator.brokers.spec import BROKER_COMPONENT, BrokerInstallation, BrokerSet
from flotilla_operator.names import MANAGED_BY, OPERATOR, PART_OF

CLIENT_PORT, PEER_PORT = 8090, 8091


def make_service_account(desired: BrokerSet) -> dict[str, Any]:
    """Make a ServiceAccount without permissions: brokers do not use the API of Kubernetes."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": _metadata(desired),
        "automountServiceAccountToken": False,
    }


def make_config_map(desired: BrokerSet) -> dict[str, Any]:
    """Make the ConfigMap with the settings of brokers as environment variables."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _metadata(desired), "data": _variables(desired)}


def config_digest(desired: BrokerSet) -> str:
    """Return the digest of the settings. It is in the pod template, so that a changed setting replaces pods."""
    text = "\n".join(f"{name}={value}" for name, value in sorted(_variables(desired).items()))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def make_service(desired: BrokerSet) -> dict[str, Any]:
    """Make the headless Service.

    It publishes addresses of unready pods: a broker that starts needs its peers before any of them is ready.
    """
    scheme = "https" if desired.installation.tls_secret else "http"
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(desired),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": desired.selector,
            "ports": [
                {"name": "client", "port": CLIENT_PORT, "targetPort": "client", "appProtocol": scheme},
                {"name": "peer", "port": PEER_PORT, "targetPort": "peer"},
            ],
        },
    }


def make_disruption_budget(installation: BrokerInstallation, owners: list[dict[str, Any]]) -> dict[str, Any]:
    """Make the PodDisruptionBudget of all sets: any two brokers may be the majority of a partition.

    There is one for all sets, because Kubernetes does not evict a pod that matches two. It is owned by every set and
    deleted with the last one. Unready pods can always be evicted.
    """
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {
            "name": f"{installation.name}-{BROKER_COMPONENT}",
            "namespace": installation.namespace,
            "labels": {**installation.labels, MANAGED_BY: OPERATOR, PART_OF: "flotilla"},
            "ownerReferences": [{**owner, "controller": False} for owner in owners],
        },
        "spec": {
            "maxUnavailable": 1,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": installation.labels},
        },
    }


def _metadata(desired: BrokerSet) -> dict[str, Any]:
    return {
        "name": desired.name,
        "namespace": desired.namespace,
        "labels": desired.labels,
        "ownerReferences": [desired.owner],
    }


def _variables(desired: BrokerSet) -> dict[str, str]:
    return {f"FLOTILLA_{name.upper()}": value for name, value in desired.config.items()}
