"""The fake system on an event loop: state, APIs, ports and faults."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from flotilla.client.positions import ConsumerRecord
from flotilla.testing.admin import AdminApi
from flotilla.testing.coordinator import Coordinator
from flotilla.testing.data import DataApi
from flotilla.testing.faults import Faults
from flotilla.testing.groups import GroupsApi
from flotilla.testing.http import Request, Response
from flotilla.testing.ports import Port
from flotilla.testing.routing import Router, refuse
from flotilla.testing.simple import SimpleApi
from flotilla.testing.state import Broker, ClusterState
from flotilla.testing.v1 import V1Api

_SWEEP_S = 0.1


class System:
    """A manager and some brokers: ports that share one state. Create and use it on an event loop."""

    def __init__(self, brokers: int, now_ms: Callable[[], int], random_bytes: Callable[[int], bytes]) -> None:
        self._now_ms = now_ms
        self._random_bytes = random_bytes
        self._loop = asyncio.get_running_loop()
        self._sweep_timer: asyncio.TimerHandle | None = None
        self.manager = Port()
        self.brokers = [Port() for _ in range(brokers)]
        self._shut: Counter[Port] = Counter()  # number of `unreachable` blocks per port
        self.faults = Faults()
        self._reset()

    def clear(self) -> None:
        """Delete everything, and end all faults. Waiting fetches see deleted topics."""
        self.faults.clear()
        for name in list(self.state.topics):
            self.state.delete(name)
        self._reset()

    def _reset(self) -> None:
        now_ms, clock = self._now_ms, self._loop.time
        brokers = [
            Broker(f"{number:032x}", f"broker-{number}", port.host) for number, port in enumerate(self.brokers, 1)
        ]
        self.state = ClusterState(brokers, self._random_bytes)
        self._coordinator = Coordinator(self.state, clock)
        self._router = Router(
            DataApi(self.state, now_ms).routes,
            V1Api(self.state, now_ms, self._random_bytes).routes,
            GroupsApi(self.state, self._coordinator, now_ms).routes,
            SimpleApi(self.state, now_ms, clock).routes,
            AdminApi(self.state, self.manager.url).routes,
        )

    def records(self, topic: str) -> Iterator[ConsumerRecord]:
        """Return the stored records of a topic. Any thread may iterate over them. Raises KeyError."""
        stored = [partition.records(0) for partition in self.state.topics[topic].partitions]
        return (
            ConsumerRecord(
                topic, index, one.offset, one.timestamp_ms, one.key, one.value, one.headers, one.append_time_ms
            )
            for index, records in enumerate(stored)
            for one in records
        )

    async def start(self) -> None:
        """Start to accept connections."""
        await self.recover()
        self._sweep()

    async def recover(self) -> None:
        """End all faults, and open all ports."""
        self.faults.clear()
        for port in (self.manager, *self.brokers):
            await port.open(self._handle)

    async def stop(self) -> None:
        """Stop, and release all ports."""
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        for port in (self.manager, *self.brokers):
            await port.close()

    async def open(self, ports: Iterable[Port]) -> None:
        """Accept connections again, unless another block keeps a port closed."""
        for port in ports:
            self._shut[port] -= 1
            if not self._shut[port]:
                await port.open(self._handle)

    async def shut(self, ports: Iterable[Port]) -> None:
        """Cut connections, and refuse new ones."""
        for port in ports:
            self._shut[port] += 1
            await port.shut()

    def _sweep(self) -> None:
        """Expire members of groups periodically."""
        self._coordinator.sweep()
        self._sweep_timer = self._loop.call_later(_SWEEP_S, self._sweep)

    async def _handle(self, request: Request) -> Response | None:
        path = request.path
        refusal = self.faults.refusal(path)
        if refusal is not None:
            return refuse(path, refusal)
        is_lost, delays = self.faults.is_lost(path), self.faults.delays(path)
        response = await self._router.handle(request)
        for delay in delays:
            await delay.wait()
        return None if is_lost else response
