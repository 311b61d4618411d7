"""An account without any rights: brokers do not speak with Kubernetes."""

from typing import Any

from flotilla_operator.brokers.spec import BrokerSet


def make(wanted: BrokerSet) -> dict[str, Any]:
    """Make the ServiceAccount."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {
            "name": wanted.name,
            "namespace": wanted.namespace,
            "labels": wanted.labels,
            "ownerReferences": [wanted.owner],
        },
        "automountServiceAccountToken": False,
    }
