"""A manager process: creates its components, starts their background tasks, and closes them."""

import asyncio
import logging
import secrets
import ssl
import time
from collections.abc import Callable, Coroutine
from typing import Any

from flotilla.net import Disconnected, Pool
from flotilla.protocol.responses import SimpleBrokerResponse
from flotilla_manager.access import ManagerAccess, TokenCache, system_headers
from flotilla_manager.clients import LivenessTracker, Producers
from flotilla_manager.consumers import Consumers
from flotilla_manager.metadata import AsyncMetadata, Store
from flotilla_manager.metadata.errors import MetadataError, SchemaTooNew
from flotilla_manager.metadata_cache import MetadataCache
from flotilla_manager.model import Broker, ManagerInfo, Partition, Snapshot, Topic, replicas_per_broker
from flotilla_manager.partition_offsets import PartitionOffsets
from flotilla_manager.record_cache import RecordCache
from flotilla_manager.routing.batching import PartitionBatchers
from flotilla_manager.routing.gateway import Gateway
from flotilla_manager.settings import Settings
from flotilla_manager.writer.broker_service import BrokerService
from flotilla_manager.writer.brokers import BrokerRegistry
from flotilla_manager.writer.commands import Commands
from flotilla_manager.writer.election import WriterElection
from flotilla_manager.writer.groups import GroupCoordinator
from flotilla_manager.writer.reconciler import BrokerReconciler
from flotilla_manager.writer.registrations import RegistrationService
from flotilla_manager.writer.reports import Reports
from flotilla_manager.writer.service import WriterServices
from flotilla_manager.writer.start_checks import StartChecks
from flotilla_manager.writer.tokens import TokenService
from flotilla_manager.writer.topic_service import TopicService
from flotilla_manager.writer.topics import Topics

logger = logging.getLogger(__name__)

EXIT_FAILED = 1
EXIT_OUTDATED = 5
EXIT_SCHEMA = 6
_HEARTBEAT_S = 2.0
_INACTIVE_S = 3 * _HEARTBEAT_S
_RETRY_S = 0.2
_DESCRIBE_S = 2.0
_PROBE_S = 1.0
_BROKER_CONNECTIONS_MAX = 512
_CLOSE_S = 1.0
_CLOSE_TRIES_MAX = 3


class Manager:
    """One manager. `stop` is called with an exit code after a fatal error. Needs a running event loop."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        stop: Callable[[int], None],
        *,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Create the components. `tls` verifies certificates of other servers (default: system CAs)."""
        loop = asyncio.get_running_loop()
        clock = loop.time
        self.settings = settings
        self.database = AsyncMetadata(store)
        self.store = store
        self.appends = Pool(open_max=_BROKER_CONNECTIONS_MAX, idle_max=64, tls=tls)
        # Long polls must not delay appends.
        self.fetches = Pool(open_max=settings.connections_max, idle_max=64, tls=tls)
        self.control = Pool(tls=tls)
        self.metadata = MetadataCache(self._load, clock)
        self.token_cache = TokenCache(self.metadata)
        self.access = ManagerAccess(settings.secret, self.token_cache, wall_clock_ms) if settings.is_auth_on else None
        self._headers = system_headers(settings.secret)  # authenticate this manager to brokers
        self.gateway = Gateway(self.appends, self.fetches, self.metadata, clock, self._headers)
        self.batchers = PartitionBatchers(
            self.gateway,
            bytes_max=settings.in_flight_bytes_max,
            timeout_s=settings.request_s_max,
            clock=clock,
            random_bytes=secrets.token_bytes,
        )
        self.producers = Producers(self.database)
        self.liveness = LivenessTracker(self.database)
        self.record_cache = RecordCache(self.gateway, settings.request_s_max, clock)
        self.consumers = Consumers(self.database, self.record_cache, self.gateway)
        self.partition_offsets = PartitionOffsets(self.gateway, settings.request_s_max)
        self._stop = stop
        self._clock = clock
        self._tasks: list[asyncio.Task[None]] = []
        self.is_prepared = False
        self.tail_streams: set[Callable[[], None]] = set()  # callbacks that end active tail streams
        self._make_writer(clock)

    def _make_writer(self, clock: Callable[[], float]) -> None:
        database, metadata, settings = self.database, self.metadata, self.settings
        self.reports = Reports(clock)
        starts = StartChecks(clock)
        self.commands = Commands(self.control, self._headers)
        self.election = WriterElection(database, settings.url or "", clock=clock, on_taken=self._on_taken)
        lock = asyncio.Lock()  # of placement, and of changes of brokers
        registry = BrokerRegistry(database, metadata, lock)
        self.reconciler = BrokerReconciler(
            self.election,
            database,
            metadata,
            self.reports,
            starts,
            self.commands,
            registry,
            clock=clock,
            on_outdated=self._on_outdated,
        )
        topics = TopicService(
            self.election,
            Topics(
                database,
                metadata,
                self.reconciler,
                self.gateway,
                lock,
                brokers_min=settings.brokers_min,
                random_bytes=secrets.token_bytes,
            ),
            {"retention_ms": settings.retention_ms, "retention_bytes": settings.retention_bytes},
        )
        self.writer = WriterServices(
            election=self.election,
            topics=topics,
            registrations=RegistrationService(
                self.election,
                database,
                metadata,
                topics,
                self.gateway,
                timeout_s=settings.request_s_max,
                random_bytes=secrets.token_bytes,
            ),
            brokers=BrokerService(
                self.election,
                database,
                metadata,
                registry,
                self.reports,
                starts,
                self.reconciler,
                self.commands,
                tokens=self.token_cache,
                scheme=settings.scheme,
            ),
            groups=GroupCoordinator(self.election, database, metadata, clock=clock, random_bytes=secrets.token_bytes),
            tokens=TokenService(
                self.election, database, metadata, random_bytes=secrets.token_bytes, now_ms=wall_clock_ms
            ),
        )

    @property
    def role(self) -> str:
        """Current role: writer, standby or reader."""
        if self.settings.role == "reader":
            return "reader"
        return "writer" if self.writer.is_writer else "standby"

    @property
    def snapshot(self) -> Snapshot:
        """Cached topology. Raises Refusal until it is loaded."""
        return self.metadata.require_snapshot()

    def start(self) -> None:
        """Start background tasks. Requests are served meanwhile."""
        self._begin(self._run())

    def _begin(self, job: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(job)
        task.add_done_callback(self._on_end)
        self._tasks.append(task)

    def _on_end(self, task: asyncio.Task[None]) -> None:
        """Stop the process if a background task fails, so that it does not serve outdated metadata."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            logger.critical("background task failed, stopping", exc_info=error)
            self._stop(EXIT_FAILED)

    def end_tail_streams(self) -> None:
        """End tail streams, which do not end by themselves."""
        for end in list(self.tail_streams):
            end()

    async def close(self) -> None:
        """Cancel tasks and close connections. A task that swallows its cancellation is cancelled again."""
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
        jobs = [self.metadata.follow, self.producers.follow, self.liveness.follow, self._send_heartbeats]
        if self.settings.role == "writer":
            jobs += [self.election.run, self.reconciler.run, self.writer.groups.run]
        for job in jobs:
            self._begin(job())

    async def _prepare(self) -> bool:
        """Wait for the database and its schema, which the writer migrates. Return whether it can be used."""
        last_error = ""
        while not self.is_prepared:
            try:
                if self.settings.role == "writer":
                    await self.database.call(self.store.migrate)
                self.is_prepared = await self.database.call(self.store.is_migrated)
            except SchemaTooNew as error:
                logger.critical("database schema is too new, stopping error=%r", str(error))
                self._stop(EXIT_SCHEMA)
                return False
            except MetadataError as error:
                if str(error) != last_error:
                    logger.warning("waiting for the database error=%r", str(error))
                last_error = str(error)
            if not self.is_prepared:
                await asyncio.sleep(_RETRY_S)
        return True

    async def _send_heartbeats(self) -> None:
        """Write heartbeats of this manager to the database."""
        while True:
            try:
                await self.database.call(
                    self.store.manager_heartbeat, self.settings.name or "", self.role, self.settings.url or ""
                )
            except MetadataError as error:
                logger.debug("manager heartbeat failed error=%r", str(error))
            await asyncio.sleep(_HEARTBEAT_S)

    async def _load(self, version: int) -> Snapshot | None:
        """Load the snapshot; None if it still has `version`."""
        if await self.database.call(self.store.version) == version:
            return None
        return await self.database.call(self.store.snapshot)

    def _on_taken(self) -> None:
        self.reports.forget_all()
        self.metadata.refresh_soon()

    def _on_outdated(self, sentences: tuple[str, ...]) -> None:
        """Stop: with an outdated database, the writer could delete valid replicas."""
        self.election.retire()
        logger.critical(
            "the database is behind the brokers, stopping: was an old backup restored? Nothing was changed. Restore a "
            "newer backup, or run flotilla admin rebuild-metadata. Differences: %s",
            "; ".join(sentences),
        )
        self._stop(EXIT_OUTDATED)

    # -- responses of the API -------------------------------------------------------------------------------

    async def describe_leader(self, topic: Topic, partition: Partition) -> dict[str, Any]:
        """Describe a partition, as its leader reports it; empty if no broker responds."""
        return await self.gateway.describe(topic, partition, timeout_s=_DESCRIBE_S)

    def describe_brokers(self) -> list[dict[str, Any]]:
        """Describe the brokers, for the simple API."""
        snapshot = self.snapshot
        held = replicas_per_broker(snapshot.topics)
        return [
            SimpleBrokerResponse(
                broker_id=one.id,
                broker_host=one.address,
                broker_name=one.name,
                rack=one.rack,
                status="active" if one.active else "inactive",
                deactivated=one.cordoned,
                replicas=held.get(one.id, 0),
            ).to_dict()
            for one in snapshot.brokers
            if not one.removed
        ]

    async def list_managers(self) -> list[ManagerInfo]:
        """List managers. Raises MetadataError."""
        return await self.database.call(self.store.list_managers, _INACTIVE_S)

    async def unready_reasons(self) -> list[str]:
        """Return the reasons why produce or consume does not work; empty if ready."""
        snapshot = self.metadata.snapshot
        if snapshot is None:
            return [f"the metadata is not loaded: {self.metadata.last_error or 'connecting to the database'}"]
        if not snapshot.writer.epoch:
            return ["no writer has started yet"]
        needed = max(self.settings.brokers_min, 1)
        if len(snapshot.brokers) < needed:
            return [f"{len(snapshot.brokers)} of {needed} brokers registered"]
        brokers = [broker for broker in snapshot.brokers if not broker.removed]
        alive = await asyncio.gather(*(self._is_alive(broker) for broker in brokers))
        majority = min(needed, len(brokers)) // 2 + 1
        if sum(alive) < majority:
            return [f"{sum(alive)} of {len(brokers)} brokers respond; {majority} required"]
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
    """Return the time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000
