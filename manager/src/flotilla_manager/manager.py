"""A manager: everything it is made of, started and ended in the right order."""

import asyncio
import logging
import secrets
import ssl
import time
from collections.abc import Callable, Coroutine
from typing import Any

from flotilla.net import Disconnected, Pool
from flotilla.serving.errors import Refusal
from flotilla_manager.access import KnownTokens, ManagerAccess, system_headers
from flotilla_manager.bounds import Asking
from flotilla_manager.clients import Producers, SignsOfLife
from flotilla_manager.consuming import Consuming
from flotilla_manager.metadata import AsyncMetadata, Store
from flotilla_manager.metadata.errors import MetadataError, SchemaTooNew
from flotilla_manager.model import Broker, ManagerInfo, Partition, Snapshot, Topic, replicas_per_broker
from flotilla_manager.records import Records
from flotilla_manager.routing.gateway import Gateway
from flotilla_manager.routing.lanes import Lanes
from flotilla_manager.settings import Settings
from flotilla_manager.view import View
from flotilla_manager.writer.brokers import Brokers
from flotilla_manager.writer.groups import Groups
from flotilla_manager.writer.leadership import Leadership
from flotilla_manager.writer.orders import Orders
from flotilla_manager.writer.reports import Reports
from flotilla_manager.writer.service import WriterService
from flotilla_manager.writer.steward import Steward
from flotilla_manager.writer.tokens import TokenKeeper
from flotilla_manager.writer.topics import Topics

logger = logging.getLogger(__name__)

EXIT_FAILED = 1
EXIT_BEHIND = 5
EXIT_SCHEMA = 6
_BEAT_S = 2.0
_SILENT_S = 3 * _BEAT_S
_RETRY_S = 0.2
_DESCRIBE_S = 2.0
_PROBE_S = 1.0
_BROKER_CONNECTIONS_MAX = 512
_CLOSE_S = 1.0
_CLOSE_TRIES_MAX = 3


class Manager:
    """One manager process. Made on the loop; `stop` is called with an exit code if it cannot go on."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        stop: Callable[[int], None],
        *,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Make its parts. `tls` says whose certificates are trusted; by default, those that this machine trusts."""
        loop = asyncio.get_running_loop()
        clock = loop.time
        self.settings = settings
        self.database = AsyncMetadata(store)
        self.store = store
        self.appends = Pool(open_max=_BROKER_CONNECTIONS_MAX, idle_max=64, tls=tls)
        # Long polls must not hold up appends.
        self.fetches = Pool(open_max=settings.connections_max, idle_max=64, tls=tls)
        self.control = Pool(tls=tls)
        self.view = View(self._load, clock)
        self.known_tokens = KnownTokens(self.view)
        self.access = ManagerAccess(settings.secret, self.known_tokens, wall_clock_ms) if settings.is_auth_on else None
        self._headers = system_headers(settings.secret)  # what brokers know this manager by
        self.gateway = Gateway(self.appends, self.fetches, self.view, clock, self._headers)
        self.lanes = Lanes(
            self.gateway,
            bytes_max=settings.in_flight_bytes_max,
            seconds=settings.request_s_max,
            clock=clock,
            random_bytes=secrets.token_bytes,
        )
        self.producers = Producers(self.database)
        self.signs = SignsOfLife(self.database)
        self.records = Records(self.gateway, settings.request_s_max, clock)
        self.consuming = Consuming(self.database, self.records, self.gateway)
        self.asking = Asking(self.gateway, settings.request_s_max)
        self._stop = stop
        self._clock = clock
        self._tasks: list[asyncio.Task[None]] = []
        self.is_prepared = False
        self.listeners: set[Callable[[], None]] = set()  # clients that a topic is being told to: how to end that
        self._make_writer(clock)

    def _make_writer(self, clock: Callable[[], float]) -> None:
        self.reports = Reports(clock)
        self.orders = Orders(self.control, self._headers)
        url = self.settings.url or ""
        self.leadership = Leadership(self.database, url, clock=clock, on_taken=self._on_taken)
        self.groups = Groups(self.leadership, self.database, self.view, clock=clock, random_bytes=secrets.token_bytes)
        turn = asyncio.Lock()
        brokers = Brokers(self.database, self.view, turn)
        self.steward = Steward(
            self.leadership,
            self.database,
            self.view,
            self.reports,
            self.orders,
            brokers,
            clock=clock,
            on_behind=self._on_behind,
        )
        topics = Topics(
            self.database,
            self.view,
            self.steward,
            self.gateway,
            turn,
            brokers_min=self.settings.brokers_min,
            random_bytes=secrets.token_bytes,
        )
        self.writer = WriterService(
            self.leadership,
            self.database,
            self.view,
            self.reports,
            self.steward,
            topics,
            self.orders,
            self.gateway,
            brokers,
            tokens=self.known_tokens,
            scheme=self.settings.scheme,
            seconds=self.settings.request_s_max,
            random_bytes=secrets.token_bytes,
            retention_ms=self.settings.retention_ms,
            retention_bytes=self.settings.retention_bytes,
        )

        self.tokens = TokenKeeper(
            self.leadership, self.database, self.view, random_bytes=secrets.token_bytes, now_ms=wall_clock_ms
        )

    @property
    def role(self) -> str:
        """What this manager is now."""
        if self.settings.role == "reader":
            return "reader"
        return "writer" if self.writer.is_writer else "standby"

    @property
    def snapshot(self) -> Snapshot:
        """The topology as it is known here. Raises Refusal while nothing is."""
        if self.view.snapshot is None:
            raise Refusal("unavailable", "The metadata is not known yet; try again.")
        return self.view.snapshot

    def start(self) -> None:
        """Begin; requests are answered meanwhile, as far as possible."""
        self._begin(self._run())

    def _begin(self, job: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(job)
        task.add_done_callback(self._on_end)
        self._tasks.append(task)

    def _on_end(self, task: asyncio.Task[None]) -> None:
        """End the whole process if a part of its work fails: half a manager would serve what is old."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            logger.critical("this manager cannot go on", exc_info=error)
            self._stop(EXIT_FAILED)

    def hang_up(self) -> None:
        """End what would not end by itself."""
        for end in list(self.listeners):
            end()

    async def close(self) -> None:
        """Let go of everything. A task that overhears that it is to end is told again."""
        for _ in range(_CLOSE_TRIES_MAX):
            left = [task for task in self._tasks if not task.done()]
            for task in left:
                task.cancel()
            if left:
                await asyncio.wait(left, timeout=_CLOSE_S)
        for pool in (self.appends, self.fetches, self.control):
            pool.close()
        self.database.close()

    async def _run(self) -> None:
        if not await self._prepare():
            return
        jobs = [self.view.follow, self.producers.follow, self.signs.follow, self._beat]
        if self.settings.role == "writer":
            jobs += [self.leadership.run, self.steward.run, self.groups.run]
        for job in jobs:
            self._begin(job())

    async def _prepare(self) -> bool:
        """Wait for the database and its tables, which the writer makes; tell whether they can be used."""
        said = ""
        while not self.is_prepared:
            try:
                if self.settings.role == "writer":
                    await self.database.call(self.store.migrate)
                self.is_prepared = await self.database.call(self.store.is_migrated)
            except SchemaTooNew as error:
                logger.critical("%s", error)
                self._stop(EXIT_SCHEMA)
                return False
            except MetadataError as error:
                if str(error) != said:
                    logger.warning("the database cannot be used yet: %s", error)
                said = str(error)
            if not self.is_prepared:
                await asyncio.sleep(_RETRY_S)
        return True

    async def _beat(self) -> None:
        """Show the others that this manager lives."""
        while True:
            try:
                await self.database.call(
                    self.store.beat_manager, self.settings.name or "", self.role, self.settings.url or ""
                )
            except MetadataError as error:
                logger.debug("no heartbeat could be written: %s", error)
            await asyncio.sleep(_BEAT_S)

    async def _load(self, version: int) -> Snapshot | None:
        """Load the snapshot if it is not the one of `version`."""
        if await self.database.call(self.store.version) == version:
            return None
        return await self.database.call(self.store.snapshot)

    def _on_taken(self) -> None:
        self.reports.forget_all()
        self.view.refresh_soon()

    def _on_behind(self, sentences: tuple[str, ...]) -> None:
        """Stop: to decide anything from an old database could delete what brokers hold."""
        self.leadership.retire()
        logger.critical(
            "the database is behind the brokers, as if an old backup had been restored. Nothing was ordered, nothing "
            "deleted. Restore a newer one, or rebuild it from the brokers: flotilla admin rebuild-metadata. "
            "What brokers know: %s",
            "; ".join(sentences),
        )
        self._stop(EXIT_BEHIND)

    # -- what the API shows -------------------------------------------------------------------------------

    async def describe_leader(self, topic: Topic, partition: Partition) -> dict[str, Any]:
        """Ask the leader of a partition about it; empty if nobody answers."""
        return await self.gateway.describe(topic, partition, seconds=_DESCRIBE_S)

    def describe_brokers(self) -> list[dict[str, Any]]:
        """The brokers, as people want to see them."""
        snapshot = self.snapshot
        held = replicas_per_broker(snapshot.topics)
        return [
            {
                "broker_id": one.id,
                "broker_host": one.address,
                "rack": one.rack,
                "status": "active" if one.active else "inactive",
                "deactivated": one.cordoned,
                "replicas": held.get(one.id, 0),
            }
            for one in snapshot.brokers
            if not one.removed
        ]

    async def list_managers(self) -> list[ManagerInfo]:
        """The managers. Raises MetadataError."""
        return await self.database.call(self.store.managers, _SILENT_S)

    async def unready_reasons(self) -> list[str]:
        """Say what speaks against sending clients here; nothing if produce and consume work."""
        snapshot = self.view.snapshot
        if snapshot is None:
            return [f"the database was not reached yet: {self.view.trouble or 'it is being opened'}"]
        if not snapshot.writer.epoch:
            return ["there has been no writer yet"]
        needed = max(self.settings.brokers_min, 1)
        if len(snapshot.brokers) < needed:
            return [f"{len(snapshot.brokers)} of {needed} brokers have registered"]
        brokers = [broker for broker in snapshot.brokers if not broker.removed]
        alive = await asyncio.gather(*(self._is_alive(broker) for broker in brokers))
        majority = min(needed, len(brokers)) // 2 + 1
        if sum(alive) < majority:
            return [f"{sum(alive)} of {len(brokers)} brokers answer; {majority} are needed"]
        return []

    async def _is_alive(self, broker: Broker) -> bool:
        try:
            response = await self.control.request(
                broker.url, "GET", "/healthz", headers=self._headers, timeout_s=_PROBE_S
            )
        except (Disconnected, TimeoutError, OSError, ValueError):
            return False
        return response.status == 200  # noqa: PLR2004 - alive


def wall_clock_ms() -> int:
    """Tell the time, as expiries of tokens have it."""
    return time.time_ns() // 1_000_000
