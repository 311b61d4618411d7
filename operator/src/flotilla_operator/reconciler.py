"""The reconcile loop: observe, plan, execute. It runs after each change, and at the latest 5 s after the previous run.

Plans of Topics and Brokers are functions of the observation, the time and the recorded failures
(`backoff.RetryTracker`). Pipelines are an exception: their planner also lists pods and Pipelines, and requests the
progress of drivers over HTTP.

The operator has no persistent state: a new operator, or a second one at the same time, plans from the same resources.
Losing its memory of failures (`backoff.RetryTracker`) and of applied manifests (`actions.ActionRunner`) is harmless: a
restarted operator retries every action immediately, and the reasons `Rejected` and `Waiting` reappear in conditions
after the next attempt.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable

from flotilla_operator.actions import ActionRunner
from flotilla_operator.backoff import RetryTracker
from flotilla_operator.brokers.spec import BrokerInstallation
from flotilla_operator.cache import Cache
from flotilla_operator.control_client import ControlClient
from flotilla_operator.errors import OperatorError
from flotilla_operator.execution import DEADLINE_S, PlanExecutor
from flotilla_operator.finalizers import remove_finalizers
from flotilla_operator.kubernetes_client import KubernetesClient
from flotilla_operator.metrics import Metrics
from flotilla_operator.names import PIPELINE, TOPIC
from flotilla_operator.observation import Observation, Observer
from flotilla_operator.pipeline_planner import PipelinePlanner, PlanningContext
from flotilla_operator.pipelines.spec import PipelineInstallation
from flotilla_operator.planning import are_racks_registered, plan_all_brokers, plan_all_topics, plan_cluster_actions
from flotilla_operator.plans import ResourcePlan, resource_key

logger = logging.getLogger(__name__)

RESYNC_S = 5.0  # longest pause without an event
DEBOUNCE_S = 0.25  # shortest pause, so that one reconcile covers several events


class Reconciler:
    """Reconciles the Topics, Brokers and Pipelines of one cluster."""

    def __init__(
        self,
        broker_installation: BrokerInstallation,
        kubernetes: KubernetesClient,
        control: ControlClient,
        cache: Cache,
        metrics: Metrics,
        *,
        clock: Callable[[], float],
        now: Callable[[], str],
        pipeline_installation: PipelineInstallation,
    ) -> None:
        self._broker_installation = broker_installation
        self._kubernetes = kubernetes
        self._metrics = metrics
        self._clock = clock
        self._now = now
        self._retries = RetryTracker(clock)
        self._observer = Observer(broker_installation, kubernetes, control, cache, clock)
        self._pipeline_planner = PipelinePlanner(
            pipeline_installation, broker_installation.name, kubernetes, cache, now
        )
        self.runner = ActionRunner(kubernetes, control, now)
        self._executor = PlanExecutor(
            self.runner, kubernetes, cache, self._retries, metrics, clock=clock, wake=self.wake
        )
        self._wake_requested = asyncio.Event()
        self.finished_at: float | None = None  # end of the last reconcile without an unexpected exception

    def wake(self) -> None:
        """Request a reconcile soon."""
        self._wake_requested.set()

    async def run(self) -> None:
        """Reconcile until cancelled."""
        while True:
            self._wake_requested.clear()
            started = self._clock()
            try:
                await self.reconcile()
                self.finished_at = self._clock()
            except OperatorError as error:
                logger.warning("reconcile failed error=%r", str(error))
                self.finished_at = self._clock()
            except Exception:  # a bug: the next reconcile may succeed; if none does, the liveness probe fails
                logger.exception("reconcile failed")
            self._metrics.observe_reconcile(self._clock() - started)
            await asyncio.sleep(DEBOUNCE_S)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RESYNC_S):  # wait_for can lose a concurrent cancellation
                    await self._wake_requested.wait()

    async def reconcile(self) -> None:
        """Observe, plan and execute once. Raises OperatorError if Kubernetes cannot be read."""
        if self._observer.is_list_due:
            await self._list_resources()
        observation = await self._observer.observe()
        plans = await self._plan(observation)
        deadline = self._clock() + DEADLINE_S
        await self._executor.execute(plans, observation, deadline)
        action_keys: set[str] = set()
        if observation.state is not None:
            # Read the cache again: a Topic that was created during this reconcile must neither lose its topic nor get
            # a mirror.
            resources = self._observer.read_cache()
            actions = plan_cluster_actions(self._broker_installation, resources, observation.state)
            action_keys = await self._executor.execute_cluster_actions(actions, observation, deadline)
        resource_keys = {resource_plan.key for resource_plan in plans} | self._pipeline_planner.resource_keys()
        self._retries.keep_only(resource_keys, action_keys)
        self._executor.keep_only(resource_keys)

    def close(self) -> None:
        """Close connections."""
        self._pipeline_planner.close()

    async def remove_finalizers_if_terminating(self) -> None:
        """Remove finalizers from all Topics if the namespace is being deleted: no operator will do it later."""
        if await self._kubernetes.is_namespace_terminating():
            await remove_finalizers(self._kubernetes, await self._kubernetes.list(TOPIC))

    async def _list_resources(self) -> None:
        await self._observer.list_resources()
        self.runner.forget_applied()  # a broken watch does not report changes of applied objects
        try:
            await self._pipeline_planner.list_resources()
        except OperatorError as error:  # plans of Topics and Brokers do not depend on this list
            logger.warning("Pipelines not listed error=%r", str(error))

    async def _plan(self, observation: Observation) -> list[ResourcePlan]:
        now = self._now()
        broker_plans = plan_all_brokers(self._broker_installation, observation, self._retries, now)
        topic_plans = plan_all_topics(
            self._broker_installation,
            observation,
            self._retries,
            now,
            are_racks_registered=are_racks_registered(broker_plans),
        )
        return [*broker_plans, *topic_plans, *await self._plan_pipelines(observation)]

    async def _plan_pipelines(self, observation: Observation) -> list[ResourcePlan]:
        context = PlanningContext(
            state=observation.state,
            rejection=lambda pipeline: self._retries.rejection(resource_key(PIPELINE, pipeline)),
            is_backoff_over=lambda pipeline: self._retries.is_backoff_over(resource_key(PIPELINE, pipeline)),
        )
        try:
            return await self._pipeline_planner.plan(context)
        except Exception:  # a Pipeline, or the response of a driver, must not stop the reconcile of Topics and Brokers
            logger.exception("planning failed kind=Pipeline")
            return []
