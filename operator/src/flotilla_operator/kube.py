"""Kubernetes, as the operator speaks with it. Resources are plain data; lightkube knows addresses and credentials."""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

import httpx2
from lightkube import ApiError, AsyncClient
from lightkube.generic_resource import create_global_resource, create_namespaced_resource
from lightkube.resources.core_v1 import PodEviction
from lightkube.types import CascadeType, PatchType

from flotilla_operator.errors import Away, Refused
from flotilla_operator.names import API_VERSION, GROUP, OPERATOR, VERSION
from flotilla_operator.steps import Create, Evict, Label, Manifest, Remove, Tell

Data = dict[str, Any]

TOPIC, BROKER, POD, STATEFULSET, NODE = "Topic", "Broker", "Pod", "StatefulSet", "Node"
DEFINITION = "CustomResourceDefinition"
PIPELINE = "Pipeline"
_NAMESPACED = {
    TOPIC: (GROUP, VERSION, "topics"),
    BROKER: (GROUP, VERSION, "brokers"),
    PIPELINE: (GROUP, VERSION, "pipelines"),
    STATEFULSET: ("apps", "v1", "statefulsets"),
    "Deployment": ("apps", "v1", "deployments"),
    POD: ("", "v1", "pods"),
    "ConfigMap": ("", "v1", "configmaps"),
    "PersistentVolumeClaim": ("", "v1", "persistentvolumeclaims"),
    "Event": ("", "v1", "events"),
    "PodDisruptionBudget": ("policy", "v1", "poddisruptionbudgets"),
    "Service": ("", "v1", "services"),
    "ServiceAccount": ("", "v1", "serviceaccounts"),
}
_KINDS: dict[str, Any] = {
    **{
        kind: create_namespaced_resource(group, version, kind, at) for kind, (group, version, at) in _NAMESPACED.items()
    },
    NODE: create_global_resource("", "v1", NODE, "nodes"),
    "Namespace": create_global_resource("", "v1", "Namespace", "namespaces"),
    DEFINITION: create_global_resource("apiextensions.k8s.io", "v1", DEFINITION, "customresourcedefinitions"),
}
_NOT_FOUND, _CONFLICT, _TOO_MANY = 404, 409, 429
_SERVER_ERROR = 500
_NOT_TYPED = "failed to create typed patch object"
_SECONDS = 20.0
_MESSAGE_MAX = 1000


class Kube:
    """One namespace of a Kubernetes."""

    def __init__(self, namespace: str, manager: str = OPERATOR) -> None:
        """Be somebody who looks after fields, by the name `manager`."""
        self.namespace = namespace
        timeout = httpx2.Timeout(_SECONDS)
        self._client = AsyncClient(namespace=namespace, field_manager=manager, timeout=timeout, lazy=False)

    async def list(self, kind: str, labels: Mapping[str, str] | None = None) -> list[Data]:
        """List all of a kind."""
        with _told():
            return [dict(one) async for one in self._client.list(_KINDS[kind], labels=dict(labels or {}) or None)]

    async def warning(self, uid: str) -> str | None:
        """Give the last warning that Kubernetes has for something, as its events tell."""
        fields: dict[str, Any] = {"involvedObject.uid": uid, "type": "Warning"}
        with _told():
            found = [dict(one) async for one in self._client.list(_KINDS["Event"], fields=fields)]
        last = max(found, key=lambda one: one.get("lastTimestamp") or one.get("eventTime") or "", default=None)
        return None if last is None else f"{last.get('reason')}: {last.get('message')}"[:_MESSAGE_MAX]

    async def get(self, kind: str, name: str) -> Data | None:
        """Look at one; None if it is not there."""
        try:
            with _told():
                return dict(await self._client.get(_KINDS[kind], name))
        except NotFound:
            return None

    async def apply(self, manifest: Manifest) -> Data:
        """Have a resource as it should be; what others say of the same fields is overruled."""
        kind = _KINDS[manifest["kind"]]
        with _told():
            found = await self._client.patch(
                kind, manifest["metadata"]["name"], dict(manifest), patch_type=PatchType.APPLY, force=True
            )
        return dict(found)

    async def create(self, step: Create) -> bool:
        """Make a resource, unless there is one; tell whether it was made."""
        try:
            with _told():
                await self._client.create(_KINDS[step.manifest["kind"]](dict(step.manifest)))
        except Conflict:
            return False
        return True

    async def remove(self, step: Remove) -> None:
        """Remove a resource, if it is still the one that was meant."""
        found = await self.get(step.kind, step.name)
        if found is None or found["metadata"]["uid"] != step.uid:
            return
        cascade = CascadeType.ORPHAN if step.orphan else CascadeType.BACKGROUND
        try:
            with _told():
                await self._client.delete(_KINDS[step.kind], step.name, cascade=cascade)
        except NotFound:
            return

    async def label(self, step: Label) -> None:
        """Give a pod labels."""
        await self._merge(_KINDS[POD], step.pod, {"metadata": {"labels": dict(step.labels)}})

    async def annotate(self, kind: str, name: str, annotations: Mapping[str, str]) -> bool:
        """Give a resource annotations, if it is there; tell whether it is."""
        try:
            await self._merge(_KINDS[kind], name, {"metadata": {"annotations": dict(annotations)}})
        except NotFound:
            return False
        return True

    async def scale(self, kind: str, name: str, replicas: int) -> None:
        """Have so many pods of something, if it is there."""
        try:
            await self._merge(_KINDS[kind], name, {"spec": {"replicas": replicas}})
        except NotFound:
            return

    async def evict(self, step: Evict) -> bool:
        """Have a pod go, if the disruption budget allows it; tell whether it did."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": step.pod, "namespace": self.namespace},
            "deleteOptions": {"preconditions": {"uid": step.uid}},
        }
        try:
            with _told():
                await self._client.create(cast("PodEviction", PodEviction.from_dict(body)), step.pod)
        except (TooMany, NotFound, Conflict):
            return False
        return True

    async def set_finalizers(self, kind: str, resource: Data, finalizers: tuple[str, ...]) -> None:
        """Say what has to be done before a resource may go, if it is still as it was."""
        metadata = {"finalizers": list(finalizers), "resourceVersion": resource["metadata"]["resourceVersion"]}
        await self._merge(_KINDS[kind], resource["metadata"]["name"], {"metadata": metadata})

    async def set_status(self, kind: str, name: str, status: Data, version: str | None = None) -> Data:
        """Show how a resource is; what is not in `status` any more goes. With a version, only if it still has that."""
        metadata = {"name": name} if version is None else {"name": name, "resourceVersion": version}
        manifest = {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "status": status}
        with _told():
            found = await self._client.patch(
                _KINDS[kind].Status, name, manifest, patch_type=PatchType.APPLY, force=True
            )
        return dict(found)

    async def tell(self, kind: str, resource: Data, step: Tell, now: str) -> None:
        """Post an event. The same one again counts up, and is no second one."""
        metadata = resource["metadata"]
        digest = hashlib.sha256(f"{step.reason} {step.message}".encode()).hexdigest()[:16]
        name = f"{metadata['name']}.{digest}"
        before = await self.get("Event", name)
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": self.namespace},
            "involvedObject": {
                "apiVersion": API_VERSION,
                "kind": kind,
                "name": metadata["name"],
                "namespace": self.namespace,
                "uid": metadata["uid"],
            },
            "reason": step.reason,
            "message": step.message[:_MESSAGE_MAX],
            "type": "Warning" if step.warning else "Normal",
            "source": {"component": OPERATOR},
            "firstTimestamp": before["firstTimestamp"] if before is not None else now,
            "lastTimestamp": now,
            "count": int(before.get("count", 1)) + 1 if before is not None else 1,
        }
        await self.apply(event)

    async def is_ending(self) -> bool:
        """Tell whether the namespace is being deleted, with everything in it."""
        found = await self.get("Namespace", self.namespace)
        return found is None or "deletionTimestamp" in found["metadata"]

    async def close(self) -> None:
        """Hang up."""
        await self._client.close()

    async def _merge(self, kind: Any, name: str, patch: Data) -> None:  # noqa: ANN401 - a class that lightkube made
        with _told():
            await self._client.patch(kind, name, patch, patch_type=PatchType.MERGE)


class NotFound(Refused):
    """It is not there."""


class Conflict(Refused):
    """It is there already, or was changed meanwhile."""


class TooMany(Refused):
    """A disruption budget, or a limit of the API server, is in the way."""


@contextmanager
def _told() -> Iterator[None]:
    """Raise what went wrong as an error of ours."""
    try:
        yield
    except ApiError as error:
        code = error.response.status_code if error.response is not None else 0
        raise _error(code, str(error)) from error
    except httpx2.HTTPStatusError as error:  # as of a kind that is not defined, to which no API has an answer
        raise _error(error.response.status_code, str(error)) from error
    except httpx2.HTTPError as error:
        raise Away(f"Kubernetes does not answer: {type(error).__name__}: {error}") from error


def _error(code: int, text: str) -> Away | Refused:
    kinds: dict[int, type[Refused]] = {_NOT_FOUND: NotFound, _CONFLICT: Conflict, _TOO_MANY: TooMany}
    if code in kinds:
        return kinds[code](text)
    is_ours = _NOT_TYPED in text  # the API server says 500 to what was written in a way that it cannot read
    return Away(text) if (code >= _SERVER_ERROR and not is_ours) or code == 0 else Refused(text)
