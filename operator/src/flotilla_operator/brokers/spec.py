"""The spec of a Broker, and the properties of its installation. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flotilla_operator.brokers.addresses import host_of
from flotilla_operator.names import COMPONENT, GROUP, INSTANCE, MANAGED_BY, NAME, OPERATOR, PART_OF

SET_LABEL = f"{GROUP}/broker"  # name of the set of a pod
BROKER_COMPONENT = "broker"  # container name, and value of the label COMPONENT
ROLLING, ON_DELETE = "Rolling", "OnDelete"
_NO_SPREAD = "Off"

Resource = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class BrokerInstallation:
    """Properties of the installation that all its brokers have in common, from the settings of the operator."""

    name: str  # of the cluster
    namespace: str
    image: str
    instance: str  # the value of app.kubernetes.io/instance
    app: str  # the value of app.kubernetes.io/name
    image_pull_policy: str
    image_pull_secrets: tuple[str, ...]
    managers: tuple[str, ...]  # base URLs
    auth: str
    secret: str  # name of a Secret
    secret_key: str  # key in it
    tls_secret: str | None  # name of the Secret with certificates; None without TLS
    tls_peers: bool

    @property
    def labels(self) -> dict[str, str]:
        """Labels of all broker pods of the cluster, and of no other pods."""
        return {NAME: self.app, INSTANCE: self.instance, COMPONENT: BROKER_COMPONENT}


@dataclass(frozen=True, kw_only=True)
class BrokerSet:
    """Desired state of a set of brokers."""

    name: str
    uid: str
    installation: BrokerInstallation
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
        """Namespace of the set."""
        return self.installation.namespace

    @property
    def selector(self) -> dict[str, str]:
        """Labels of the pods of the set, and of no other pods."""
        return {**self.installation.labels, SET_LABEL: self.name}

    @property
    def labels(self) -> dict[str, str]:
        """Labels of all children."""
        return {**self.selector, MANAGED_BY: OPERATOR, PART_OF: "flotilla"}

    def pod(self, ordinal: int) -> str:
        """Return the name of a pod."""
        return f"{self.name}-{ordinal}"

    def host(self, pod: str) -> str:
        """Return the host name under which the broker of a pod registers."""
        return host_of(pod, self.name, self.namespace)

    @property
    def owner(self) -> dict[str, Any]:
        """Owner reference of children."""
        return {
            "apiVersion": f"{GROUP}/v1",
            "kind": "Broker",
            "name": self.name,
            "uid": self.uid,
            "controller": True,
            "blockOwnerDeletion": False,
        }


def read_broker_set(resource: Resource, installation: BrokerInstallation) -> BrokerSet:
    """Read a resource that the API server has validated."""
    metadata, spec = resource["metadata"], resource.get("spec") or {}
    storage, claims = spec.get("storage") or {}, spec.get("claimRetention") or {}
    return BrokerSet(
        name=metadata["name"],
        uid=metadata["uid"],
        installation=installation,
        replicas=spec.get("replicas", 3),
        image=spec.get("image") or installation.image,
        image_pull_policy=spec.get("imagePullPolicy") or installation.image_pull_policy,
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


def spread(desired: BrokerSet) -> list[dict[str, Any]]:
    """Return the topology spread constraints of pods."""
    spread_over = desired.template.get("spread") or {}
    keys = {"hosts": "kubernetes.io/hostname", "zones": "topology.kubernetes.io/zone"}
    return [
        {
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": spread_over.get(what, "ScheduleAnyway"),
            "labelSelector": {"matchLabels": desired.installation.labels},
        }
        for what, key in keys.items()
        if spread_over.get(what) != _NO_SPREAD
    ]
