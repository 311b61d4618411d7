"""Cache of the resources in a namespace, filled by watches and by lists.

Watches alone are not enough: a broken watch does not report deletions. Of two versions of a resource, the newer one
counts, whichever arrives first. So an event that arrives while a list is read counts more than the list.
"""

from collections.abc import Awaitable, Iterable, Mapping
from typing import Any

Resource = Mapping[str, Any]


class Cache:
    """Resources by kind and name."""

    def __init__(self) -> None:
        self._resources: dict[str, dict[str, Resource]] = {}
        self._events: dict[str, dict[str, int]] = {}  # by kind that is being listed: versions of events, by name

    def all(self, kind: str) -> list[Resource]:
        """Return all resources of a kind, sorted by name."""
        return [one for _, one in sorted(self._resources.get(kind, {}).items())]

    def update(self, kind: str, event: str | None, resource: Resource) -> bool:
        """Process a watch event, or a resource that was written; return whether it was news to the cache.

        A deletion is news if the cache has an object of that name; a newer object with another UID is kept.
        """
        resources = self._resources.setdefault(kind, {})
        name = resource["metadata"]["name"]
        before = resources.get(name)
        if event == "DELETED":
            if before is not None and before["metadata"]["uid"] == resource["metadata"]["uid"]:
                del resources[name]
                self._record_event(kind, resource)
            return before is not None
        if before is not None and _version(before) >= _version(resource):
            return False
        resources[name] = resource
        self._record_event(kind, resource)
        return True

    async def refresh(self, kind: str, listing: Awaitable[Iterable[Resource]]) -> None:
        """Replace all resources of a kind with a list, but keep what events changed while it was read."""
        events = self._events[kind] = {}
        try:
            listed = {one["metadata"]["name"]: one for one in await listing}
        finally:
            del self._events[kind]
        before = self._resources.get(kind, {})
        added = {name: before[name] for name in events if name in before}
        current = {
            name: _newer(before.get(name), one)
            for name, one in listed.items()
            if name in before or events.get(name, -1) < _version(one)  # otherwise it was deleted meanwhile
        }
        self._resources[kind] = {**added, **current}

    def _record_event(self, kind: str, resource: Resource) -> None:
        if kind in self._events:
            self._events[kind][resource["metadata"]["name"]] = _version(resource)


def _newer(before: Resource | None, now: Resource) -> Resource:
    return before if before is not None and _version(before) > _version(now) else now


def _version(resource: Resource) -> int:
    """Return the resourceVersion, a number: guaranteed since Kubernetes 1.35, and true with etcd before."""
    return int(resource["metadata"].get("resourceVersion", 0))
