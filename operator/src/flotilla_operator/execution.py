"""Execution: the third step of a reconcile. Writes statuses and runs the actions of plans."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any

from flotilla_operator.actions import ActionRunner
from flotilla_operator.backoff import RetryTracker
from flotilla_operator.cache import Cache
from flotilla_operator.errors import Conflict, NotFound, OperatorError, Rejected, Unavailable
from flotilla_operator.kubernetes_client import KubernetesClient
from flotilla_operator.metrics import Metrics
from flotilla_operator.names import PIPELINE
from flotilla_operator.observation import Observation
from flotilla_operator.plans import Action, EmitEvent, ResourcePlan, cluster_action_key
from flotilla_operator.status_updates import needs_update, ready_event

logger = logging.getLogger(__name__)

CONCURRENCY_MAX = 16
DEADLINE_S = 45.0  # from the first action of a reconcile to its last one: the next reconcile observes what has changed

ResourceDict = dict[str, Any]


class PlanExecutor:
    """Executes plans. `wake` requests another reconcile."""

    def __init__(
        self,
        runner: ActionRunner,
        kubernetes: KubernetesClient,
        cache: Cache,
        retries: RetryTracker,
        metrics: Metrics,
        *,
        clock: Callable[[], float],
        wake: Callable[[], None],
    ) -> None:
        self._runner = runner
        self._kubernetes = kubernetes
        self._cache = cache
        self._retries = retries
        self._metrics = metrics
        self._clock = clock
        self._wake = wake
        self._status_written_at: dict[str, float] = {}

    async def execute(self, plans: Iterable[ResourcePlan], observation: Observation, deadline: float) -> None:
        """Execute the plans of all resources, several at the same time. No action starts after the deadline."""
        limit = asyncio.Semaphore(CONCURRENCY_MAX)

        async def execute_plan(resource_plan: ResourcePlan) -> None:
            async with limit:
                await self._execute_plan(resource_plan, observation, deadline)

        await asyncio.gather(*map(execute_plan, plans))

    async def execute_cluster_actions(
        self, actions: Iterable[Action], observation: Observation, deadline: float
    ) -> set[str]:
        """Run actions that belong to no resource, each with its own backoff; return their keys."""
        keys = set()
        for action in actions:
            key = cluster_action_key(action)
            keys.add(key)
            if self._may_run(key, deadline):
                await self._run(key, None, None, (action,), observation.topology_version)
        return keys

    def keep_only(self, keys: set[str]) -> None:
        """Forget resources that do not exist any more."""
        self._status_written_at = {key: at for key, at in self._status_written_at.items() if key in keys}

    async def _execute_plan(self, resource_plan: ResourcePlan, observation: Observation, deadline: float) -> None:
        kind, plan, resource = resource_plan.kind, resource_plan.plan, resource_plan.resource
        written: ResourceDict | None = resource
        # The status of a Pipeline has the state of its run, on which later reconciles act, so it is always written.
        if plan.status is not None and (observation.may_write_status or kind == PIPELINE):
            written = await self._write_status(resource_plan, plan.status)
        if written is not None and plan.actions and self._may_run(resource_plan.key, deadline):
            await self._run(resource_plan.key, kind, written, plan.actions, observation.topology_version)

    def _may_run(self, key: str, deadline: float) -> bool:
        return self._clock() < deadline and self._retries.is_backoff_over(key)

    async def _run(
        self,
        key: str,
        kind: str | None,
        resource: ResourceDict | None,
        actions: tuple[Action, ...],
        topology_version: int | None,
    ) -> None:
        running = ""
        try:
            for action in actions:
                running = type(action).__name__
                if await self._runner.run(kind, resource, action):
                    self._metrics.count_action(type(action).__name__)
                    self._wake()
        except (NotFound, Conflict) as error:  # the cache is outdated: a watch event follows, without backoff
            logger.debug("resource outdated resource=%r error=%r", key, str(error))
        except Rejected as error:
            self._metrics.count_failure("rejected")
            logger.warning("action rejected action=%s resource=%r error=%r", running, key, str(error))
            self._retries.record_rejection(key, str(error), topology_version)
            self._wake()  # the next reconcile shows the rejection in a condition
        except Unavailable as error:
            self._metrics.count_failure("unavailable")
            seconds = self._retries.record_failure(key, str(error))
            logger.info("action failed action=%s resource=%r error=%r retry_s=%.0f", running, key, str(error), seconds)
        else:
            self._retries.record_success(key)

    async def _write_status(self, resource_plan: ResourcePlan, status: ResourceDict) -> ResourceDict | None:
        """Write a changed status, and emit an event if Ready has changed.

        Return the resource to act on: as written, or as cached if nothing was written; None if the cache is outdated.
        The status of a Pipeline is the only record of its attempts: it is written only if the resourceVersion has not
        changed since it was read.
        """
        kind, key, resource = resource_plan.kind, resource_plan.key, resource_plan.resource
        before = resource.get("status") or {}
        seconds = self._clock() - self._status_written_at.get(key, float("-inf"))
        if not needs_update(before, status, seconds):
            return resource
        resource_version = resource["metadata"]["resourceVersion"] if kind == PIPELINE else None
        try:
            current = await self._kubernetes.set_status(kind, resource["metadata"]["name"], status, resource_version)
            self._status_written_at[key] = self._clock()
        except (NotFound, Conflict):  # deleted or changed meanwhile: a watch event follows
            return None
        except OperatorError as error:
            logger.warning("status not updated resource=%r error=%r", key, str(error))
            return resource
        self._cache.update(kind, None, current)
        if kind == PIPELINE:  # the next reconcile acts on what was written
            self._wake()
        event = ready_event(before, status)
        if event is not None:
            await self._emit(resource_plan, event)
        return current

    async def _emit(self, resource_plan: ResourcePlan, event: EmitEvent) -> None:
        """Emit an event. It is not repeated after a failure: the status already has the same reason and message."""
        try:
            await self._runner.run(resource_plan.kind, resource_plan.resource, event)
        except OperatorError as error:
            logger.warning(
                "event not emitted resource=%r reason=%s error=%r", resource_plan.key, event.reason, str(error)
            )
