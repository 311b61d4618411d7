"""Keeps brokers as the metadata says: looks, plans, gives orders, and looks again.

The plan is made by a pure function from the database and from what brokers report. Nothing here remembers what is
half-done: whatever was lost or interrupted is planned again.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from flotilla_manager.metadata import AsyncMetadata
from flotilla_manager.metadata.errors import Fenced, MetadataError
from flotilla_manager.model import Broker, Snapshot, TopicState
from flotilla_manager.planning import HandOver, OpenReplica, Order, Plan, SendBook, Stand, plan
from flotilla_manager.view import View
from flotilla_manager.writer.brokers import Brokers, registered
from flotilla_manager.writer.leadership import Leadership
from flotilla_manager.writer.orders import OrderFailed, Orders, StaleWriterRefused
from flotilla_manager.writer.reports import BEAT_S, MISSED_MAX, Reports

logger = logging.getLogger(__name__)

_LOOK_S = 0.5
_UNDO_S = 60.0
_AGAIN_S = 5.0  # an order about a leader is not repeated sooner, and each time it takes twice as long
_AGAIN_S_MAX = 60.0  # a leader that does not stay where it should be is moved once in so long
_FORGOTTEN_S = 600.0
_ASLEEP_S = 2.0  # a wait that took so much longer than it should: the process stood still
_GRACE_S = (MISSED_MAX + 1) * BEAT_S  # a new writer has not heard of anybody yet


@dataclass(frozen=True)
class Given:
    """An order about a leader: when it was given last, and how often."""

    at: float
    times: int = 1

    def again(self, now: float) -> "Given":
        """Count one more time."""
        return Given(now, self.times + 1)

    def is_recent(self, now: float) -> bool:
        """Tell whether it is too early to give it again."""
        return now - self.at < min(_AGAIN_S * (1 << min(self.times - 1, 10)), _AGAIN_S_MAX)


class Steward:
    """The writer's loop."""

    def __init__(
        self,
        leadership: Leadership,
        database: AsyncMetadata,
        view: View,
        reports: Reports,
        orders: Orders,
        brokers: Brokers,
        *,
        clock: Callable[[], float],
        on_behind: Callable[[tuple[str, ...]], None],
    ) -> None:
        self._leadership = leadership
        self._database = database
        self._view = view
        self._reports = reports
        self._orders = orders
        self._brokers = brokers
        self._clock = clock
        self._on_behind = on_behind
        self._half_made: dict[str, float] = {}
        self._making: set[str] = set()
        self._given: dict[Order, Given] = {}
        self._failing: dict[Order, str] = {}
        self._trouble = ""
        self._awake_since = clock()
        self._wanted = asyncio.Event()

    def wake(self) -> None:
        """Look soon."""
        self._wanted.set()

    @contextmanager
    def making(self, topic_id: str) -> Iterator[None]:
        """Leave a topic to the one who makes it: only that one may say that it is ready, or undo it.

        What is ready may be used at once, and must not be undone any more.
        """
        self._making.add(topic_id)
        try:
            yield
        finally:
            self._making.discard(topic_id)

    async def run(self) -> None:
        """Look after everything, until cancelled."""
        while True:
            await self._wait()
            if self._leadership.epoch is None:
                continue
            try:
                await self.tend(self._leadership.epoch)
                self._trouble = ""
            except Fenced as error:
                self._leadership.lose(error.epoch, str(error))
            except MetadataError as error:
                self._say(f"{error}")
            except Exception as error:
                if f"{error!r}" != self._trouble:
                    logger.exception("brokers could not be looked after")
                self._trouble = f"{error!r}"

    async def _wait(self) -> None:
        """Wait until it is time to look, or somebody wants it."""
        began = self._clock()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_S):  # `wait_for` may lose a cancellation that comes with the event
                await self._wanted.wait()
        self._wanted.clear()
        if self._clock() - began > _LOOK_S + _ASLEEP_S:
            self._awake_since = self._clock()

    def _say(self, trouble: str) -> None:
        if trouble != self._trouble:
            logger.warning("brokers could not be looked after: %s", trouble)
        self._trouble = trouble

    async def tend(self, epoch: int) -> Plan:
        """Look once, and do what has to be done. Raises MetadataError."""
        reports = self._reports.for_planning()  # before the snapshot: an older one would seem to be behind
        await self._view.refresh()
        snapshot = self._view.snapshot
        if snapshot is None or snapshot.writer.epoch != epoch:
            return Plan()
        found = plan(snapshot, reports, self._recently_given())
        if found.behind:
            self._on_behind(found.behind)
            return found
        await self._judge_brokers(epoch, snapshot)
        orders = tuple(order for order in found.orders if not self._is_somebodys(order))
        await self.give(orders, epoch, snapshot)
        given = set(orders)
        self._failing = {order: text for order, text in self._failing.items() if order in given}
        await self._undo_half_made(epoch, snapshot)
        for change in found.topic_changes:
            if change.topic_id in self._making:
                continue
            await self._database.call(self._database.store.set_topic_state, epoch, change.topic_id, change.state)
            logger.info("topic %s is %s", change.topic_id, change.state)
        return found

    def _is_somebodys(self, order: Order) -> bool:
        """Tell whether an order is about a topic that is being made, and that is seen to already."""
        return isinstance(order, OpenReplica | Stand) and order.topic_id in self._making

    async def _undo_half_made(self, epoch: int, snapshot: Snapshot) -> None:
        """Remove topics that nobody finishes: whoever made them died, and a broker that they need does not return."""
        now = self._clock()
        half_made = [topic.id for topic in snapshot.topics if topic.state == TopicState.CREATING]
        self._half_made = {id_: self._half_made.get(id_, now) for id_ in half_made}
        for id_, since in self._half_made.items():
            if now - since > _UNDO_S and id_ not in self._making:
                logger.warning("topic %s could not be made within %d s; it is removed", id_, _UNDO_S)
                await self._database.call(self._database.store.set_topic_state, epoch, id_, TopicState.DELETING)

    async def give(self, orders: tuple[Order, ...], epoch: int, snapshot: Snapshot) -> list[OrderFailed]:
        """Give orders to brokers that are known; return what went wrong."""
        known = snapshot.brokers_by_id
        reachable = [(order, known[order.broker]) for order in orders if order.broker in known]
        failures = []
        for order, failure in await self._orders.give_all(reachable, epoch, snapshot.cluster_id):
            self._note(order, failure, epoch)
            if failure is not None:
                failures.append(failure)
        return failures

    def _note(self, order: Order, failure: OrderFailed | None, epoch: int) -> None:
        """Draw the conclusions from how an order ended."""
        if isinstance(order, Stand | HandOver):
            now = self._clock()
            self._given[order] = self._given[order].again(now) if order in self._given else Given(now)
        if failure is not None:
            if self._failing.get(order) != str(failure):
                logger.info("%s", failure)
            self._failing[order] = str(failure)
            if isinstance(failure, StaleWriterRefused):
                self._leadership.lose(epoch, str(failure))
        elif isinstance(order, SendBook):
            self._reports.told(order.broker, order.book)
        elif not isinstance(order, Stand | HandOver):
            self._reports.changed(order.broker)

    def _recently_given(self) -> set[Order]:
        now = self._clock()
        self._given = {order: given for order, given in self._given.items() if now - given.at < _FORGOTTEN_S}
        return {order for order, given in self._given.items() if given.is_recent(now)}

    async def _judge_brokers(self, epoch: int, snapshot: Snapshot) -> None:
        """Note which brokers fell silent. Those that are heard of again are noted at once, with their heartbeat.

        Who has not listened for long enough, because it was not the writer or because it slept, cannot judge.
        """
        if self._clock() - max(self._leadership.since, self._awake_since) < _GRACE_S:
            return
        for broker in snapshot.brokers:
            if broker.active and not self._reports.is_alive(broker.id):
                logger.warning("broker %s at %s is silent: it gets no new replicas", broker.id, broker.url)
                await self._brokers.change(epoch, broker.id, self._judge)

    def _judge(self, known: Broker | None, _: Snapshot) -> Broker:
        broker = registered(known)
        return replace(broker, active=broker.active and self._reports.is_alive(broker.id))
