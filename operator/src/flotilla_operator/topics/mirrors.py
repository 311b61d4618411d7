"""Mirrors: Topic resources that show the status of topics created over HTTP. Pure."""

import hashlib
import re
from collections.abc import Iterable
from typing import Any

from flotilla_operator.cluster_state import READY, ClusterState
from flotilla_operator.names import API_VERSION, MIRRORED
from flotilla_operator.plans import Action, Create, Delete
from flotilla_operator.topics.spec import RETAIN, Resource, is_mirror, name_of

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")  # of a Kubernetes object
_INVALID_DOTS = re.compile(r"\.[-.]|-\.")
_SLUG_MAX = 180
_HASH_CHARS = 8


def plan_mirrors(
    state: ClusterState,
    resources: Iterable[Resource],
    namespace: str,
    cluster_name: str,
    taken: frozenset[str] = frozenset(),
) -> tuple[Action, ...]:
    """Create a mirror for each topic that has neither an owner nor a resource; delete mirrors that are not needed.

    A mirror is deleted if its topic does not exist, or if another resource names the topic. `taken` contains names that
    mirrors must not get, such as those of Topics of other installations.
    """
    known = list(resources)
    claimed = {name_of(one) for one in known if not is_mirror(one)}
    names = {name_of(one) for one in known}
    missing = [
        topic.name
        for topic in state.topics_by_name.values()
        if topic.owner is None and topic.state == READY and topic.name not in names
    ]
    needed = state.topics_by_name.keys() - claimed
    stale = [one for one in known if is_mirror(one) and name_of(one) not in needed]
    to_delete = [one for one in stale if "deletionTimestamp" not in one["metadata"]]
    used = taken | {one["metadata"]["name"] for one in known}
    return (
        *(Create(make_mirror(name, namespace, cluster_name, used)) for name in missing),
        *(Delete("Topic", one["metadata"]["name"], one["metadata"]["uid"]) for one in to_delete),
    )


def make_mirror(topic: str, namespace: str, cluster_name: str, taken: frozenset[str]) -> dict[str, Any]:
    """Make the mirror of a topic."""
    name = topic if is_resource_name(topic) and topic not in taken else slug(topic)
    return {
        "apiVersion": API_VERSION,
        "kind": "Topic",
        "metadata": {"name": name, "namespace": namespace, "labels": {MIRRORED: "true"}},
        "spec": {"topicName": topic, "cluster": cluster_name, "deletionPolicy": RETAIN},
    }


def is_resource_name(text: str) -> bool:
    """Whether the name of a topic is a valid name of a Kubernetes object."""
    return _NAME.fullmatch(text) is not None and _INVALID_DOTS.search(text) is None


def slug(topic: str) -> str:
    """Make a unique, readable object name from the name of a topic."""
    words = re.sub(r"[^a-z0-9]+", "-", topic.lower()).strip("-")[:_SLUG_MAX]
    return f"{words}-{hashlib.sha256(topic.encode()).hexdigest()[:_HASH_CHARS]}".strip("-")
