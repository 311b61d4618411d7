"""The reconcile loop: observe, plan, execute; after every change, and about five seconds after the previous one ended.

The operator has no persistent state: a new operator, or a second one at the same time, plans from the same resources.
Losing its memory of failures (`backoff.RetryTracker`) and of applied manifests (`actions.ActionRunner`) is harmless: it
tries everything at once, and the reasons `Rejected` and `Waiting` reappear in conditions after the next attempt.
"""

import asyncio
import logging
from collections.abc import Callable

from flotilla_operator.actions import ActionRunner
from flotilla_operator.backoff import RetryTracker
from flotilla_operator.brokers.spec import BrokerDefaults
from flotilla_operator.cache import Cache
from flotilla_operator.control_client import ControlClient
from flotilla_operator.errors import OperatorError
from flotilla_operator.execution import Executor
from flotilla_operator.finalizers import remove_finalizers
from flotilla_operator.kubernetes_client import KubernetesClient
from flotilla_operator.metrics import Metrics
from flotilla_operator.names import PIPELINE, TOPIC
from flotilla_operator.observation import Observation, Observer
from flotilla_operator.pipeline_planner import PipelinePlanner, PlanningContext
from flotilla_operator.pipelines.spec import PipelineDefaults
from flotilla_operator.planning import plan_all_brokers, plan_all_topics, plan_without_resource, registers_racks
from flotilla_operator.plans import ResourcePlan, resource_key

logger = logging.getLogger(__name__)

PERIOD_S = 5.0
PAUSE_S = 0.25  # between two reconciles, so that one covers several events


class Reconciler:
    """Reconciles the Topics, Brokers and Pipelines of one cluster."""

    def __init__(
        self,
        cluster: BrokerDefaults,
        kubernetes: KubernetesClient,
        control: ControlClient,
        cache: Cache,
        metrics: Metrics,
        *,
        clock: Callable[[], float],
        now: Callable[[], str],
        pipelines: PipelineDefaults,
    ) -> None:
        self._cluster = cluster
        self._kubernetes = kubernetes
        self._metrics = metrics
        self._clock = clock
        self._now = now
        self._retries = RetryTracker(clock)
        self._observer = Observer(cluster, kubernetes, control, cache, clock)
        self._pipelines = PipelinePlanner(pipelines, cluster.name, kubernetes, cache, now)
        self.runner = ActionRunner(kubernetes, control, now)
        self._executor = Executor(self.runner, kubernetes, cache, self._retries, metrics, clock=clock, wake=self.wake)
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
                logger.warning("reconcile failed: %s", error)
                self.finished_at = self._clock()
            except Exception:  # a bug: the next reconcile may succeed; if none does, the liveness probe fails
                logger.exception("reconcile failed")
            self._metrics.observe_reconcile(self._clock() - started)
            await asyncio.sleep(PAUSE_S)
            try:
                await asyncio.wait_for(self._wake_requested.wait(), PERIOD_S)
            except TimeoutError:
                continue

    async def reconcile(self) -> None:
        """Observe, plan and execute once. Raises OperatorError if Kubernetes cannot be read."""
        if self._observer.is_list_due:
            await self._list_resources()
        observation = await self._observer.observe()
        plans = await self._plan(observation)
        await self._executor.execute(plans, observation)
        keys, actions = {one.key for one in plans}, set[str]()
        if observation.state is not None:
            # The cache is read again: a Topic that was created meanwhile keeps its topic, and needs no mirror.
            planned = plan_without_resource(self._cluster, self._observer.read_cache(), observation.state)
            actions = await self._executor.execute_without_resource(planned, observation)
        self._retries.keep_only(keys, actions)
        self._executor.keep_only(keys)

    def close(self) -> None:
        """Close connections."""
        self._pipelines.close()

    async def remove_finalizers(self) -> None:
        """Remove finalizers from all Topics if the namespace is being deleted: no operator will do it later."""
        if await self._kubernetes.is_namespace_terminating():
            await remove_finalizers(self._kubernetes, await self._kubernetes.list(TOPIC))

    async def _list_resources(self) -> None:
        await self._observer.list_resources()
        self.runner.forget_applied()
        try:
            await self._pipelines.list_resources()
        except OperatorError as error:  # topics and brokers do not depend on it
            logger.warning("cannot list Pipelines, using the cache error=%s", error)

    async def _plan(self, observation: Observation) -> list[ResourcePlan]:
        now = self._now()
        brokers = plan_all_brokers(self._cluster, observation, self._retries, now)
        are_racks_registered = not registers_racks(brokers)
        topics = plan_all_topics(
            self._cluster, observation, self._retries, now, are_racks_registered=are_racks_registered
        )
        return [*brokers, *topics, *await self._plan_pipelines(observation)]

    async def _plan_pipelines(self, observation: Observation) -> list[ResourcePlan]:
        context = PlanningContext(
            state=observation.state,
            rejection=lambda one: self._retries.rejection(resource_key(PIPELINE, one)),
            is_backoff_over=lambda one: self._retries.is_backoff_over(resource_key(PIPELINE, one)),
        )
        try:
            return await self._pipelines.plan(context)
        except Exception:  # drivers run code of users: it must not stop the reconcile of topics and brokers
            logger.exception("reconcile of Pipelines failed")
            return []
