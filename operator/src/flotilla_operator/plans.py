"""Plans: the actions to take for a resource, and its status. `actions` runs them. Pure.

Every action can be repeated without harm. `str(action)` is the log line of its success, except for `Apply` and
`EmitEvent`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Manifest = Mapping[str, Any]


@dataclass(frozen=True)
class PutTopic:
    """Create or update a topic."""

    name: str
    body: Mapping[str, Any]

    def __str__(self) -> str:
        return f"topic applied topic={self.name} config={dict(self.body)}"


@dataclass(frozen=True)
class DeleteTopic:
    """Delete a topic and its records, if it still has this id and owner."""

    name: str
    topic_id: str
    owner: str

    def __str__(self) -> str:
        return f"topic deleted topic={self.name} topic_id={self.topic_id}"


@dataclass(frozen=True)
class ReleaseTopic:
    """Remove the owner of a topic."""

    name: str
    owner: str

    def __str__(self) -> str:
        return f"topic released topic={self.name} owner={self.owner!r}"


@dataclass(frozen=True)
class SetFinalizers:
    """Set the finalizers of the resource."""

    finalizers: tuple[str, ...]

    def __str__(self) -> str:
        return f"finalizers set finalizers={list(self.finalizers)}"


@dataclass(frozen=True)
class Create:
    """Create an object unless one of that name exists. With `must_be_owned`, another owner's object is an error."""

    manifest: Manifest
    must_be_owned: bool = False

    def __str__(self) -> str:
        return f"object created kind={self.manifest['kind']} name={self.manifest['metadata']['name']}"


@dataclass(frozen=True)
class Delete:
    """Delete an object if it still has this UID, with its dependents or without (`orphan`)."""

    kind: str
    name: str
    uid: str
    orphan: bool = False

    def __str__(self) -> str:
        return f"object deleted kind={self.kind} name={self.name} orphan={self.orphan}"


@dataclass(frozen=True)
class Apply:
    """Server-side apply, forced: takes over the fields in the manifest; other field managers keep theirs.

    With `if_exists`, a missing object is not created. An object that was applied is not applied again until a watch
    reports a change; with `is_unwatched`, it is applied again every time.
    """

    manifest: Manifest
    if_exists: bool = False
    is_unwatched: bool = False


@dataclass(frozen=True)
class Label:
    """Set labels of a pod, so that its new StatefulSet adopts it."""

    pod: str
    labels: Mapping[str, str] = field(hash=False)

    def __str__(self) -> str:
        return f"pod labelled pod={self.pod} labels={dict(self.labels)}"


@dataclass(frozen=True)
class Evict:
    """Evict a pod, which Kubernetes checks against the disruption budget."""

    pod: str
    uid: str
    reason: str
    pending: int = 0  # pods to be replaced afterwards

    def __str__(self) -> str:
        return f"pod evicted pod={self.pod} reason={self.reason!r} pending={self.pending}"


@dataclass(frozen=True)
class PutBroker:
    """Update the rack of a broker, or whether it is wanted."""

    broker_id: str
    body: Mapping[str, Any]
    name: str = field(compare=False)  # for the log

    def __str__(self) -> str:
        return f"broker updated broker={self.name} config={dict(self.body)}"


@dataclass(frozen=True)
class RemoveBroker:
    """Remove a broker without replicas from the metadata."""

    broker_id: str
    name: str = field(compare=False)  # for the log

    def __str__(self) -> str:
        return f"broker removed broker={self.name}"


@dataclass(frozen=True)
class EmitEvent:
    """Emit an event of the resource, which `kubectl describe` shows."""

    reason: str
    message: str
    is_warning: bool = False


Action = (
    PutTopic
    | DeleteTopic
    | ReleaseTopic
    | SetFinalizers
    | Create
    | Delete
    | Apply
    | Label
    | Evict
    | PutBroker
    | RemoveBroker
    | EmitEvent
)


@dataclass(frozen=True)
class Plan:
    """Actions in order, and the status of the resource. After a failed action, the others are not run."""

    actions: tuple[Action, ...] = ()
    status: dict[str, Any] | None = field(default=None, hash=False)


@dataclass(frozen=True)
class ResourcePlan:
    """The plan for one resource."""

    kind: str
    resource: dict[str, Any] = field(hash=False)
    plan: Plan

    @property
    def key(self) -> str:
        """Identity of the resource and its spec: after a change of the spec, backoff is reset."""
        return resource_key(self.kind, self.resource)


def cluster_action_key(action: Action) -> str:
    """Identify an action that belongs to no resource: its kind, and the object that it changes."""
    match action:
        case Create(manifest):
            subject = f"{manifest['kind']} {manifest['metadata']['name']}"
        case Delete(kind, name, uid):
            subject = f"{kind} {name} {uid}"
        case ReleaseTopic(name, owner):
            subject = f"{name} {owner}"
        case RemoveBroker(broker_id, name):
            subject = f"{name} {broker_id}"
        case _:
            subject = str(action)
    return f"{type(action).__name__} {subject}"


def resource_key(kind: str, resource: Manifest) -> str:
    """Identify a resource at one generation of its spec."""
    metadata = resource["metadata"]
    return f"{kind} {metadata['name']} {metadata['uid']} {metadata.get('generation', 0)}"
