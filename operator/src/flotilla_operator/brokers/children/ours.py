"""What is somebody else's stays as it is, though it has the name of a child. Pure.

Ours is what belongs to the same resource, and what has the labels that children have: so does what a chart has made
before there was an operator, and what was left by a resource of the same name.
"""

from collections.abc import Mapping
from typing import Any

from flotilla_operator.names import COMPONENT, INSTANCE, NAME


def why_not_ours(wanted: Mapping[str, Any], found: Mapping[str, Any] | None) -> str | None:
    """Say why something is not ours to change; None if it is, or if there is nothing."""
    if found is None or _owners(wanted) & _owners(found):
        return None
    name, labels = wanted["metadata"]["name"], found["metadata"].get("labels") or {}
    needed = {key: wanted["metadata"]["labels"][key] for key in (NAME, INSTANCE, COMPONENT)}
    missing = [f"{key}={value}" for key, value in needed.items() if labels.get(key) != value]
    if not missing:
        return None
    text = f"there is a {wanted['kind']} {name} that is not ours, as it lacks the label {', '.join(missing)}"
    return f"{text}: remove it, or give this resource another name"


def _owners(resource: Mapping[str, Any]) -> set[str]:
    return {one["uid"] for one in resource["metadata"].get("ownerReferences") or ()}
