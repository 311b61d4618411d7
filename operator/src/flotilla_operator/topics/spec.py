"""The spec of a Topic. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from flotilla.units import parse_duration_s, parse_size
from flotilla_operator.cluster_state import Topic
from flotilla_operator.names import MIRRORED, OPERATOR

FOREVER, UNLIMITED = "forever", "unlimited"
DELETE, RETAIN = "Delete", "Retain"
_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_IMPLIED = {"topicName", "cluster", "deletionPolicy"}  # fields of a mirror

Resource = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class TopicSpec:
    """Desired state of a topic. None, or a missing key of `retention`, means not specified."""

    name: str
    owner: str
    partitions: int | None = None
    replication: int | None = None
    retention: tuple[tuple[str, int | None], ...] = ()  # retention_ms and retention_bytes
    batch_bytes_max: int | None = None
    compression: str | None = None
    deletes: bool = False  # deletionPolicy is Delete
    is_mirror: bool = False  # it shows the status of a topic without an owner

    def body(self, topic: Topic | None) -> dict[str, Any]:
        """Return the body of the request to managers, without changes that they reject."""
        body: dict[str, Any] = {"owner": self.owner, **dict(self.retention)}
        counts = [self.partitions, len(topic.partitions) if topic is not None else None]
        optional = {
            "partitions": max((count for count in counts if count is not None), default=None),
            "replication": self.replication if topic is None else None,
            "batch_bytes_max": self.batch_bytes_max,
            "compression": self.compression,
        }
        return {**body, **{key: value for key, value in optional.items() if value is not None}}

    def differs(self, topic: Topic) -> bool:
        """Whether a topic differs from the spec."""
        return (
            topic.owner != self.owner
            or (self.partitions or 0) > len(topic.partitions)
            or any(getattr(topic, key) != value for key, value in self.retention)
            or self.batch_bytes_max not in {None, topic.batch_bytes_max}
            or self.compression not in {None, topic.compression}
        )


def read_spec(resource: Resource) -> TopicSpec:
    """Read a resource that the API server has validated; raises ValueError for the rest."""
    metadata, spec = resource["metadata"], resource.get("spec") or {}
    config = spec.get("config") or {}
    return TopicSpec(
        name=name_of(resource),
        owner=owner_of(metadata["namespace"], metadata["name"]),
        partitions=spec.get("partitions"),
        replication=spec.get("replication"),
        retention=tuple(_read_retention(spec.get("retention") or {})),
        batch_bytes_max=config.get("batchBytesMax"),
        compression=config.get("compression"),
        deletes=spec.get("deletionPolicy", RETAIN) == DELETE,
        is_mirror=is_mirror(resource),
    )


def _read_retention(retention: Mapping[str, str]) -> list[tuple[str, int | None]]:
    found: list[tuple[str, int | None]] = []
    if "time" in retention:
        seconds = _read_limit(retention, "time", FOREVER, parse_duration_s)
        found.append(("retention_ms", None if seconds is None else seconds * 1000))
    if "size" in retention:
        found.append(("retention_bytes", _read_limit(retention, "size", UNLIMITED, parse_size)))
    return found


def _read_limit(retention: Mapping[str, str], field: str, unlimited: str, parse: Callable[[str], int]) -> int | None:
    """Return a limit of the retention; None if the field has the value `unlimited`. Raises ValueError."""
    try:
        return None if retention[field] == unlimited else parse(retention[field])
    except ValueError as error:
        raise ValueError(f"spec.retention.{field} is invalid: {error}") from error


def name_of(resource: Resource) -> str:
    """Return the name of the topic."""
    return str((resource.get("spec") or {}).get("topicName") or resource["metadata"]["name"])


def owner_of(namespace: str, name: str) -> str:
    """Return the owner id of a resource, without its UID: a resource restored from a backup owns its topic again."""
    return f"{owner_prefix(namespace)}{name}"


def owner_prefix(namespace: str) -> str:
    """Return the beginning of the owner ids of all resources in a namespace."""
    return f"Topic {namespace}/"


def is_mirror(resource: Resource) -> bool:
    """Whether a resource is a mirror: created by the operator, and never changed by a user."""
    spec, metadata = resource.get("spec") or {}, resource["metadata"]
    if MIRRORED not in (metadata.get("labels") or {}) or _APPLIED in (metadata.get("annotations") or {}):
        return False
    others = [one for one in metadata.get("managedFields") or () if one.get("manager") != OPERATOR]
    is_changed = any("f:spec" in (one.get("fieldsV1") or {}) for one in others)
    return not is_changed and not spec.keys() - _IMPLIED and spec.get("deletionPolicy", RETAIN) == RETAIN
