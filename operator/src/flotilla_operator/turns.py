"""The operator's turns: look at everything, decide, act; again when something happens, and every few seconds.

Nothing is remembered that matters: whoever begins anew, or a second operator at the same time, comes to the same plans.
What is remembered is only for patience (what failed is left alone for a while) and for quiet (what was applied is not
applied again).
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flotilla_operator.acting import Actor
from flotilla_operator.brokers.members import call_brokers
from flotilla_operator.brokers.plan import Observed as BrokersObserved
from flotilla_operator.brokers.plan import plan_brokers
from flotilla_operator.brokers.scaling import plan_lost_sets
from flotilla_operator.brokers.spec import Cluster, read_set
from flotilla_operator.cache import Cache
from flotilla_operator.control import Control
from flotilla_operator.errors import Away, OperatorError, Refused
from flotilla_operator.kube import BROKER, NODE, PIPELINE, POD, STATEFULSET, TOPIC, Conflict, Kube, NotFound
from flotilla_operator.letting_go import let_go
from flotilla_operator.metrics import Metrics
from flotilla_operator.patience import Patience
from flotilla_operator.pipelines.wish import Installation
from flotilla_operator.pipelining import Given, Pipelining
from flotilla_operator.showing import news, should_show
from flotilla_operator.steps import Plan, PutBroker, Step
from flotilla_operator.topics.mirrors import plan_mirrors
from flotilla_operator.topics.plan import Observed as TopicObserved
from flotilla_operator.topics.plan import plan_releases, plan_topic
from flotilla_operator.topics.wish import is_mirror, name_of, owner_of
from flotilla_operator.world import World

logger = logging.getLogger(__name__)

PERIOD_S = 5.0
PAUSE_S = 0.25  # between two turns: what comes at once is taken together
RELIST_S = 60.0
GRACE_S = 30.0  # for how long managers may know little, as after a restart, before that is shown
REFUSED_S = 60.0  # after which what was refused is asked for again, if nothing changes
TOGETHER_MAX = 16
TURN_S = 45.0  # after which a turn begins nothing new: what is left is for the next one, which sees what has changed
_ALL = "all topics"

Resource = dict[str, Any]


@dataclass(frozen=True)
class _Refusal:
    version: int | None
    until: float
    text: str


class Turns:
    """All of it."""

    def __init__(
        self,
        cluster: Cluster,
        kube: Kube,
        control: Control,
        cache: Cache,
        metrics: Metrics,
        *,
        clock: Callable[[], float],
        now: Callable[[], str],
        pipelines: Installation,
    ) -> None:
        self._cluster = cluster
        self._pipelining = Pipelining(pipelines, cluster.name, kube, cache, now)
        self._kube = kube
        self._control = control
        self._cache = cache
        self._metrics = metrics
        self._clock = clock
        self._now = now
        self.actor = Actor(kube, control, now)
        self._patience = Patience()
        self._refusals: dict[str, _Refusal] = {}
        self._shown_at: dict[str, float] = {}
        self._awake = asyncio.Event()
        self._listed_at: float | None = None
        self._nodes: dict[str, Resource] = {}
        self._sought: frozenset[str] = frozenset()  # nodes that were looked for since the last list
        self._is_away = False
        self._deadline = 0.0
        self._complete_at: float | None = None  # when managers had last heard of all brokers
        self._is_settled = True
        self._asked_for_all: set[str] = set()
        self._waits: dict[str, str] = {}  # why something that was asked for is not done yet
        self.ended_at: float | None = None  # when the last turn did

    def wake(self) -> None:
        """Take a turn soon."""
        self._awake.set()

    async def run(self) -> None:
        """Take turns until cancelled."""
        while True:
            self._awake.clear()
            began = self._clock()
            try:
                await self.turn()
                self.ended_at = self._clock()
            except OperatorError as error:
                logger.warning("this turn came to nothing: %s", error)
                self.ended_at = self._clock()
            except (
                Exception
            ):  # a fault of ours: the next turn may do better, and if none does, the liveness probe sees it
                logger.exception("this turn failed")
            self._metrics.turn(self._clock() - began)
            await asyncio.sleep(PAUSE_S)
            try:
                await asyncio.wait_for(self._awake.wait(), PERIOD_S)
            except TimeoutError:
                continue

    async def turn(self) -> None:
        """Look, decide, act, once. Raises OperatorError if nothing could be looked at."""
        if self._listed_at is None or self._clock() - self._listed_at > RELIST_S:
            await self._list()
        await self._look_at_nodes()
        world, away = await self._look()
        self._is_settled = self._judge(world)
        plans = self._plan_brokers(world, away)
        has_racks = not any(
            isinstance(step, PutBroker) and "rack" in step.body for *_, plan in plans for step in plan.steps
        )
        plans += await self._plan_topics(world, away, has_racks=has_racks)
        plans += await self._plan_pipelines(world)
        gate = asyncio.Semaphore(TOGETHER_MAX)
        self._deadline = self._clock() + TURN_S
        await asyncio.gather(*(self._carry_out(kind, one, plan, world, gate) for kind, one, plan in plans))
        if world is not None:
            await self._carry_out_for_all(world)
        self._forget({_key(kind, one) for kind, one, _ in plans})

    def close(self) -> None:
        """Hang up."""
        self._pipelining.close()

    async def lift_finalizers(self) -> None:
        """Let all Topics go, if the namespace is being deleted: nobody will be here to do it later."""
        if not await self._kube.is_ending():
            return
        await let_go(self._kube, await self._kube.list(TOPIC))

    # -- looking ------------------------------------------------------------------------------------------

    async def _list(self) -> None:
        for kind, labels in ((TOPIC, None), (BROKER, None), (STATEFULSET, None), (POD, self._cluster.labels)):
            self._cache.replace(kind, await self._kube.list(kind, labels))
        await self._pipelining.look()
        self._sought = frozenset()
        self.actor.forget()
        self._listed_at = self._clock()

    async def _look_at_nodes(self) -> None:
        """Look at nodes if a rack is a label of theirs: now and then, and when a pod is on a new one."""
        if not any((one.get("spec") or {}).get("rack") for one in self._mine(BROKER)):
            return
        used = frozenset((one.get("spec") or {}).get("nodeName") or "" for one in self._cache.all(POD)) - {""}
        if not used - self._sought:
            return
        try:
            self._nodes = {one["metadata"]["name"]: one for one in await self._kube.list(NODE)}
        except Away as error:
            logger.warning("nodes cannot be looked at now: %s", error)
            return
        except Refused as error:  # whoever may not look does without
            logger.info("racks are known of pods alone: %s", error)
        self._sought |= used

    async def _look(self) -> tuple[World | None, str]:
        try:
            world = await self._control.look()
        except Away as error:
            if not self._is_away:
                logger.warning("managers are away: %s", error)
            self._is_away = True
            return None, str(error)
        if self._is_away:
            logger.info("managers are back")
        self._is_away = False
        return world, ""

    def _judge(self, world: World | None) -> bool:
        """Tell whether what is seen is worth showing: managers that start again know little for some seconds."""
        now = self._clock()
        is_complete = world is not None and world.is_complete
        self._complete_at = now if is_complete else self._complete_at
        return is_complete or self._complete_at is None or now - self._complete_at > GRACE_S

    def _mine(self, kind: str) -> list[Resource]:
        """Resources for this cluster."""
        return [dict(one) for one in self._cache.all(kind) if _cluster_of(one) == self._cluster.name]

    # -- deciding -----------------------------------------------------------------------------------------

    def _plan_brokers(self, world: World | None, away: str) -> list[tuple[str, Resource, Plan]]:
        sets = self._mine(BROKER)
        owners = tuple(read_set(one, self._cluster).owner for one in sets if "deletionTimestamp" not in one["metadata"])
        plans = []
        for one in sets:
            key = _key(BROKER, one)
            observed = BrokersObserved(
                cluster=self._cluster,
                statefulset=self._cache.get(STATEFULSET, one["metadata"]["name"]),
                pods=tuple(self._cache.all(POD)),
                nodes=self._nodes,
                owners=owners,
                world=world,
                away=away,
                refusal=self._refusal(one, BROKER),
                waits_for=self._waits.get(key) if self._patience.is_thin(key) else None,
            )
            plans.append((BROKER, one, plan_brokers(one, observed, self._now())))
        return plans

    async def _plan_topics(
        self, world: World | None, away: str, *, has_racks: bool
    ) -> list[tuple[str, Resource, Plan]]:
        mine = self._mine(TOPIC)
        first = _firsts(mine)
        is_gone = await self._is_gone(mine, world)
        called = call_brokers(world)
        brokers = sum(read_set(one, self._cluster).replicas for one in self._mine(BROKER))
        plans = []
        for one in mine:
            key, eldest = _key(TOPIC, one), first[name_of(one)]
            observed = TopicObserved(
                world=world,
                away=away,
                is_gone=is_gone,
                rival=None if eldest is one else f"Topic {eldest['metadata']['name']}",
                refusal=self._refusal(one, TOPIC),
                may_ask=self._may_ask(key, world),
                has_racks=has_racks,
                waits_for=self._waits.get(key),
                called=called,
                brokers=brokers,
            )
            plans.append((TOPIC, one, plan_topic(one, observed, self._now())))
        return plans

    async def _plan_pipelines(self, world: World | None) -> list[tuple[str, Resource, Plan]]:
        given = Given(
            world=world,
            refusal=lambda one: self._refusal(one, PIPELINE),
            may_try=lambda one: self._patience.may_try(_key(PIPELINE, one), self._clock()),
        )
        try:
            return await self._pipelining.plan(given)
        except Exception:  # drivers run anybody's code: whatever they leave behind, topics and brokers are looked after
            logger.exception("Pipelines are left alone in this turn")
            return []

    def _refusal(self, resource: Resource, kind: str) -> str | None:
        found = self._refusals.get(_key(kind, resource))
        return None if found is None else found.text

    async def _is_gone(self, mine: list[Resource], world: World | None) -> bool:
        """Whether managers are gone for good; asked only while somebody waits for that."""
        waiting = any("deletionTimestamp" in one["metadata"] for one in mine)
        return waiting and world is None and await self._kube.is_ending()

    def _may_ask(self, key: str, world: World | None) -> bool:
        """Tell whether to ask for what was refused before: if the world has changed since, and now and then."""
        found = self._refusals.get(key)
        if found is None:
            return True
        return self._clock() >= found.until or (world is not None and found.version not in {None, world.version})

    # -- acting -------------------------------------------------------------------------------------------

    async def _carry_out(
        self, kind: str, resource: Resource, plan: Plan, world: World | None, gate: asyncio.Semaphore
    ) -> None:
        async with gate:
            key = _key(kind, resource)
            if plan.status is not None and (self._is_settled or kind == PIPELINE):
                shown = await self._show(kind, resource, plan.status)
                if shown is None:
                    return
                resource = shown
            if plan.steps and self._clock() < self._deadline and self._patience.may_try(key, self._clock()):
                await self._do(key, kind, resource, plan.steps, world)

    async def _carry_out_for_all(self, world: World) -> None:
        """Do what is for no resource that there is: those that tell of topics, and topics whose resources are gone."""
        mine = self._mine(TOPIC)
        owners = frozenset(owner_of(one["metadata"]["namespace"], one["metadata"]["name"]) for one in mine)
        taken = frozenset(one["metadata"]["name"] for one in self._cache.all(TOPIC))
        steps = (
            *plan_releases(world, self._cluster.namespace, owners),
            *plan_mirrors(world, mine, self._cluster.namespace, self._cluster.name, taken),
            *self._forget_sets(world),
        )
        for step in steps:  # each by itself: one that fails keeps no other from being done
            key = f"{_ALL}: {step}"
            if self._clock() < self._deadline and self._patience.may_try(key, self._clock()):
                await self._do(key, TOPIC, None, (step,), world)
        self._asked_for_all = {f"{_ALL}: {step}" for step in steps}

    def _forget_sets(self, world: World) -> tuple[Step, ...]:
        sets = frozenset(one["metadata"]["name"] for one in self._cache.all(BROKER))
        pods = frozenset(one["metadata"]["name"] for one in self._cache.all(POD))
        return plan_lost_sets(world, self._cluster.namespace, sets, pods)

    async def _do(
        self, key: str, kind: str, resource: Resource | None, steps: tuple[Step, ...], world: World | None
    ) -> None:
        try:
            for step in steps:
                if await self.actor.do(kind, resource, step):
                    self._metrics.did(type(step).__name__)
                    self.wake()
        except (NotFound, Conflict) as error:  # what is known of it here is old: an event is on its way
            logger.debug("%s: %s", key, error)
        except Refused as error:
            self._refuse(key, world, str(error))
        except Away as error:
            seconds = self._patience.failed(key, self._clock())
            self._waits[key] = str(error)
            self._metrics.failed("away")
            logger.info("%s: %s; the next try is in %.0f s", key, error, seconds)
        else:
            self._patience.succeeded(key)
            self._waits.pop(key, None)
            self._refusals.pop(key, None)

    def _refuse(self, key: str, world: World | None, text: str) -> None:
        """Remember that something was refused: that is shown until it is done."""
        version = world.version if world is not None else None
        self._refusals[key] = _Refusal(version, self._clock() + REFUSED_S, text)
        self._metrics.failed("refused")
        logger.warning("%s: refused: %s", key, text)
        self._patience.failed(key, self._clock())  # to ask for the same at once does not help
        self.wake()

    async def _show(self, kind: str, resource: Resource, status: Resource) -> Resource | None:
        """Show a status, if it is news; return the resource as it is then, or None if what is known of it is old.

        What a Pipeline's status says is what is known of it at all: nobody writes over what they have not read.
        """
        key, before = _key(kind, resource), resource.get("status") or {}
        seconds = self._clock() - self._shown_at.get(key, float("-inf"))
        if not should_show(before, status, seconds):
            return resource
        try:
            version = resource["metadata"]["resourceVersion"] if kind == PIPELINE else None
            found = await self._kube.set_status(kind, resource["metadata"]["name"], status, version)
            self._shown_at[key] = self._clock()
            self._cache.hear(kind, None, found)
            if kind == PIPELINE:  # what follows from what was written down is done in the next turn
                self.wake()
            told = news(before, status)
            if told is not None:
                await self.actor.do(kind, resource, told)
        except (NotFound, Conflict):  # it was deleted or changed meanwhile, and an event is on its way
            return None
        except OperatorError as error:
            logger.warning("%s: its status could not be shown: %s", key, error)
            return resource
        return found

    def _forget(self, keys: set[str]) -> None:
        self._patience.keep_only(keys | self._asked_for_all)
        self._refusals = {key: one for key, one in self._refusals.items() if key in keys}
        self._shown_at = {key: at for key, at in self._shown_at.items() if key in keys}
        self._waits = {key: why for key, why in self._waits.items() if key in keys}


def _key(kind: str, resource: Resource) -> str:
    """Name a resource as it was said: one that was changed is tried at once, whatever was before."""
    metadata = resource["metadata"]
    return f"{kind} {metadata['name']} {metadata['uid']} {metadata.get('generation', 0)}"


def _cluster_of(resource: Any) -> str:  # noqa: ANN401 - any mapping
    return str((resource.get("spec") or {}).get("cluster", "flotilla"))


def _firsts(resources: list[Resource]) -> dict[str, Resource]:
    """Of resources for one topic, the eldest counts; mirrors come after all others."""
    first: dict[str, Resource] = {}
    for one in sorted(resources, key=_age):
        first.setdefault(name_of(one), one)
    return first


def _age(resource: Resource) -> tuple[bool, str, str]:
    metadata = resource["metadata"]
    return is_mirror(resource), metadata.get("creationTimestamp", ""), metadata["name"]
