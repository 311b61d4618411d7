"""Ownership of child objects: an object of the same name that does not belong to Flotilla is left unchanged. Pure.

An object belongs to Flotilla if it has the same owner, or the labels of children. Objects of chart 0.1, which had
no operator, and objects left by a resource of the same name, have these labels.
"""

from collections.abc import Mapping
from typing import Any

from flotilla_operator.names import COMPONENT, INSTANCE, NAME


def describe_foreign_owner(desired: Mapping[str, Any], found: Mapping[str, Any] | None) -> str | None:
    """Describe why an existing object does not belong to Flotilla; None if it does, or does not exist."""
    if found is None or _owners(desired) & _owners(found):
        return None
    name, labels = desired["metadata"]["name"], found["metadata"].get("labels") or {}
    needed = {key: desired["metadata"]["labels"][key] for key in (NAME, INSTANCE, COMPONENT)}
    missing = [f"{key}={value}" for key, value in needed.items() if labels.get(key) != value]
    if not missing:
        return None
    text = f"{desired['kind']} {name} exists and does not belong to Flotilla (missing label {', '.join(missing)})"
    return f"{text}; delete it, or rename this resource"


def _owners(resource: Mapping[str, Any]) -> set[str]:
    return {one["uid"] for one in resource["metadata"].get("ownerReferences") or ()}
