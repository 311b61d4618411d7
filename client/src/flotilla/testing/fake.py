"""`FakeFlotilla`, the API for tests. The fake system runs on an event loop in a thread of its own."""

import contextlib
import secrets
import time
from collections.abc import Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

from flotilla.client.aio import AsyncClient
from flotilla.client.blocking import Client
from flotilla.client.positions import ConsumerRecord
from flotilla.client.runner import Runner
from flotilla.testing.faults import FaultRule, delay_rule, drop_response_rule, refuse_rule
from flotilla.testing.system import System

T = TypeVar("T")

Servers = Literal["all", "brokers", "managers"]
_BROKERS_MAX = 9


class FakeFlotilla:
    """An in-memory Flotilla system for tests.

        with FakeFlotilla() as fake:
            with Client(fake.url) as client:
                client.topics.create("orders")

    It is empty after `start` or `with`. It is thread-safe.

    Args:
        brokers: number of simulated brokers, from 1 to 9. Each has a port of its own; all of them share one state.
        now_ms: returns the current time for append times, in milliseconds since 1970.
    """

    def __init__(self, *, brokers: int = 3, now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        if not 1 <= brokers <= _BROKERS_MAX:
            raise ValueError(f"brokers is {brokers}; it must be from 1 to {_BROKERS_MAX}")
        self._brokers = brokers
        self._now_ms = now_ms
        self._clients: list[Client] = []
        self._running: tuple[Runner, System] | None = None

    # -- start and stop -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the fake. Raises RuntimeError if it is already running."""
        if self._running is not None:
            raise RuntimeError("this fake is already running")
        runner = Runner("fake flotilla")
        try:
            self._running = runner, runner.run(self._make())
        except BaseException:
            runner.close()
            raise

    async def _make(self) -> System:
        system = System(self._brokers, self._now_ms, secrets.token_bytes)
        await system.start()
        return system

    def close(self) -> None:
        """Stop the fake, and close all clients from `client`. Idempotent.

        Faults end first: a producer that waits for a response gets it, so closing it does not take long.
        In a forked process this does nothing: the fake belongs to the parent.
        """
        if self._running is None:
            return
        (runner, system), self._running = self._running, None
        clients, self._clients = self._clients, []
        if not runner.is_usable:
            return
        with contextlib.ExitStack() as ending:  # all of it, also after an error; the last callback runs first
            ending.callback(runner.close)
            ending.callback(lambda: runner.run(system.stop()))
            for client in clients:
                ending.callback(client.close)
            runner.run(system.recover())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- clients ------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """URL of the fake; it changes with each start."""
        return self._system.manager.url

    def client(self, **options: Any) -> Client:  # noqa: ANN401 - as Client has them
        """Create a client, which is closed together with the fake. The options are those of `Client`."""
        client = Client(self.url, **options)
        self._clients.append(client)
        return client

    def async_client(self, **options: Any) -> AsyncClient:  # noqa: ANN401 - as AsyncClient has them
        """Create a client on the running event loop, for `async with`. The options are those of `AsyncClient`."""
        return AsyncClient(self.url, **options)

    # -- stored records -----------------------------------------------------------------------------------

    def records(self, topic: str) -> list[ConsumerRecord]:
        """Return the stored records, partition by partition. Raises KeyError if the topic does not exist."""
        return list(
            self._call(lambda system: system.records(topic))
        )  # decoded here, so that the fake continues to respond

    def clear(self) -> None:
        """Delete all topics, records, groups, registrations, tokens and faults.

        Running producers and consumers see deleted topics.
        """
        self._call(lambda system: system.clear())

    # -- fault injection ----------------------------------------------------------------------------------

    def refuse(
        self, path: str, code: str, times: int | None = 1, message: str = "refused by the test", **details: object
    ) -> None:
        """Reject the next requests whose path starts with `path`, with an error code. They have no effect.

        `times=None` means until `heal`. Raises ValueError if the code is unknown.
        """
        self._add(refuse_rule(path, code, times, message, details))

    def lose_answers(self, times: int | None = 1, path: str = "/v1/append") -> None:
        """Process the next requests, and cut the connection instead of responding; by default, appends.

        `times=None` means until `heal`. The client cannot know whether the request took effect.
        """
        self._add(drop_response_rule(path, times))

    @contextlib.contextmanager
    def delay(self, seconds: float, path: str = "/") -> Iterator[None]:
        """Delay responses to requests whose path starts with `path`, at most until the block ends.

        The requests are processed at once.
        """
        system, rule = self._system, delay_rule(path, seconds)
        self._add(rule)
        try:
            yield
        finally:
            if self._is_running(system):
                self._call(lambda system: system.faults.remove(rule))

    @contextlib.contextmanager
    def unreachable(self, servers: Servers = "all") -> Iterator[None]:
        """Cut connections and refuse new ones: of all servers, or only of brokers or managers.

        If several blocks are nested, a server is reachable again when the last one ends.
        """
        system = self._system
        ports = {"all": [system.manager, *system.brokers], "brokers": system.brokers, "managers": [system.manager]}
        if servers not in ports:
            raise ValueError(f"servers is {servers!r}; it must be {', '.join(ports)}")
        self._run(system.shut(ports[servers]))
        try:
            yield
        finally:
            if self._is_running(system):
                self._run(system.open(ports[servers]))

    def heal(self) -> None:
        """End the faults of `refuse`, `lose_answers` and `delay`.

        Delayed responses are sent at once. `unreachable` ends with its block.
        """
        self._call(lambda system: system.faults.clear())

    def _add(self, rule: FaultRule) -> None:
        self._call(lambda system: system.faults.add(rule))

    # -- calls on the event loop --------------------------------------------------------------------------

    @property
    def _system(self) -> System:
        return self._require()[1]

    def _is_running(self, system: System) -> bool:
        """Return whether this system still runs, and in this process."""
        return self._running is not None and self._running[1] is system and self._running[0].is_usable

    def _require(self) -> tuple[Runner, System]:
        if self._running is None:
            raise RuntimeError("this fake is not running: use `with FakeFlotilla() as fake:`, or call start()")
        return self._running

    def _call(self, act: Callable[[System], T]) -> T:
        """Call a function on the event loop of the fake, and wait for its result."""
        system = self._system

        async def call() -> T:
            return act(system)

        return self._run(call())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._require()[0].run(work)
