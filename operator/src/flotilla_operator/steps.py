"""What can be done: plans are made of these, and `acting` carries them out. Each can be done again without harm.

As text, each says what was done, for the log.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Manifest = Mapping[str, Any]


@dataclass(frozen=True)
class PutTopic:
    """Have managers make a topic, or change it."""

    name: str
    body: Mapping[str, Any]

    def __str__(self) -> str:
        return f"topic '{self.name}' is to be as {dict(self.body)}"


@dataclass(frozen=True)
class DeleteTopic:
    """Have managers delete a topic with its records, if it is still this very one."""

    name: str
    topic_id: str
    owner: str

    def __str__(self) -> str:
        return f"topic '{self.name}' is deleted with its records, as its resource is"


@dataclass(frozen=True)
class ReleaseTopic:
    """Have managers know that a topic belongs to nobody."""

    name: str
    owner: str

    def __str__(self) -> str:
        return f"topic '{self.name}' belongs to nobody: {self.owner} is gone"


@dataclass(frozen=True)
class SetFinalizers:
    """Say what has to be done before a resource may go."""

    finalizers: tuple[str, ...]

    def __str__(self) -> str:
        return f"finalizers are {list(self.finalizers)}"


@dataclass(frozen=True)
class Create:
    """Make a resource, unless there is one of that name; whether one that is not ours will do is said here."""

    manifest: Manifest
    must_be_ours: bool = False

    def __str__(self) -> str:
        return f"{self.manifest['kind']} {self.manifest['metadata']['name']} is made"


@dataclass(frozen=True)
class Remove:
    """Remove a resource, if it is still this very one. Its children go, too, or stay without a parent."""

    api_version: str
    kind: str
    name: str
    uid: str
    orphan: bool = False

    def __str__(self) -> str:
        return f"{self.kind} {self.name} is removed{', and its pods stay' if self.orphan else ''}"


@dataclass(frozen=True)
class Apply:
    """Have a resource as it should be; fields that others have set stay. Or only if there is one already."""

    manifest: Manifest
    if_there: bool = False


@dataclass(frozen=True)
class Label:
    """Give a pod labels that it lacks, so that its new parent takes it."""

    pod: str
    labels: Mapping[str, str] = field(hash=False)

    def __str__(self) -> str:
        return f"pod {self.pod} gets the labels {dict(self.labels)}"


@dataclass(frozen=True)
class Evict:
    """Have a pod replaced, unless that is one too many: Kubernetes asks the disruption budget."""

    pod: str
    uid: str
    why: str


@dataclass(frozen=True)
class PutBroker:
    """Tell managers about a broker: its rack, whether it is wanted."""

    broker_id: str
    body: Mapping[str, Any]

    def __str__(self) -> str:
        return f"broker {self.broker_id} is to be {dict(self.body)}"


@dataclass(frozen=True)
class RemoveBroker:
    """Have managers forget a broker that holds nothing."""

    broker_id: str

    def __str__(self) -> str:
        return f"broker {self.broker_id} is gone, and held nothing"


@dataclass(frozen=True)
class Tell:
    """Tell the story, as an event that `kubectl describe` shows."""

    reason: str
    message: str
    warning: bool = False


Step = (
    PutTopic
    | DeleteTopic
    | ReleaseTopic
    | SetFinalizers
    | Create
    | Remove
    | Apply
    | Label
    | Evict
    | PutBroker
    | RemoveBroker
    | Tell
)


@dataclass(frozen=True)
class Plan:
    """What to do for a resource, in this order; a step that fails ends it. And what its status should say."""

    steps: tuple[Step, ...] = ()
    status: dict[str, Any] | None = field(default=None, hash=False)
