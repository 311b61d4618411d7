"""What a Topic resource wants. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flotilla.command.units import parse_duration_s, parse_size
from flotilla_operator.names import MIRRORED, OPERATOR
from flotilla_operator.world import Topic

FOREVER, UNLIMITED = "forever", "unlimited"
REPLICATION = 3  # unless somebody says otherwise; managers have the same
DELETE, RETAIN = "Delete", "Retain"
_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_IMPLIED = {"topicName", "cluster", "deletionPolicy"}  # what a spec has that says nothing about the topic

Resource = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What a topic should be. What is None was not said; of `retention`, what is not in it."""

    name: str
    owner: str
    partitions: int | None = None
    replication: int | None = None
    retention: tuple[tuple[str, int | None], ...] = ()  # retention_ms and retention_bytes, as managers call them
    batch_bytes_max: int | None = None
    compression: str | None = None
    deletes: bool = False  # the records go with the resource
    is_mirror: bool = False  # it tells of a topic, and wants nothing

    def body(self, found: Topic | None) -> dict[str, Any]:
        """Say it to managers. What cannot be changed is not said again: fewer partitions, another replication."""
        body: dict[str, Any] = {"owner": self.owner, **dict(self.retention)}
        counts = [self.partitions, len(found.partitions) if found is not None else None]
        said = {
            "partitions": max((count for count in counts if count is not None), default=None),
            "replication": self.replication if found is None else None,
            "batch_bytes_max": self.batch_bytes_max,
            "compression": self.compression,
        }
        return {**body, **{key: value for key, value in said.items() if value is not None}}

    def differs(self, found: Topic) -> bool:
        """Tell whether managers have to be told."""
        return (
            found.owner != self.owner
            or (self.partitions or 0) > len(found.partitions)
            or any(getattr(found, key) != value for key, value in self.retention)
            or self.batch_bytes_max not in {None, found.batch_bytes_max}
            or self.compression not in {None, found.compression}
        )


def read_wish(resource: Resource) -> Wish:
    """Read a resource that the API server has let in; raises ValueError about what only we can see."""
    metadata, spec = resource["metadata"], resource.get("spec") or {}
    config = spec.get("config") or {}
    return Wish(
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


def _read_retention(said: Mapping[str, str]) -> list[tuple[str, int | None]]:
    found: list[tuple[str, int | None]] = []
    if "time" in said:
        found.append(("retention_ms", None if said["time"] == FOREVER else parse_duration_s(said["time"]) * 1000))
    if "size" in said:
        found.append(("retention_bytes", None if said["size"] == UNLIMITED else parse_size(said["size"])))
    return found


def name_of(resource: Resource) -> str:
    """The topic's name."""
    return str((resource.get("spec") or {}).get("topicName") or resource["metadata"]["name"])


def owner_of(namespace: str, name: str) -> str:
    """Name a resource as the owner of a topic. Its uid is not in it: one that is restored from a backup owns again."""
    return f"Topic {namespace}/{name}"


def is_mirror(resource: Resource) -> bool:
    """Tell whether a resource only tells of a topic. One that somebody has said anything in wants something."""
    spec, metadata = resource.get("spec") or {}, resource["metadata"]
    if MIRRORED not in (metadata.get("labels") or {}) or _APPLIED in (metadata.get("annotations") or {}):
        return False
    others = [one for one in metadata.get("managedFields") or () if one.get("manager") != OPERATOR]
    is_theirs = any("f:spec" in (one.get("fieldsV1") or {}) for one in others)
    return not is_theirs and not spec.keys() - _IMPLIED and spec.get("deletionPolicy", RETAIN) == RETAIN
