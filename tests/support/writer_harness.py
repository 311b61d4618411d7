"""The manager's writer on a real database with fake brokers, for tests of its decisions and commands.

The clock stands still until a test moves it. Brokers execute commands at once, or fail as a test configures them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec

from flotilla_manager.access import TokenCache
from flotilla_manager.metadata import AsyncMetadata, Store, open_store
from flotilla_manager.metadata_cache import MetadataCache
from flotilla_manager.model import Broker, Snapshot, Topic, TopicState
from flotilla_manager.planning import Campaign, Command, DeleteReplica, PutReplica, UpdatePeers
from flotilla_manager.writer.broker_service import BrokerService
from flotilla_manager.writer.brokers import BrokerRegistry
from flotilla_manager.writer.commands import BrokerUnreachable, CommandFailed, Commands, StaleWriterRejected
from flotilla_manager.writer.election import WriterElection
from flotilla_manager.writer.groups import GroupCoordinator
from flotilla_manager.writer.reconciler import BrokerReconciler
from flotilla_manager.writer.registrations import RegistrationService
from flotilla_manager.writer.reports import Heartbeat, ReplicaReport, Reports
from flotilla_manager.writer.service import WriterServices
from flotilla_manager.writer.start_checks import StartChecks
from flotilla_manager.writer.tokens import TokenService
from flotilla_manager.writer.topic_service import TopicService
from flotilla_manager.writer.topics import Topics, TopicSpec
from support.metadata import an_id

Key = tuple[str, int, int]


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def move(self, seconds: float) -> None:
        self.now += seconds


class FakeBroker:
    """A broker that executes all commands, unless a test configures a failure."""

    def __init__(self, number: int) -> None:
        self.id = an_id(0xB0 + number)
        self.port = 8080 + number
        self.host = "127.0.0.1"
        self.rack: str | None = None
        self.cluster_id: str | None = None
        self.starts = 1
        self.writer_epoch = 0
        self.manager_heartbeat_s = 1.0
        self.held: dict[Key, PutReplica] = {}
        self.leads: set[Key] = set()
        self.commands: list[Command] = []
        self.is_silent = False
        self.refuses: type[Any] | None = None
        self.before: Callable[[Command], Awaitable[None]] | None = None

    async def take(self, command: Command, epoch: int, cluster_id: str) -> None:
        """Execute a command. Raises CommandFailed, BrokerUnreachable, StaleWriterRejected."""
        if self.before is not None:
            await self.before(command)
        if self.is_silent:
            raise BrokerUnreachable(f"broker {self.id} does not answer")
        if epoch < self.writer_epoch:
            raise StaleWriterRejected(f"broker {self.id} has seen commands of epoch {self.writer_epoch}")
        self.writer_epoch = epoch
        if self.refuses is not None and isinstance(command, self.refuses):
            raise CommandFailed(f"broker {self.id} refused {type(command).__name__}")
        self.commands.append(command)
        if isinstance(command, UpdatePeers):
            self.cluster_id = cluster_id
            return
        key = (command.topic_id, command.partition, command.epoch)
        if isinstance(command, PutReplica):
            self.held[key] = command
        elif isinstance(command, DeleteReplica):
            self.held.pop(key, None)
        elif isinstance(command, Campaign):
            self.leads.add(key)

    def given(self, kind: type[Any]) -> list[Command]:
        """The executed commands of one kind."""
        return [command for command in self.commands if isinstance(command, kind)]

    def heartbeat(self, **changes: Any) -> Heartbeat:  # noqa: ANN401 - any field of it
        """Build the heartbeat of its current state."""
        heartbeat = Heartbeat(
            id=self.id,
            host=self.host,
            port=self.port,
            peer_host=self.host,
            peer_port=self.port + 1000,
            cluster_id=self.cluster_id,
            rack=self.rack,
            starts=self.starts,
            writer_epoch=self.writer_epoch,
            manager_heartbeat_s=self.manager_heartbeat_s,
            replicas=tuple(self._replica(one, leads=key in self.leads) for key, one in self.held.items()),
        )
        return msgspec.structs.replace(heartbeat, **changes)

    def _replica(self, one: PutReplica, *, leads: bool) -> ReplicaReport:
        return ReplicaReport(
            topic=one.topic,
            topic_id=one.topic_id,
            partition=one.partition,
            epoch=one.epoch,
            members=one.members,
            retention_ms=one.retention_ms,
            retention_bytes=one.retention_bytes,
            batch_bytes_max=one.batch_bytes_max,
            leader=one.members[0],
            leads=leads,
        )


class FakeCommands(Commands):
    """Delivers commands to fake brokers."""

    def __init__(self, brokers: dict[str, FakeBroker]) -> None:
        self._brokers = brokers

    async def send(self, command: Command, broker: Broker, epoch: int, cluster_id: str) -> None:
        if broker.id not in self._brokers:
            raise BrokerUnreachable(f"broker {broker.id} does not exist")
        await self._brokers[broker.id].take(command, epoch, cluster_id)

    async def describe(self, url: str, *, is_ours: bool) -> dict[str, Any]:  # noqa: ARG002 - as in Commands
        for broker in self._brokers.values():
            if url.endswith(f":{broker.port}") and not broker.is_silent:
                found: dict[str, Any] = msgspec.to_builtins(broker.heartbeat())
                return found
        raise CommandFailed(f"no broker answers at {url}")


class NoGateway:
    """Every partition has a leader at once."""

    async def offsets(self, *_: object, **__: object) -> None:
        return None


class WriterHarness:
    """A manager that may be the writer. Several of them share a database and brokers."""

    def __init__(self, store: Store, brokers: dict[str, FakeBroker], clock: Clock, url: str, **options: Any) -> None:  # noqa: ANN401
        self.store = store
        self.clock = clock
        self.brokers = brokers
        self.outdated: list[tuple[str, ...]] = []
        self.database = AsyncMetadata(store, **options)
        self.metadata = MetadataCache(self._load, clock)
        self.reports = Reports(clock)
        self.starts = StartChecks(clock)
        self.election = WriterElection(self.database, url, clock=clock, on_taken=self.reports.forget_all)
        turn = asyncio.Lock()
        self.registered = BrokerRegistry(self.database, self.metadata, turn)
        commands = FakeCommands(brokers)
        self.reconciler = BrokerReconciler(
            self.election,
            self.database,
            self.metadata,
            self.reports,
            self.starts,
            commands,
            self.registered,
            clock=clock,
            on_outdated=self.outdated.append,
        )
        self.topics = Topics(
            self.database,
            self.metadata,
            self.reconciler,
            NoGateway(),  # type: ignore[arg-type]
            turn,
            brokers_min=1,
            random_bytes=store._random_bytes,
        )
        topics = TopicService(self.election, self.topics, {})
        self.service = WriterServices(
            election=self.election,
            topics=topics,
            registrations=RegistrationService(
                self.election,
                self.database,
                self.metadata,
                topics,
                NoGateway(),  # type: ignore[arg-type]
                timeout_s=1.0,
                random_bytes=store._random_bytes,
            ),
            brokers=BrokerService(
                self.election,
                self.database,
                self.metadata,
                self.registered,
                self.reports,
                self.starts,
                self.reconciler,
                commands,
                tokens=TokenCache(self.metadata),
            ),
            groups=GroupCoordinator(
                self.election, self.database, self.metadata, clock=clock, random_bytes=store._random_bytes
            ),
            tokens=TokenService(
                self.election, self.database, self.metadata, random_bytes=store._random_bytes, now_ms=lambda: 0
            ),
        )

    async def _load(self, version: int) -> Snapshot | None:
        if await self.database.call(self.store.version) == version:
            return None
        return await self.database.call(self.store.snapshot)

    @property
    def epoch(self) -> int:
        assert self.election.epoch is not None
        return self.election.epoch

    def add(self, count: int) -> list[FakeBroker]:
        """Add brokers that have not sent a heartbeat yet."""
        made = [FakeBroker(number) for number in range(len(self.brokers) + 1, len(self.brokers) + 1 + count)]
        self.brokers.update({broker.id: broker for broker in made})
        return made

    async def receive_heartbeats(self, *brokers: FakeBroker) -> None:
        """Send heartbeats of these brokers, or of all that are not silent."""
        for broker in brokers or self.brokers.values():
            if not broker.is_silent:
                await self.service.brokers.heartbeat(broker.heartbeat())

    async def reconcile(self) -> None:
        """Send heartbeats and reconcile, often enough for all pending commands."""
        for _ in range(4):
            await self.receive_heartbeats()
            await self.reconciler.reconcile(self.epoch)

    async def pass_time(self, seconds: float) -> None:
        """Move the clock second by second, with heartbeats and a reconciliation in each."""
        for _ in range(int(seconds)):
            self.clock.move(1.0)
            await self.election.step()
            await self.receive_heartbeats()
            await self.reconciler.reconcile(self.epoch)

    async def create(self, name: str = "t", **options: Any) -> Topic:  # noqa: ANN401 - as TopicSpec has them
        return await self.topics.create(self.epoch, TopicSpec(name=name, **options))

    def states(self) -> dict[str, TopicState]:
        """The states of all topics in the database that are not deleted."""
        return {one.name: one.state for one in self.store.snapshot().topics if one.state != TopicState.DELETED}


class Bench:
    """A database and brokers, for any number of managers."""

    def __init__(self, folder: Path) -> None:
        self._url = f"sqlite:///{folder / 'metadata.db'}"
        self.clock = Clock()
        self.brokers: dict[str, FakeBroker] = {}
        self._managers: list[WriterHarness] = []
        self.store = open_store(self._url)
        self.store.migrate()

    def manager(self, url: str = "http://one:1", **options: Any) -> WriterHarness:  # noqa: ANN401 - of AsyncMetadata
        """Create a manager with its own database connections."""
        made = WriterHarness(open_store(self._url), self.brokers, self.clock, url, **options)
        self._managers.append(made)
        return made

    async def writer(self, brokers: int = 3, url: str = "http://one:1") -> WriterHarness:
        """Create a manager that is the writer, with registered brokers."""
        made = self.manager(url)
        await made.election.step()
        made.add(brokers)
        await made.reconcile()
        return made

    def close(self) -> None:
        for manager in self._managers:
            manager.database.close()
        self.store.close()


def on_bench(folder: Path, work: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
    """Run a test on a bench."""

    async def run() -> None:
        bench = Bench(folder)
        try:
            await asyncio.wait_for(work(bench), 30)
        finally:
            bench.close()

    asyncio.run(run())
