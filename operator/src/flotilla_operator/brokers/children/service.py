"""A name for each broker.

Those that are not ready have one, too: a cluster that starts cold would never find its peers.
"""

from typing import Any

from flotilla_operator.brokers.spec import BrokerSet

CLIENT_PORT, PEER_PORT = 8090, 8091


def make(wanted: BrokerSet) -> dict[str, Any]:
    """Make the headless Service."""
    scheme = "https" if wanted.cluster.tls_secret else "http"
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": wanted.name,
            "namespace": wanted.namespace,
            "labels": wanted.labels,
            "ownerReferences": [wanted.owner],
        },
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": wanted.selector,
            "ports": [
                {"name": "client", "port": CLIENT_PORT, "targetPort": "client", "appProtocol": scheme},
                {"name": "peer", "port": PEER_PORT, "targetPort": "peer"},
            ],
        },
    }
