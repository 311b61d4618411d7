"""One broker away at a time, of all sets of a cluster together: any two may be the majority of some partition.

It is one budget for all sets, because a pod that two budgets speak of cannot be evicted at all. It belongs to every
set, and goes with the last. A pod that is not ready may always go: it is away already.
"""

from typing import Any

from flotilla_operator.brokers.spec import BROKER, Cluster
from flotilla_operator.names import MANAGED_BY, OPERATOR, PART_OF


def make(cluster: Cluster, owners: list[dict[str, Any]]) -> dict[str, Any]:
    """Make the PodDisruptionBudget."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {
            "name": f"{cluster.name}-{BROKER}",
            "namespace": cluster.namespace,
            "labels": {**cluster.labels, MANAGED_BY: OPERATOR, PART_OF: "flotilla"},
            "ownerReferences": [{**owner, "controller": False} for owner in owners],
        },
        "spec": {
            "maxUnavailable": 1,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": cluster.labels},
        },
    }
