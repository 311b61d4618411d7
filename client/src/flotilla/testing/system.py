"""A whole system in memory, on a loop: what is known, who answers what, where, and what goes wrong on the way."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from flotilla.client.positions import ConsumerRecord
from flotilla.testing.admin import Admin
from flotilla.testing.calls import Calls, refuse
from flotilla.testing.coordinator import Coordinator
from flotilla.testing.data import Data
from flotilla.testing.faults import Faults
from flotilla.testing.groups import Groups
from flotilla.testing.http import Answer, Request
from flotilla.testing.people import People
from flotilla.testing.ports import Port
from flotilla.testing.programs import Programs
from flotilla.testing.world import Broker, World

_SWEEP_S = 0.1


class System:
    """A manager and some brokers: ports, behind all of which is the same. Made and used on a loop."""

    def __init__(self, brokers: int, now_ms: Callable[[], int], random_bytes: Callable[[int], bytes]) -> None:
        self._now_ms = now_ms
        self._random_bytes = random_bytes
        self._loop = asyncio.get_running_loop()
        self._sweeping: asyncio.TimerHandle | None = None
        self.manager = Port()
        self.brokers = [Port() for _ in range(brokers)]
        self._shut: Counter[Port] = Counter()  # how many want nobody to be there
        self.faults = Faults()
        self._begin()

    def clear(self) -> None:
        """Be empty, and have nothing go wrong. Who waits for records is told that there will be none."""
        self.faults.clear()
        for name in list(self.world.topics):
            self.world.delete(name)
        self._begin()

    def _begin(self) -> None:
        now_ms, clock = self._now_ms, self._loop.time
        brokers = [Broker(f"{number:032x}", port.host) for number, port in enumerate(self.brokers, 1)]
        self.world = World(brokers, self._random_bytes)
        self._coordinator = Coordinator(self.world, clock)
        self._calls = Calls(
            Data(self.world, now_ms).table,
            Programs(self.world, now_ms, self._random_bytes).table,
            Groups(self.world, self._coordinator, now_ms).table,
            People(self.world, now_ms, clock).table,
            Admin(self.world, self.manager.url).table,
        )

    def records(self, topic: str) -> Iterator[ConsumerRecord]:
        """Tell what is stored in a topic now. Any thread may open it. Raises KeyError."""
        stored = [partition.records(0) for partition in self.world.topics[topic].partitions]
        return (
            ConsumerRecord(
                topic, index, one.offset, one.timestamp_ms, one.key, one.value, one.headers, one.append_time_ms
            )
            for index, records in enumerate(stored)
            for one in records
        )

    async def start(self) -> None:
        """Begin to answer."""
        await self.recover()
        self._sweep()

    async def recover(self) -> None:
        """Have nothing go wrong, and everybody be there."""
        self.faults.clear()
        for port in (self.manager, *self.brokers):
            await port.open(self._answer)

    async def stop(self) -> None:
        """End, and give all ports up."""
        if self._sweeping is not None:
            self._sweeping.cancel()
        for port in (self.manager, *self.brokers):
            await port.close()

    async def open(self, ports: Iterable[Port]) -> None:
        """Take connections again, unless others want them shut."""
        for port in ports:
            self._shut[port] -= 1
            if not self._shut[port]:
                await port.open(self._answer)

    async def shut(self, ports: Iterable[Port]) -> None:
        """Cut connections, and take no more."""
        for port in ports:
            self._shut[port] += 1
            await port.shut()

    def _sweep(self) -> None:
        """Look after groups, again and again."""
        self._coordinator.sweep()
        self._sweeping = self._loop.call_later(_SWEEP_S, self._sweep)

    async def _answer(self, request: Request) -> Answer | None:
        path = request.path
        refusal = self.faults.refusal(path)
        if refusal is not None:
            return refuse(path, refusal)
        is_lost, delays = self.faults.is_lost(path), self.faults.delays(path)
        answer = await self._calls.answer(request)
        for delay in delays:
            await delay.wait()
        return None if is_lost else answer
