"""What kopf is for: it watches, and wakes the operator up.

Only events and no other handlers: kopf would write annotations and finalizers into resources for those. Nothing is
decided here, and nothing is lost if an event is: the next turn looks at everything.
"""

from typing import Any

import kopf

from flotilla_operator.acting import Actor
from flotilla_operator.brokers.spec import Cluster
from flotilla_operator.cache import Cache
from flotilla_operator.kube import BROKER, PIPELINE, POD, STATEFULSET, TOPIC
from flotilla_operator.names import GROUP, VERSION
from flotilla_operator.pipelines.wish import DRIVERS, EXECUTORS
from flotilla_operator.pipelining import DRIVER, EXECUTOR
from flotilla_operator.turns import Turns

_CHILDREN = {
    "apps/v1/statefulsets": STATEFULSET,
    "v1/pods": POD,
    "v1/services": "Service",
    "v1/configmaps": "ConfigMap",
    "v1/serviceaccounts": "ServiceAccount",
    "policy/v1/poddisruptionbudgets": "PodDisruptionBudget",
}
_KEPT = {TOPIC, BROKER, PIPELINE, POD, STATEFULSET, DRIVER, EXECUTOR}
_RECONNECT_S = 1.0


def make_registry(cluster: Cluster, cache: Cache, turns: Turns) -> kopf.OperatorRegistry:
    """Say what is watched, and what happens then."""
    registry = kopf.OperatorRegistry()
    kopf.on.login(registry=registry, id="login")(_log_in)

    def listen(kind: str) -> Any:  # noqa: ANN401 - a function that kopf calls with what it likes
        async def on_event(event: kopf.RawEvent, **_: Any) -> None:  # noqa: ANN401
            if _hear(kind, event, cache, turns.actor):
                turns.wake()

        return on_event

    kopf.on.event(GROUP, VERSION, "topics", registry=registry, id="topics")(listen(TOPIC))
    kopf.on.event(GROUP, VERSION, "brokers", registry=registry, id="brokers")(listen(BROKER))
    kopf.on.event(GROUP, VERSION, "pipelines", registry=registry, id="pipelines")(listen(PIPELINE))
    for path, kind in _CHILDREN.items():
        *group, version, plural = path.split("/")
        labels = dict(cluster.labels)
        kopf.on.event("/".join(group), version, plural, registry=registry, id=plural, labels=labels)(listen(kind))
    kopf.on.event("", "v1", "pods", registry=registry, id="drivers", labels=dict(DRIVERS))(listen(DRIVER))
    kopf.on.event("", "v1", "pods", registry=registry, id="executors", labels=dict(EXECUTORS))(listen(EXECUTOR))
    return registry


def _log_in(**options: Any) -> kopf.ConnectionInfo | None:  # noqa: ANN401 - as kopf calls it
    """Be who the pod is, or whom the kubeconfig names; kopf asks again when that is not valid any more."""
    return kopf.login_with_service_account(**options) or kopf.login_with_kubeconfig(**options)


def _hear(kind: str, event: kopf.RawEvent, cache: Cache, actor: Actor) -> bool:
    """Take an event; tell whether it is news. What the operator has written itself comes back, and is none."""
    resource = dict(event["object"])
    is_news = cache.hear(kind, event["type"], resource) if kind in _KEPT else False
    return actor.hear(kind, resource, is_gone=event["type"] == "DELETED") or is_news


def make_kopf_settings() -> kopf.OperatorSettings:
    """Have kopf watch, and do nothing else."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False  # we post events ourselves, and the same one not twice
    settings.scanning.disabled = True  # resources come with the chart; whoever scans needs rights for all of them
    settings.watching.server_timeout = 240
    settings.watching.reconnect_backoff = _RECONNECT_S
    return settings
