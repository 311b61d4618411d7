"""Planning of Pipelines: observes driver and executor pods, and builds the plans.

The cache may be outdated: the driver of another Pipeline may use the checkpoint by now, and a driver that is created
from outdated information would be the second one on it. So before a plan creates or deletes a pod, everything that it
depends on is listed again.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from flotilla_operator.cache import Cache
from flotilla_operator.cluster_state import ClusterState
from flotilla_operator.driver_client import DriverClient, gather_results
from flotilla_operator.errors import OperatorError
from flotilla_operator.kubernetes_client import KubernetesClient
from flotilla_operator.names import PIPELINE, POD, belongs_to
from flotilla_operator.pipelines.phase import count_executors
from flotilla_operator.pipelines.plan import PipelineObservation, plan_pipeline
from flotilla_operator.pipelines.progress import Progress
from flotilla_operator.pipelines.spec import (
    DRIVER_LABELS,
    EXECUTOR_LABELS,
    PipelineInstallation,
    checkpoint_of,
    driver_name,
    parse_time,
)
from flotilla_operator.pipelines.states import PENDING, Pod, read_pod
from flotilla_operator.plans import Create, Delete, ResourcePlan, resource_key

logger = logging.getLogger(__name__)

DRIVER_PODS, EXECUTOR_PODS = "driver", "executor"  # kinds in the cache, apart from broker pods
LATE_S = 10  # age after which the events of a pending pod are read
_LATE_MAX = 20  # such pods in one reconcile

ResourceDict = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class PlanningContext:
    """What plans of Pipelines depend on besides resources: state of the cluster, and earlier failures of actions."""

    state: ClusterState | None
    rejection: Callable[[ResourceDict], str | None]  # error of Kubernetes for a resource
    is_backoff_over: Callable[[ResourceDict], bool]  # whether actions of a resource would run now


class PipelinePlanner:
    """Plans for all Pipelines of a namespace."""

    def __init__(
        self,
        installation: PipelineInstallation,
        cluster_name: str,
        kubernetes: KubernetesClient,
        cache: Cache,
        now: Callable[[], str],
    ) -> None:
        self._installation = installation
        self._cluster_name = cluster_name
        self._kubernetes = kubernetes
        self._cache = cache
        self._now = now
        self._drivers = DriverClient()

    async def list_resources(self) -> None:
        """Replace the cache with full lists. Raises OperatorError."""
        await self._cache.refresh(PIPELINE, self._kubernetes.list(PIPELINE))
        await self._cache.refresh(DRIVER_PODS, self._kubernetes.list(POD, DRIVER_LABELS))
        await self._cache.refresh(EXECUTOR_PODS, self._kubernetes.list(POD, EXECUTOR_LABELS))

    async def plan(self, context: PlanningContext) -> list[ResourcePlan]:
        """Observe drivers, and plan for all Pipelines."""
        uids = {one["metadata"]["uid"] for one in self._of_cluster()}
        progress = await self._drivers.get_progress([one for one in self._driver_pods().values() if one.owner in uids])
        warnings = await self._read_warnings()
        plans = self._plan_all(context, progress, warnings)
        if any(_changes_pods(plan) and context.is_backoff_over(plan.resource) for plan in plans):
            try:
                await self.list_resources()
                return self._plan_all(context, progress, warnings)
            except OperatorError as error:
                logger.warning("driver changes postponed error=%r", str(error))
        # Without full lists, no pod is created or deleted.
        return [replace(plan, plan=replace(plan.plan, actions=())) if _changes_pods(plan) else plan for plan in plans]

    def resource_keys(self) -> set[str]:
        """Return the keys of all Pipelines of the cluster, also of those without a plan."""
        return {resource_key(PIPELINE, one) for one in self._of_cluster()}

    def close(self) -> None:
        """Close all connections."""
        self._drivers.close()

    def _of_cluster(self) -> list[ResourceDict]:
        return [dict(one) for one in self._cache.all(PIPELINE) if belongs_to(one, self._cluster_name)]

    def _driver_pods(self) -> dict[str, Pod]:
        return {one["metadata"]["name"]: read_pod(one) for one in self._cache.all(DRIVER_PODS)}

    def _executor_pods(self) -> list[Pod]:
        return [read_pod(one) for one in self._cache.all(EXECUTOR_PODS)]

    def _plan_all(
        self, context: PlanningContext, progress: Mapping[str, Progress], warnings: Mapping[str, str]
    ) -> list[ResourcePlan]:
        def explain(pod: Pod) -> Pod:
            return replace(pod, start_error=pod.start_error or warnings.get(pod.uid))

        drivers = {name: explain(one) for name, one in self._driver_pods().items()}
        executors = count_executors(map(explain, self._executor_pods()))
        conflicts = find_checkpoint_conflicts(self._cache.all(PIPELINE))
        plans = []
        for resource in self._of_cluster():
            name = resource["metadata"]["name"]
            observed = PipelineObservation(
                installation=self._installation,
                drivers=drivers,
                executors=executors,
                conflict=conflicts.get(name),
                progress=progress.get(driver_name(name)),
                state=context.state,
                rejection=context.rejection(resource),
            )
            try:
                plans.append(ResourcePlan(PIPELINE, resource, plan_pipeline(resource, observed, self._now())))
            except Exception:  # a bug, or an unexpected resource: it must not stop the others
                logger.exception("planning failed kind=Pipeline name=%s", name)
        return plans

    async def _read_warnings(self) -> dict[str, str]:
        """Read the warnings of late pods by UID: a missing volume, for example, is reported only in events.

        The events of one late executor of each driver are read: its executors usually have the same problem.
        """
        now = self._now()
        late = [one.uid for one in self._driver_pods().values() if is_late(one, now)]
        late += {one.owner: one.uid for one in self._executor_pods() if is_late(one, now)}.values()
        return await gather_results({uid: self._kubernetes.last_warning(uid) for uid in late[:_LATE_MAX]})


def is_late(pod: Pod, now: str) -> bool:
    """Whether a scheduled pod should have started, and its status does not explain why it has not."""
    if pod.phase != PENDING or not pod.is_scheduled or pod.is_terminating:
        return False
    if pod.start_error is not None or pod.created_at is None:
        return False
    return parse_time(pod.created_at) + timedelta(seconds=LATE_S) <= parse_time(now)


def find_checkpoint_conflicts(resources: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Find Pipelines whose checkpoint belongs to an older Pipeline; return the name of that one."""
    first: dict[str, str] = {}
    conflicts = {}
    for one in sorted(resources, key=_age):
        name, checkpoint = one["metadata"]["name"], checkpoint_of(one)
        if checkpoint is not None and first.setdefault(checkpoint, name) != name:
            conflicts[name] = first[checkpoint]
    return conflicts


def _age(resource: Mapping[str, Any]) -> tuple[str, str]:
    return resource["metadata"].get("creationTimestamp", ""), resource["metadata"]["name"]


def _changes_pods(resource_plan: ResourcePlan) -> bool:
    return any(isinstance(action, Create | Delete) for action in resource_plan.plan.actions)
