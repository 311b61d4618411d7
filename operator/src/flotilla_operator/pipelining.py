"""What turns do about Pipelines: look at drivers, and decide; what makes or ends a driver, with what was seen just now.

What is known from events may be old. A driver that is made because of something old could be a second one on its
checkpoint, so before anything is made or removed, everything that the decision rests on is listed anew.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from flotilla_operator.cache import Cache
from flotilla_operator.drivers import Drivers, ask_all
from flotilla_operator.errors import OperatorError
from flotilla_operator.kube import PIPELINE, POD, Kube
from flotilla_operator.pipelines.executors import count_executors
from flotilla_operator.pipelines.plan import Observed, plan_pipeline
from flotilla_operator.pipelines.progress import Progress
from flotilla_operator.pipelines.states import PENDING, Pod, read_pod
from flotilla_operator.pipelines.wish import DRIVERS, EXECUTORS, Installation, checkpoint_of, parse_time
from flotilla_operator.steps import Create, Plan, Remove
from flotilla_operator.world import World

logger = logging.getLogger(__name__)

DRIVER, EXECUTOR = "driver", "executor"  # pods of pipelines, apart from those of brokers
LATE_S = 10  # after which a pod that has not started is asked about
_ASKED_MAX = 20  # such pods in a turn

Resource = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Given:
    """What a turn knows besides."""

    world: World | None
    refusal: Callable[[Resource], str | None]  # what Kubernetes said to what a resource asks for
    may_try: Callable[[Resource], bool]  # whether anything would be done about it now


class Pipelining:
    """All Pipelines of a namespace."""

    def __init__(
        self, installation: Installation, cluster: str, kube: Kube, cache: Cache, now: Callable[[], str]
    ) -> None:
        self._installation = installation
        self._cluster = cluster
        self._kube = kube
        self._cache = cache
        self._now = now
        self._drivers = Drivers()

    async def look(self) -> None:
        """Know what there is now. Raises OperatorError."""
        self._cache.replace(PIPELINE, await self._kube.list(PIPELINE))
        self._cache.replace(DRIVER, await self._kube.list(POD, DRIVERS))
        self._cache.replace(EXECUTOR, await self._kube.list(POD, EXECUTORS))

    async def plan(self, given: Given) -> list[tuple[str, Resource, Plan]]:
        """Look, and decide."""
        mine = {one["metadata"]["uid"] for one in self._mine()}
        progress = await self._drivers.ask([one for one in self._pods().values() if one.owner in mine])
        troubles = await self._ask_why_late()
        plans = self._decide(given, progress, troubles)
        if any(_is_weighty(plan) and given.may_try(one) for _, one, plan in plans):
            try:
                await self.look()
                return self._decide(given, progress, troubles)
            except OperatorError as error:
                logger.warning("no driver is made or ended now: %s", error)
        return [(kind, one, replace(plan, steps=()) if _is_weighty(plan) else plan) for kind, one, plan in plans]

    def close(self) -> None:
        """Hang up."""
        self._drivers.close()

    def _mine(self) -> list[Resource]:
        return [
            dict(one) for one in self._cache.all(PIPELINE) if one["spec"].get("cluster", "flotilla") == self._cluster
        ]

    def _pods(self) -> dict[str, Pod]:
        return {one["metadata"]["name"]: read_pod(one) for one in self._cache.all(DRIVER)}

    def _executors(self) -> list[Pod]:
        return [read_pod(one) for one in self._cache.all(EXECUTOR)]

    def _decide(
        self, given: Given, progress: Mapping[str, Progress], troubles: Mapping[str, str]
    ) -> list[tuple[str, Resource, Plan]]:
        def explained(pod: Pod) -> Pod:
            return replace(pod, waits_for=pod.waits_for or troubles.get(pod.uid))

        pods = {name: explained(one) for name, one in self._pods().items()}
        executors = count_executors(map(explained, self._executors()))
        elders = find_elders(self._cache.all(PIPELINE))
        plans = []
        for one in self._mine():
            observed = Observed(
                installation=self._installation,
                drivers=pods,
                executors=executors,
                rival=elders.get(one["metadata"]["name"]),
                progress=progress.get(f"{one['metadata']['name']}-driver"),
                world=given.world,
                refusal=given.refusal(one),
            )
            try:
                plans.append((PIPELINE, one, plan_pipeline(one, observed, self._now())))
            except Exception:  # a fault of ours, or a resource such as nobody thought of: others are looked after
                logger.exception("what to do about Pipeline %s could not be decided", one["metadata"]["name"])
        return plans

    async def _ask_why_late(self) -> dict[str, str]:
        """Ask why pods have not started that should have: of what is missing for a volume, only events tell.

        One executor speaks for all of its driver.
        """
        now = self._now()
        late = [one.uid for one in self._pods().values() if is_late(one, now)]
        late += {one.owner: one.uid for one in self._executors() if is_late(one, now)}.values()
        return await ask_all({uid: self._kube.warning(uid) for uid in late[:_ASKED_MAX]})


def is_late(pod: Pod, now: str) -> bool:
    """Tell whether a pod that is on a node should have started by now, and does not say itself why it has not."""
    if pod.phase != PENDING or not pod.is_placed or pod.is_leaving or pod.waits_for is not None or pod.made_at is None:
        return False
    return parse_time(pod.made_at) + timedelta(seconds=LATE_S) <= parse_time(now)


def find_elders(resources: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Tell who has the right to a checkpoint before whom: of Pipelines with the same one, the eldest."""
    first: dict[str, str] = {}
    elders = {}
    for one in sorted(resources, key=_age):
        name, checkpoint = one["metadata"]["name"], checkpoint_of(one)
        if checkpoint is not None and first.setdefault(checkpoint, name) != name:
            elders[name] = first[checkpoint]
    return elders


def _age(resource: Mapping[str, Any]) -> tuple[str, str]:
    return resource["metadata"].get("creationTimestamp", ""), resource["metadata"]["name"]


def _is_weighty(plan: Plan) -> bool:
    return any(isinstance(step, Create | Remove) for step in plan.steps)
