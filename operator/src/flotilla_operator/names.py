"""Names of Flotilla's resources, labels and annotations in Kubernetes, and the cluster of a resource."""

from collections.abc import Mapping
from typing import Any

GROUP = "flotilla.dev"
VERSION = "v1"
API_VERSION = f"{GROUP}/{VERSION}"
OPERATOR = "flotilla-operator"  # field manager, and source of events
FINALIZER = f"{GROUP}/topic"
MIRRORED = f"{GROUP}/mirrored"  # label of Topics that mirror a topic without an owner

TOPIC, BROKER, PIPELINE = "Topic", "Broker", "Pipeline"
POD, STATEFULSET, NODE = "Pod", "StatefulSet", "Node"

NAME = "app.kubernetes.io/name"
INSTANCE = "app.kubernetes.io/instance"
COMPONENT = "app.kubernetes.io/component"
MANAGED_BY = "app.kubernetes.io/managed-by"
PART_OF = "app.kubernetes.io/part-of"
REVISION = "controller-revision-hash"


def belongs_to(resource: Mapping[str, Any], cluster_name: str) -> bool:
    """Whether a Topic, Broker or Pipeline belongs to a cluster, by its spec.cluster."""
    return bool((resource.get("spec") or {}).get("cluster", "flotilla") == cluster_name)
