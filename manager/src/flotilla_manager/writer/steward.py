"""Keeps brokers as the metadata says: looks, plans, gives orders, and looks again.

The plan is made by a pure function from the database and from what brokers report. Nothing here remembers what is
half-done: whatever was lost or interrupted is planned again.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import replace

from flotilla_manager.metadata import AsyncMetadata
from flotilla_manager.metadata.errors import Fenced, MetadataError
from flotilla_manager.model import Snapshot
from flotilla_manager.planning import HandOver, Order, Plan, SendBook, Stand, plan
from flotilla_manager.view import View
from flotilla_manager.writer.leadership import Leadership
from flotilla_manager.writer.orders import OrderFailed, Orders, StaleWriterRefused
from flotilla_manager.writer.reports import BEAT_S, MISSED_MAX, Reports

logger = logging.getLogger(__name__)

_LOOK_S = 0.5
_AGAIN_S = 5.0  # an order about a leader is not repeated sooner
_GRACE_S = (MISSED_MAX + 1) * BEAT_S  # a new writer has not heard of anybody yet


class Steward:
    """The writer's loop."""

    def __init__(
        self,
        leadership: Leadership,
        database: AsyncMetadata,
        view: View,
        reports: Reports,
        orders: Orders,
        *,
        clock: Callable[[], float],
        on_behind: Callable[[tuple[str, ...]], None],
    ) -> None:
        self._leadership = leadership
        self._database = database
        self._view = view
        self._reports = reports
        self._orders = orders
        self._clock = clock
        self._on_behind = on_behind
        self._recent: dict[Order, float] = {}
        self._wanted = asyncio.Event()

    def wake(self) -> None:
        """Look soon."""
        self._wanted.set()

    async def run(self) -> None:
        """Look after everything, until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wanted.wait(), _LOOK_S)
            self._wanted.clear()
            if self._leadership.epoch is None:
                continue
            try:
                await self.tend(self._leadership.epoch)
            except Fenced as error:
                self._leadership.lose(str(error))
            except MetadataError as error:
                logger.info("brokers could not be looked after: %s", error)
            except Exception:
                logger.exception("brokers could not be looked after")

    async def tend(self, epoch: int) -> Plan:
        """Look once, and do what has to be done. Raises MetadataError."""
        reports = self._reports.for_planning()  # before the snapshot: an older one would seem to be behind
        await self._view.refresh()
        snapshot = self._view.snapshot
        if snapshot is None or snapshot.writer.epoch != epoch:
            return Plan()
        await self._judge_brokers(epoch, snapshot)
        found = plan(snapshot, reports, self._recently_given())
        if found.behind:
            self._on_behind(found.behind)
            return found
        await self.give(found.orders, epoch, snapshot)
        for change in found.topic_changes:
            await self._database.call(self._database.store.set_topic_state, epoch, change.topic_id, change.state)
            logger.info("topic %s is %s", change.topic_id, change.state)
        return found

    async def give(self, orders: tuple[Order, ...], epoch: int, snapshot: Snapshot) -> list[OrderFailed]:
        """Give orders to brokers that are known; return what went wrong."""
        brokers = snapshot.brokers_by_id
        reachable = [(order, brokers[order.broker]) for order in orders if order.broker in brokers]
        failures = []
        for order, failure in await self._orders.give_all(reachable, epoch, snapshot.cluster_id):
            if isinstance(failure, StaleWriterRefused):
                self._leadership.lose(str(failure))
            if failure is not None:
                failures.append(failure)
            elif isinstance(order, SendBook):
                self._reports.told(order.broker, order.book)
            elif not isinstance(order, Stand | HandOver):
                self._reports.changed(order.broker)
            if isinstance(order, Stand | HandOver):
                self._recent[order] = self._clock()
        return failures

    def _recently_given(self) -> set[Order]:
        before = self._clock() - _AGAIN_S
        self._recent = {order: at for order, at in self._recent.items() if at > before}
        return set(self._recent)

    async def _judge_brokers(self, epoch: int, snapshot: Snapshot) -> None:
        """Note which brokers fell silent. Those that are heard of again are noted at once, with their heartbeat."""
        if self._clock() - self._leadership.since < _GRACE_S:
            return
        for broker in snapshot.brokers:
            if broker.active and not self._reports.is_alive(broker.id):
                logger.warning("broker %s at %s is silent: it gets no new replicas", broker.id, broker.url)
                await self._database.call(self._database.store.put_broker, epoch, replace(broker, active=False))
