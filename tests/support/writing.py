"""The writer on a real database, with brokers that are made up: for tests of what it decides and orders.

Time stands still until a test moves it. Brokers carry orders out at once, or as a test has told them to fail.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec

from flotilla_manager.metadata import AsyncMetadata, Store, open_store
from flotilla_manager.model import Broker, Snapshot, Topic, TopicState
from flotilla_manager.planning import CloseReplica, OpenReplica, Order, SendBook, Stand
from flotilla_manager.view import View
from flotilla_manager.writer.brokers import Brokers
from flotilla_manager.writer.leadership import Leadership
from flotilla_manager.writer.orders import BrokerSilent, OrderFailed, Orders, StaleWriterRefused
from flotilla_manager.writer.reports import Beat, BeatReplica, Reports
from flotilla_manager.writer.service import WriterService
from flotilla_manager.writer.steward import Steward
from flotilla_manager.writer.topics import Topics, TopicSpec
from support.metadata import an_id

Key = tuple[str, int, int]


class Clock:
    """Seconds, as a test counts them."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def move(self, seconds: float) -> None:
        self.now += seconds


class MadeUpBroker:
    """A broker that does what it is told, unless a test says otherwise."""

    def __init__(self, number: int) -> None:
        self.id = an_id(0xB0 + number)
        self.port = 8080 + number
        self.host = "127.0.0.1"
        self.rack: str | None = None
        self.cluster_id: str | None = None
        self.starts = 1
        self.writer_epoch = 0
        self.held: dict[Key, OpenReplica] = {}
        self.leads: set[Key] = set()
        self.orders: list[Order] = []
        self.is_silent = False
        self.refuses: type[Any] | None = None
        self.before: Callable[[Order], Awaitable[None]] | None = None

    async def take(self, order: Order, epoch: int, cluster_id: str) -> None:
        """Carry an order out. Raises OrderFailed."""
        if self.before is not None:
            await self.before(order)
        if self.is_silent:
            raise BrokerSilent(f"broker {self.id} does not answer")
        if epoch < self.writer_epoch:
            raise StaleWriterRefused(f"broker {self.id} has had orders of epoch {self.writer_epoch}")
        self.writer_epoch = epoch
        if self.refuses is not None and isinstance(order, self.refuses):
            raise OrderFailed(f"broker {self.id} refused {type(order).__name__}")
        self.orders.append(order)
        if isinstance(order, SendBook):
            self.cluster_id = cluster_id
            return
        key = (order.topic_id, order.partition, order.epoch)
        if isinstance(order, OpenReplica):
            self.held[key] = order
        elif isinstance(order, CloseReplica):
            self.held.pop(key, None)
        elif isinstance(order, Stand):
            self.leads.add(key)

    def given(self, kind: type[Any]) -> list[Order]:
        """The orders of one kind that it carried out."""
        return [order for order in self.orders if isinstance(order, kind)]

    def beat(self, **changes: Any) -> Beat:  # noqa: ANN401 - any field of it
        """Say how it is."""
        beat = Beat(
            id=self.id,
            host=self.host,
            port=self.port,
            peer_host=self.host,
            peer_port=self.port + 1000,
            cluster_id=self.cluster_id,
            rack=self.rack,
            starts=self.starts,
            writer_epoch=self.writer_epoch,
            replicas=tuple(self._replica(one, leads=key in self.leads) for key, one in self.held.items()),
        )
        return msgspec.structs.replace(beat, **changes)

    def _replica(self, one: OpenReplica, *, leads: bool) -> BeatReplica:
        return BeatReplica(
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


class MadeUpOrders(Orders):
    """Brings orders to brokers that are made up."""

    def __init__(self, brokers: dict[str, MadeUpBroker]) -> None:
        self._brokers = brokers

    async def give(self, order: Order, broker: Broker, epoch: int, cluster_id: str) -> None:
        if broker.id not in self._brokers:
            raise BrokerSilent(f"broker {broker.id} is not there")
        await self._brokers[broker.id].take(order, epoch, cluster_id)

    async def describe(self, url: str, *, is_ours: bool) -> dict[str, Any]:  # noqa: ARG002 - as the real ones
        for broker in self._brokers.values():
            if url.endswith(f":{broker.port}"):
                found: dict[str, Any] = msgspec.to_builtins(broker.beat())
                return found
        raise OrderFailed(f"no broker answers at {url}")


class NoGateway:
    """Every partition has a leader at once."""

    async def offsets(self, *_: object, **__: object) -> None:
        return None


class Writing:
    """One manager that may be the writer. Several of them share a database and brokers."""

    def __init__(self, store: Store, brokers: dict[str, MadeUpBroker], clock: Clock, url: str, **options: Any) -> None:  # noqa: ANN401
        self.store = store
        self.clock = clock
        self.brokers = brokers
        self.behind: list[tuple[str, ...]] = []
        self.database = AsyncMetadata(store, **options)
        self.view = View(self._load, clock)
        self.reports = Reports(clock)
        self.leadership = Leadership(self.database, url, clock=clock, on_taken=self.reports.forget_all)
        turn = asyncio.Lock()
        self.registered = Brokers(self.database, self.view, turn)
        orders = MadeUpOrders(brokers)
        self.steward = Steward(
            self.leadership,
            self.database,
            self.view,
            self.reports,
            orders,
            self.registered,
            clock=clock,
            on_behind=self.behind.append,
        )
        self.topics = Topics(
            self.database,
            self.view,
            self.steward,
            NoGateway(),  # type: ignore[arg-type]
            turn,
            brokers_min=1,
            random_bytes=store._random_bytes,
        )
        self.service = WriterService(
            self.leadership,
            self.database,
            self.view,
            self.reports,
            self.steward,
            self.topics,
            orders,
            NoGateway(),  # type: ignore[arg-type]
            self.registered,
            seconds=1.0,
            random_bytes=store._random_bytes,
        )

    async def _load(self, version: int) -> Snapshot | None:
        if await self.database.call(self.store.version) == version:
            return None
        return await self.database.call(self.store.snapshot)

    @property
    def epoch(self) -> int:
        assert self.leadership.epoch is not None
        return self.leadership.epoch

    def add(self, count: int) -> list[MadeUpBroker]:
        """Have brokers, which nobody has heard of yet."""
        made = [MadeUpBroker(number) for number in range(len(self.brokers) + 1, len(self.brokers) + 1 + count)]
        self.brokers.update({broker.id: broker for broker in made})
        return made

    async def hear(self, *brokers: MadeUpBroker) -> None:
        """Have brokers send a heartbeat: these, or all that are not silent."""
        for broker in brokers or self.brokers.values():
            if not broker.is_silent:
                await self.service.heartbeat(broker.beat())

    async def tend(self) -> None:
        """Hear of all brokers, and look after them, until nothing is left to do."""
        for _ in range(4):
            await self.hear()
            await self.steward.tend(self.epoch)

    async def pass_time(self, seconds: float) -> None:
        """Let seconds pass, in each of which the others send heartbeats and the writer looks."""
        for _ in range(int(seconds)):
            self.clock.move(1.0)
            await self.leadership.look()
            await self.hear()
            await self.steward.tend(self.epoch)

    async def create(self, name: str = "t", **options: Any) -> Topic:  # noqa: ANN401 - as TopicSpec has them
        return await self.topics.create(self.epoch, TopicSpec(name=name, **options))

    def states(self) -> dict[str, TopicState]:
        """The states of all topics that are not gone, as the database has them."""
        return {one.name: one.state for one in self.store.snapshot().topics if one.state != TopicState.DELETED}


class Bench:
    """A database and brokers, for any number of managers."""

    def __init__(self, folder: Path) -> None:
        self._url = f"sqlite:///{folder / 'metadata.db'}"
        self.clock = Clock()
        self.brokers: dict[str, MadeUpBroker] = {}
        self._managers: list[Writing] = []
        self.store = open_store(self._url)
        self.store.migrate()

    def manager(self, url: str = "http://one:1", **options: Any) -> Writing:  # noqa: ANN401 - of AsyncMetadata
        """Make one more manager, with connections of its own."""
        made = Writing(open_store(self._url), self.brokers, self.clock, url, **options)
        self._managers.append(made)
        return made

    async def writer(self, brokers: int = 3, url: str = "http://one:1") -> Writing:
        """Make a manager that is the writer and has heard of brokers."""
        made = self.manager(url)
        await made.leadership.look()
        made.add(brokers)
        await made.tend()
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
