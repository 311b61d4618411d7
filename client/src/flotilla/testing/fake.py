"""`FakeFlotilla`: what a test holds in its hands. The system itself lives on a loop in a thread of its own."""

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
from flotilla.testing.faults import Rule, delaying, losing, refusing
from flotilla.testing.system import System

T = TypeVar("T")

Servers = Literal["all", "brokers", "managers"]
_BROKERS_MAX = 9


class FakeFlotilla:
    """A system in memory, for tests.

        with FakeFlotilla() as fake:
            with Client(fake.url) as client:
                client.topics.create("orders")

    It is empty when it begins, with `with` or with `start`. Any thread may use it.

    Args:
        brokers: how many it pretends to have, from 1 to 9. Each has a port of its own; behind all of them is the same.
        now_ms: tells the time, for append times: milliseconds since 1970.
    """

    def __init__(self, *, brokers: int = 3, now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        if not 1 <= brokers <= _BROKERS_MAX:
            raise ValueError(f"brokers is {brokers}; it must be from 1 to {_BROKERS_MAX}")
        self._brokers = brokers
        self._now_ms = now_ms
        self._clients: list[Client] = []
        self._running: tuple[Runner, System] | None = None

    # -- beginning and end --------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to answer. Raises RuntimeError if it does so already."""
        if self._running is not None:
            raise RuntimeError("this fake runs already")
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
        """End, with all clients that `client` made. To say it again changes nothing.

        What goes wrong is over first: a producer that waits for an answer gets it, and nobody waits for the producer.
        In a process that was forked it does nothing, for the fake is that of the parent.
        """
        if self._running is None:
            return
        (runner, system), self._running = self._running, None
        clients, self._clients = self._clients, []
        if not runner.is_usable:
            return
        with contextlib.ExitStack() as ending:  # all of it, whatever goes wrong: the last first
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
        """Where it is reached; another one each time it begins."""
        return self._system.manager.url

    def client(self, **options: Any) -> Client:  # noqa: ANN401 - as Client has them
        """Make a client of it, which ends with it if not before; options are those of `Client`."""
        client = Client(self.url, **options)
        self._clients.append(client)
        return client

    def async_client(self, **options: Any) -> AsyncClient:  # noqa: ANN401 - as AsyncClient has them
        """Make a client of it on the running loop, for `async with`; options are those of `AsyncClient`."""
        return AsyncClient(self.url, **options)

    # -- what is there ------------------------------------------------------------------------------------

    def records(self, topic: str) -> list[ConsumerRecord]:
        """Look at what is stored in a topic: partition by partition, each in order. Raises KeyError without one."""
        return list(self._call(lambda system: system.records(topic)))  # opened here, while the fake goes on

    def clear(self) -> None:
        """Forget everything: topics, records, groups, registrations, tokens, and what was to go wrong.

        Who reads or writes meanwhile is told that the topic is gone.
        """
        self._call(lambda system: system.clear())

    # -- what goes wrong ----------------------------------------------------------------------------------

    def refuse(
        self, path: str, code: str, times: int | None = 1, message: str = "a test wants it so", **details: object
    ) -> None:
        """Refuse the next requests whose path begins so, with one of the codes of refusals. Nothing of them is done.

        `times=None` is until `heal`. Raises ValueError if there is no such code.
        """
        self._add(refusing(path, code, times, message, details))

    def lose_answers(self, times: int | None = 1, path: str = "/v1/append") -> None:
        """Carry the next requests out, and hang up instead of an answer; by default, those that store records.

        `times=None` is until `heal`. A client does not know then whether it was done.
        """
        self._add(losing(path, times))

    @contextlib.contextmanager
    def delay(self, seconds: float, path: str = "/") -> Iterator[None]:
        """Answer so much later if the path of a request begins so, but no later than this ends.

        It is carried out at once.
        """
        system, rule = self._system, delaying(path, seconds)
        self._add(rule)
        try:
            yield
        finally:
            if self._is_running(system):
                self._call(lambda system: system.faults.remove(rule))

    @contextlib.contextmanager
    def unreachable(self, servers: Servers = "all") -> Iterator[None]:
        """Cut all connections, and refuse new ones: of all servers, or of brokers or managers alone.

        Several of these may hold at a time; a server is reached again when the last of them ends.
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
        """Have nothing go wrong any more of what `refuse`, `lose_answers` and `delay` were asked for.

        Answers that are late come at once. `unreachable` ends with its block.
        """
        self._call(lambda system: system.faults.clear())

    def _add(self, rule: Rule) -> None:
        self._call(lambda system: system.faults.add(rule))

    # -- on the loop --------------------------------------------------------------------------------------

    @property
    def _system(self) -> System:
        return self._require()[1]

    def _is_running(self, system: System) -> bool:
        """Tell whether a system that was there still is, and in this process."""
        return self._running is not None and self._running[1] is system and self._running[0].is_usable

    def _require(self) -> tuple[Runner, System]:
        if self._running is None:
            raise RuntimeError("this fake does not run: use it as in `with FakeFlotilla() as fake:`, or call start()")
        return self._running

    def _call(self, act: Callable[[System], T]) -> T:
        """Do something where the system lives, and wait for it."""
        system = self._system

        async def call() -> T:
            return act(system)

        return self._run(call())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._require()[0].run(work)
