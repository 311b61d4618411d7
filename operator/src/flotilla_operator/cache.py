"""What is known of resources in Kubernetes: from events as they come, and from lists now and then.

Events alone are not enough: what was deleted while a watch was broken is never told. Of two versions of a resource, the
later one counts, whichever way and whenever it came.
"""

from collections.abc import Iterable, Mapping
from typing import Any

Resource = Mapping[str, Any]


class Cache:
    """Resources of one namespace, by kind and name."""

    def __init__(self) -> None:
        self._found: dict[str, dict[str, Resource]] = {}

    def all(self, kind: str) -> list[Resource]:
        """All of a kind, by name."""
        return [one for _, one in sorted(self._found.get(kind, {}).items())]

    def get(self, kind: str, name: str) -> Resource | None:
        """One of them."""
        return self._found.get(kind, {}).get(name)

    def hear(self, kind: str, event: str | None, resource: Resource) -> bool:
        """Take an event; tell whether it says anything new."""
        found = self._found.setdefault(kind, {})
        name = resource["metadata"]["name"]
        before = found.get(name)
        if event == "DELETED":
            if before is not None and before["metadata"]["uid"] == resource["metadata"]["uid"]:
                del found[name]
            return before is not None
        if before is not None and _version(before) >= _version(resource):
            return False
        found[name] = resource
        return True

    def replace(self, kind: str, resources: Iterable[Resource]) -> None:
        """Take a list: what is not in it is gone."""
        before = self._found.get(kind, {})
        listed = {one["metadata"]["name"]: one for one in resources}
        self._found[kind] = {name: _later(before.get(name), one) for name, one in listed.items()}


def _later(before: Resource | None, now: Resource) -> Resource:
    return before if before is not None and _version(before) > _version(now) else now


def _version(resource: Resource) -> int:
    """Kubernetes promises that versions of one kind can be compared."""
    return int(resource["metadata"].get("resourceVersion", 0))
