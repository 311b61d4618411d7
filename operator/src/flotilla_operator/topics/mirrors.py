"""Topics that were made over HTTP show up as resources, which tell of them and want nothing. Pure."""

import hashlib
import re
from collections.abc import Iterable
from typing import Any

from flotilla_operator.names import API_VERSION, MIRRORED
from flotilla_operator.steps import Create, Remove, Step
from flotilla_operator.topics.wish import RETAIN, Resource, is_mirror, name_of
from flotilla_operator.world import READY, World

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")  # of a resource
_DOTS = re.compile(r"\.[-.]|-\.")
_SLUG_MAX = 180
_HASH_MAX = 8


def plan_mirrors(
    world: World, resources: Iterable[Resource], namespace: str, cluster: str, taken: frozenset[str] = frozenset()
) -> tuple[Step, ...]:
    """Have a resource for each topic that nobody owns, and none for those that are gone, or have one of their own.

    `taken` are names of resources for other installations.
    """
    known = list(resources)
    claimed = {name_of(one) for one in known if not is_mirror(one)}
    names = {name_of(one) for one in known}
    missing = [
        topic.name
        for topic in world.topics_by_name.values()
        if topic.owner is None and topic.state == READY and topic.name not in names
    ]
    needed = world.topics_by_name.keys() - claimed
    stale = [one for one in known if is_mirror(one) and name_of(one) not in needed]
    gone = [one for one in stale if "deletionTimestamp" not in one["metadata"]]
    used = taken | {one["metadata"]["name"] for one in known}
    return (
        *(Create(make_mirror(name, namespace, cluster, used)) for name in missing),
        *(Remove(API_VERSION, "Topic", one["metadata"]["name"], one["metadata"]["uid"]) for one in gone),
    )


def make_mirror(topic: str, namespace: str, cluster: str, taken: frozenset[str]) -> dict[str, Any]:
    """Write the resource for a topic."""
    name = topic if is_resource_name(topic) and topic not in taken else slug(topic)
    return {
        "apiVersion": API_VERSION,
        "kind": "Topic",
        "metadata": {"name": name, "namespace": namespace, "labels": {MIRRORED: "true"}},
        "spec": {"topicName": topic, "cluster": cluster, "deletionPolicy": RETAIN},
    }


def is_resource_name(text: str) -> bool:
    """Tell whether a topic's name is one for a resource as it is."""
    return _NAME.fullmatch(text) is not None and _DOTS.search(text) is None


def slug(topic: str) -> str:
    """Make a name for a resource of any topic's: readable, and unlike that of any other."""
    words = re.sub(r"[^a-z0-9]+", "-", topic.lower()).strip("-")[:_SLUG_MAX]
    return f"{words}-{hashlib.sha256(topic.encode()).hexdigest()[:_HASH_MAX]}".strip("-")
