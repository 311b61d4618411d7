"""The chart's hook before an uninstallation: it fails if a finalizer remains, which nothing would remove later."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from flotilla_operator.errors import Conflict, Rejected
from flotilla_operator.names import FINALIZER, TOPIC
from flotilla_operator.plans import Delete
from flotilla_operator.prepare import delete

from .builders import topic_resource


class KubernetesOfTopics:
    """A fake of Kubernetes with one Topic, which another client changes for some attempts."""

    def __init__(self, conflicts: int) -> None:
        self.topic = topic_resource()
        self.topic["metadata"]["finalizers"] = [FINALIZER]
        self.topic["spec"]["cluster"] = "flotilla"
        self.deleted: list[Delete] = []
        self._conflicts = conflicts

    async def scale(self, kind: str, name: str, replicas: int) -> None:
        assert (kind, name, replicas) == ("Deployment", "flotilla-operator", 0)

    async def list(self, kind: str, labels: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
        del labels
        return [self.topic] if kind == TOPIC else []

    async def get(self, kind: str, name: str) -> dict[str, Any]:
        return {"kind": kind, "metadata": {"name": name, "uid": "u"}}

    async def set_finalizers(self, _: str, resource: dict[str, Any], finalizers: tuple[str, ...]) -> None:
        if self._conflicts > 0:
            self._conflicts -= 1
            raise Conflict("it was changed meanwhile")
        resource["metadata"]["finalizers"] = list(finalizers)

    async def delete(self, action: Delete) -> bool:
        self.deleted.append(action)
        return True


def run_hook(kubernetes: KubernetesOfTopics) -> None:
    asyncio.run(delete(kubernetes, "flotilla", "flotilla-operator", {}, "flotilla-broker"))  # type: ignore[arg-type]


def test_hook_repeats_the_removal_of_a_finalizer_after_a_conflict() -> None:
    kubernetes = KubernetesOfTopics(conflicts=2)
    run_hook(kubernetes)
    assert kubernetes.topic["metadata"]["finalizers"] == []
    assert [one.name for one in kubernetes.deleted] == ["flotilla-broker"]


def test_hook_fails_if_a_finalizer_cannot_be_removed() -> None:
    kubernetes = KubernetesOfTopics(conflicts=3)
    with pytest.raises(Rejected, match=FINALIZER):
        run_hook(kubernetes)
    assert kubernetes.deleted == [], "the Broker stays, so that the uninstallation can be repeated"
