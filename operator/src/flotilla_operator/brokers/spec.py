"""What a Broker resource wants, and what the operator was told about the cluster that it is part of. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flotilla_operator.names import COMPONENT, GROUP, INSTANCE, MANAGED_BY, NAME, OPERATOR, PART_OF

SET_LABEL = f"{GROUP}/broker"  # which set a pod is of
BROKER = "broker"
ROLLING, ON_DELETE = "Rolling", "OnDelete"
_NO_SPREAD = "Off"

Resource = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """What all brokers of an installation have in common; the chart tells it to the operator."""

    name: str
    namespace: str
    image: str
    instance: str = "flotilla"  # the value of app.kubernetes.io/instance
    app: str = "flotilla"  # the value of app.kubernetes.io/name
    image_pull_policy: str = "IfNotPresent"
    image_pull_secrets: tuple[str, ...] = ()
    managers: tuple[str, ...] = ()  # base URLs
    auth: str = "on"
    secret: str = "flotilla-secret"  # noqa: S105 - the name of a Secret
    secret_key: str = "secret"  # noqa: S105 - the name of its key
    tls_secret: str | None = None
    tls_peers: bool = True

    @property
    def labels(self) -> dict[str, str]:
        """What all broker pods of the cluster have, and no other pods."""
        return {NAME: self.app, INSTANCE: self.instance, COMPONENT: BROKER}


@dataclass(frozen=True, kw_only=True)
class BrokerSet:
    """What a set of brokers should be."""

    name: str
    uid: str
    cluster: Cluster
    replicas: int = 3
    image: str = ""
    image_pull_policy: str = "IfNotPresent"
    is_rolling: bool = True
    size: str = "10Gi"
    storage_class: str | None = None
    when_deleted: str = "Retain"
    when_scaled: str = "Retain"
    topology_key: str | None = None
    config: Mapping[str, str] = field(default_factory=dict)
    resources: Mapping[str, Any] = field(default_factory=dict)
    template: Mapping[str, Any] = field(default_factory=dict)

    @property
    def namespace(self) -> str:
        """Where it is."""
        return self.cluster.namespace

    @property
    def selector(self) -> dict[str, str]:
        """What its pods have, and no other pods."""
        return {**self.cluster.labels, SET_LABEL: self.name}

    @property
    def labels(self) -> dict[str, str]:
        """What all its resources have."""
        return {**self.selector, MANAGED_BY: OPERATOR, PART_OF: "flotilla"}

    def pod(self, ordinal: int) -> str:
        """The name of a pod."""
        return f"{self.name}-{ordinal}"

    def host(self, pod: str) -> str:
        """Where the broker in a pod is reached: what it registers as."""
        return f"{pod}.{self.name}.{self.namespace}.svc"

    @property
    def owner(self) -> dict[str, Any]:
        """The reference by which Kubernetes removes what belongs to this resource."""
        return {
            "apiVersion": f"{GROUP}/v1",
            "kind": "Broker",
            "name": self.name,
            "uid": self.uid,
            "controller": True,
            "blockOwnerDeletion": False,
        }


def read_set(resource: Resource, cluster: Cluster) -> BrokerSet:
    """Read a resource that the API server has let in."""
    metadata, spec = resource["metadata"], resource.get("spec") or {}
    storage, claims = spec.get("storage") or {}, spec.get("claimRetention") or {}
    return BrokerSet(
        name=metadata["name"],
        uid=metadata["uid"],
        cluster=cluster,
        replicas=spec.get("replicas", 3),
        image=spec.get("image") or cluster.image,
        image_pull_policy=spec.get("imagePullPolicy") or cluster.image_pull_policy,
        is_rolling=spec.get("update", ROLLING) == ROLLING,
        size=storage.get("size", "10Gi"),
        storage_class=storage.get("storageClass"),
        when_deleted=claims.get("whenDeleted", "Retain"),
        when_scaled=claims.get("whenScaled", "Retain"),
        topology_key=(spec.get("rack") or {}).get("topologyKey"),
        config={key: str(value) for key, value in sorted((spec.get("config") or {}).items())},
        resources=spec.get("resources") or {},
        template=spec.get("template") or {},
    )


def spread(wanted: BrokerSet) -> list[dict[str, Any]]:
    """Say how pods are spread over hosts and zones."""
    said = wanted.template.get("spread") or {}
    keys = {"hosts": "kubernetes.io/hostname", "zones": "topology.kubernetes.io/zone"}
    return [
        {
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": said.get(what, "ScheduleAnyway"),
            "labelSelector": {"matchLabels": wanted.cluster.labels},
        }
        for what, key in keys.items()
        if said.get(what) != _NO_SPREAD
    ]
