"""kopf handlers: watch events update the cache and wake the reconciler.

Only event handlers are used: for other handlers, kopf writes annotations and finalizers into resources. Nothing is
decided here. A lost event delays a change by at most about a minute: a full list corrects the cache.
"""

from typing import Any

import kopf

from flotilla_operator.actions import ActionRunner
from flotilla_operator.brokers.spec import BrokerInstallation
from flotilla_operator.cache import Cache
from flotilla_operator.names import BROKER, GROUP, PIPELINE, POD, STATEFULSET, TOPIC, VERSION
from flotilla_operator.pipeline_planner import DRIVER_PODS, EXECUTOR_PODS
from flotilla_operator.pipelines.spec import DRIVER_LABELS, EXECUTOR_LABELS
from flotilla_operator.reconciler import Reconciler

_RESOURCES = {"topics": TOPIC, "brokers": BROKER, "pipelines": PIPELINE}
_CHILDREN = {
    "apps/v1/statefulsets": STATEFULSET,
    "v1/pods": POD,
    "v1/services": "Service",
    "v1/configmaps": "ConfigMap",
    "v1/serviceaccounts": "ServiceAccount",
    "policy/v1/poddisruptionbudgets": "PodDisruptionBudget",
}
_CACHED = {TOPIC, BROKER, PIPELINE, POD, STATEFULSET, DRIVER_PODS, EXECUTOR_PODS}
_RECONNECT_S = 1.0
_WATCH_S = 240


def make_registry(installation: BrokerInstallation, cache: Cache, reconciler: Reconciler) -> kopf.OperatorRegistry:
    """Register a watch for every kind in `_RESOURCES` and `_CHILDREN`, and for the pods of Pipelines.

    Nodes and claims are not watched.
    """
    registry = kopf.OperatorRegistry()
    kopf.on.login(registry=registry, id="login")(_log_in)

    def handler(kind: str) -> Any:  # noqa: ANN401 - a function that kopf calls with keyword arguments
        async def on_event(event: kopf.RawEvent, **_: Any) -> None:  # noqa: ANN401
            if _process(kind, event, cache, reconciler.runner):
                reconciler.wake()

        return on_event

    for plural, kind in _RESOURCES.items():
        kopf.on.event(GROUP, VERSION, plural, registry=registry, id=plural)(handler(kind))
    for path, kind in _CHILDREN.items():
        *group, version, plural = path.split("/")
        labels = dict(installation.labels)
        kopf.on.event("/".join(group), version, plural, registry=registry, id=plural, labels=labels)(handler(kind))
    kopf.on.event("", "v1", "pods", registry=registry, id="drivers", labels=dict(DRIVER_LABELS))(handler(DRIVER_PODS))
    kopf.on.event("", "v1", "pods", registry=registry, id="executors", labels=dict(EXECUTOR_LABELS))(
        handler(EXECUTOR_PODS)
    )
    return registry


def _log_in(**options: Any) -> kopf.ConnectionInfo | None:  # noqa: ANN401 - as kopf calls it
    """Log in with the service account of the pod or with a kubeconfig; kopf calls this again after a 401."""
    return kopf.login_with_service_account(**options) or kopf.login_with_kubeconfig(**options)


def _process(kind: str, event: kopf.RawEvent, cache: Cache, runner: ActionRunner) -> bool:
    """Process an event; return whether a reconcile is needed.

    The operator's own status writes need none: the cache has them already.
    """
    resource = dict(event["object"])
    is_new = cache.update(kind, event["type"], resource) if kind in _CACHED else False
    return runner.detect_drift(kind, resource, is_deleted=event["type"] == "DELETED") or is_new


def make_kopf_settings() -> kopf.OperatorSettings:
    """Configure kopf to watch only."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False  # the operator emits its own events, without duplicates
    settings.scanning.disabled = True  # the CRDs are installed; scanning needs permissions for all of them
    settings.watching.server_timeout = _WATCH_S
    settings.watching.reconnect_backoff = _RECONNECT_S
    return settings
