"""Kubernetes API client, on the dynamic client of `kubernetes.aio`. Objects are plain data.

The kinds in use are listed here, so that the client needs no API discovery. Every request has a timeout and no retries:
the next reconcile plans a failed action again.
"""

import hashlib
import json
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import aiohttp
from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, ApiException, Configuration
from kubernetes.aio.dynamic import DynamicClient
from kubernetes.aio.dynamic.resource import Resource

from flotilla_operator.errors import Conflict, NotFound, Rejected, TooManyRequests, Unavailable
from flotilla_operator.names import (
    API_VERSION,
    BROKER,
    GROUP,
    NODE,
    OPERATOR,
    PIPELINE,
    POD,
    STATEFULSET,
    TOPIC,
    VERSION,
)
from flotilla_operator.plans import Create, Delete, EmitEvent, Evict, Label, Manifest

logger = logging.getLogger(__name__)

Data = dict[str, Any]
Items = list[Data]

DEFINITION = "CustomResourceDefinition"
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
_CLUSTER_SCOPED = {
    NODE: ("", "v1", "nodes"),
    "Namespace": ("", "v1", "namespaces"),
    DEFINITION: ("apiextensions.k8s.io", "v1", "customresourcedefinitions"),
}
_APPLY, _MERGE = "application/apply-patch+yaml", "application/merge-patch+json"
_ERRORS: dict[int, type[Unavailable | Rejected]] = {404: NotFound, 409: Conflict, 429: TooManyRequests}
_SERVER_ERROR = 500
# The API server answers 500 without a reason to an invalid manifest, and also while etcd is unavailable: only the text
# distinguishes them. If it changes, an invalid manifest is retried with backoff, but not shown as rejected.
_INVALID_PATCH = "failed to create typed patch object"
_TIMEOUT = aiohttp.ClientTimeout(total=60.0, sock_connect=5.0, sock_read=20.0)  # a long list may take its time
_MESSAGE_MAX = 1000
_IN_CLUSTER = "KUBERNETES_SERVICE_HOST"  # set by the kubelet in every pod


class KubernetesClient:
    """Client for one namespace. `manager` is the name of the field manager."""

    def __init__(self, namespace: str, api: ApiClient, manager: str = OPERATOR) -> None:
        self.namespace = namespace
        self._manager = manager
        self._api = api
        self._client: Any = DynamicClient(api)  # not awaited: that would discover all APIs
        self._resources = {
            kind: _make_resource(kind, *path, namespaced=kind in _NAMESPACED)
            for kind, path in {**_NAMESPACED, **_CLUSTER_SCOPED}.items()
        }

    @classmethod
    async def connect(cls, namespace: str, manager: str = OPERATOR) -> "KubernetesClient":
        """Log in with the service account of the pod, or else with a kubeconfig. Raises Unavailable.

        The token of a service account is read again every minute; the credentials of a kubeconfig are read once.
        """
        configuration: Any = Configuration()
        with _translate_errors():
            if _IN_CLUSTER in os.environ:
                config.load_incluster_config(client_configuration=configuration)
            else:
                await config.load_kube_config(client_configuration=configuration)
            return cls(namespace, ApiClient(configuration), manager)

    async def close(self) -> None:
        """Close all connections."""
        await self._api.close()

    # -- any object -----------------------------------------------------------------------------------------------

    async def list(self, kind: str, labels: Mapping[str, str] | None = None) -> Items:
        """List all objects of a kind."""
        selector = ",".join(f"{key}={value}" for key, value in (labels or {}).items())
        return await self._list(kind, label_selector=selector or None)

    async def get(self, kind: str, name: str) -> Data | None:
        """Return an object, or None if it does not exist."""
        try:
            return await self._request("get", self._path(kind, name))
        except NotFound:
            return None

    async def apply(self, manifest: Manifest) -> Data:
        """Server-side apply, forced: takes over the fields in the manifest; other field managers keep theirs."""
        return await self._apply(self._path(manifest["kind"], manifest["metadata"]["name"]), manifest)

    async def create(self, action: Create) -> bool:
        """Create an object; return False if one of that name exists."""
        try:
            path = self._path(action.manifest["kind"])
            await self._request("post", path, body=dict(action.manifest), field_manager=self._manager)
        except Conflict:
            return False
        return True

    async def delete(self, action: Delete) -> bool:
        """Delete an object; return False if it does not exist, or has another UID."""
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": action.uid},
            "propagationPolicy": "Orphan" if action.orphan else "Background",
        }
        try:
            await self._request("delete", self._path(action.kind, action.name), body=options)
        except (NotFound, Conflict):
            return False
        return True

    async def annotate(self, kind: str, name: str, annotations: Mapping[str, str]) -> bool:
        """Annotate an object; return False if it does not exist."""
        try:
            await self._merge(kind, name, {"metadata": {"annotations": dict(annotations)}})
        except NotFound:
            return False
        return True

    # -- resources of Flotilla ------------------------------------------------------------------------------------

    async def set_finalizers(self, kind: str, resource: Data, finalizers: tuple[str, ...]) -> None:
        """Set the finalizers of a resource, if it has not changed since it was read."""
        metadata = {"finalizers": list(finalizers), "resourceVersion": resource["metadata"]["resourceVersion"]}
        await self._merge(kind, resource["metadata"]["name"], {"metadata": metadata})

    async def set_status(self, kind: str, name: str, status: Data, version: str | None = None) -> Data:
        """Replace the status of a resource; with a version, only if it still has that version."""
        metadata = {"name": name} if version is None else {"name": name, "resourceVersion": version}
        manifest = {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "status": status}
        return await self._apply(f"{self._path(kind, name)}/status", manifest)

    async def emit_event(self, kind: str, resource: Data, event: EmitEvent, now: str) -> None:
        """Emit an event of a resource; a repeated one increases its count."""
        digest = hashlib.sha256(f"{event.reason} {event.message}".encode()).hexdigest()[:16]
        name = f"{resource['metadata']['name']}.{digest}"
        before = await self.get("Event", name)
        await self.apply(self._make_event(name, kind, resource, event, before, now))

    def _make_event(
        self, name: str, kind: str, resource: Data, event: EmitEvent, before: Data | None, now: str
    ) -> Data:
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": self.namespace},
            "involvedObject": {
                "apiVersion": API_VERSION,
                "kind": kind,
                "name": resource["metadata"]["name"],
                "namespace": self.namespace,
                "uid": resource["metadata"]["uid"],
            },
            "reason": event.reason,
            "message": event.message[:_MESSAGE_MAX],
            "type": "Warning" if event.is_warning else "Normal",
            "source": {"component": OPERATOR},
            "firstTimestamp": before["firstTimestamp"] if before is not None else now,
            "lastTimestamp": now,
            "count": int(before.get("count", 1)) + 1 if before is not None else 1,
        }

    # -- pods, and the namespace ----------------------------------------------------------------------------------

    async def label(self, action: Label) -> None:
        """Set labels of a pod."""
        await self._merge(POD, action.pod, {"metadata": {"labels": dict(action.labels)}})

    async def scale(self, kind: str, name: str, replicas: int) -> None:
        """Set the number of replicas of an object, if it exists."""
        try:
            await self._merge(kind, name, {"spec": {"replicas": replicas}})
        except NotFound:
            return

    async def evict(self, action: Evict) -> bool:
        """Evict a pod; return False if the disruption budget forbids it, or if the pod was deleted or replaced."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": action.pod, "namespace": self.namespace},
            "deleteOptions": {"preconditions": {"uid": action.uid}},
        }
        try:
            await self._request("post", f"{self._path(POD, action.pod)}/eviction", body=body)
        except (TooManyRequests, NotFound, Conflict) as error:
            logger.info("pod not evicted pod=%s error=%r", action.pod, str(error))
            return False
        return True

    async def last_warning(self, uid: str) -> str | None:
        """Return the last warning in the events of an object."""
        events = await self._list("Event", field_selector=f"involvedObject.uid={uid},type=Warning")
        last = max(events, key=lambda one: one.get("lastTimestamp") or one.get("eventTime") or "", default=None)
        return None if last is None else f"{last.get('reason')}: {last.get('message')}"[:_MESSAGE_MAX]

    async def is_namespace_terminating(self) -> bool:
        """Whether the namespace is being deleted."""
        found = await self.get("Namespace", self.namespace)
        return found is None or "deletionTimestamp" in found["metadata"]

    # -- requests -------------------------------------------------------------------------------------------------

    def _path(self, kind: str, name: str | None = None) -> str:
        return str(self._resources[kind].path(name=name, namespace=self.namespace))

    async def _list(self, kind: str, **selectors: str | None) -> Items:
        """Items of a list lack apiVersion and kind, unlike single objects; no caller needs them."""
        found = await self._request("get", self._path(kind), **selectors)
        return [dict(one) for one in found.get("items") or ()]

    async def _apply(self, path: str, manifest: Manifest) -> Data:
        return await self._request(
            "patch", path, body=dict(manifest), content_type=_APPLY, force_conflicts=True, field_manager=self._manager
        )

    async def _merge(self, kind: str, name: str, patch: Data) -> None:
        path = self._path(kind, name)
        await self._request("patch", path, body=patch, content_type=_MERGE, field_manager=self._manager)

    async def _request(self, method: str, path: str, **options: Any) -> Data:  # noqa: ANN401 - any query parameter
        with _translate_errors():
            found: Data = await self._client.request(
                method, path, _request_timeout=_TIMEOUT, serializer=_plain, query_params=[], header_params={}, **options
            )
            return found


def _make_resource(kind: str, group: str, version: str, plural: str, *, namespaced: bool) -> Any:  # noqa: ANN401
    make: Any = Resource  # which has no types
    prefix = "apis" if group else "api"
    return make(prefix=prefix, group=group, api_version=version, kind=kind, name=plural, namespaced=namespaced)


def _plain(_: object, data: Data) -> Data:
    return data


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Raise errors of the library as errors of the operator."""
    try:
        yield
    except ApiException as error:
        raise make_error(error.status or 0, _message(error)) from error
    except (aiohttp.ClientError, TimeoutError, OSError, json.JSONDecodeError, config.ConfigException) as error:
        raise Unavailable(f"The Kubernetes API is unavailable: {str(error) or type(error).__name__}") from error


def make_error(status: int, text: str) -> Unavailable | Rejected:
    """Make the error for an HTTP status."""
    if status in _ERRORS:
        return _ERRORS[status](text)
    is_unavailable = status == 0 or (status >= _SERVER_ERROR and _INVALID_PATCH not in text)
    return Unavailable(text) if is_unavailable else Rejected(text)


def _message(error: ApiException) -> str:
    try:
        body = json.loads(error.body or "")
    except ValueError:
        body = None
    message = body.get("message") if isinstance(body, dict) else None
    return str(message or error.body or f"Kubernetes answered with HTTP {error.status} {error.reason}")
