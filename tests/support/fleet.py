"""A whole cluster of real processes: brokers, a writer, readers that share a port, a database."""

import contextlib
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import httpx

from support.access import system_headers
from support.certificates import Files
from support.cluster import BrokerProcess, free_port, wait_until
from support.process import ServerProcess


class ManagerProcess(ServerProcess):
    """One manager. It keeps its port across restarts."""

    def __init__(
        self,
        folder: Path,
        name: str,
        role: str,
        database: str,
        port: int | None = None,
        flags: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        tls: Files | None = None,
    ) -> None:
        super().__init__(folder / f"{name}.txt", {**(environment or {}), "FLOTILLA_DATABASE": database})
        self.name = name
        self.role = role
        self.port = port or free_port()
        base = f"{'http' if tls is None else 'https'}://127.0.0.1"
        self.url = f"{base}:{self.port}"
        own = free_port()
        self.own_url = self.url if port is None else f"{base}:{own}"  # the URL of this process only
        shared = ["--reuse-port", "true", "--own-port", str(own)]
        self._flags = [*flags, *(shared if port is not None else ()), *(() if tls is None else tls.flags)]

    def command(self) -> Sequence[str]:
        """Command line."""
        command = [sys.executable, "-m", "flotilla_manager", "--role", self.role, "--name", self.name]
        return [*command, "--port", str(self.port), *self._flags]


class Fleet:
    """Brokers, a writer, and readers behind one port."""

    def __init__(
        self,
        folder: Path,
        *,
        brokers: int = 3,
        readers: int = 2,
        database: str | None = None,
        manager_flags: Sequence[str] = (),
        broker_flags: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        tls: Files | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.tls = tls
        self.verify = True if tls is None else tls.client
        self.database = database or f"sqlite:///{folder / 'metadata.db'}"
        self._flags = [*manager_flags, "--brokers-min", str(brokers)]
        self._environment = environment
        self.writer = self.manager("writer", "writer")
        self.port = free_port()
        self.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{self.port}"
        self.readers = [self.manager(f"reader-{at}", "reader", self.port) for at in range(readers)]
        flags = ["--managers", f"{self.writer.url},{self.url}", *broker_flags]
        self.brokers = [BrokerProcess(folder / f"broker-{at}", flags, environment, tls) for at in range(brokers)]
        self.others: list[ManagerProcess] = []
        self.client = httpx.Client(
            base_url=self.url, timeout=40, verify=self.verify, headers=system_headers(environment or {})
        )

    def manager(self, name: str, role: str, port: int | None = None) -> ManagerProcess:
        """Make another manager of this cluster."""
        return ManagerProcess(self.folder, name, role, self.database, port, self._flags, self._environment, self.tls)

    def add(self, name: str, role: str) -> ManagerProcess:
        """Start another manager on its own port."""
        other = self.manager(name, role)
        self.others.append(other)
        other.start()
        return other

    @property
    def managers(self) -> list[ManagerProcess]:
        return [self.writer, *self.readers, *self.others]

    @property
    def processes(self) -> list[ServerProcess]:
        return [*self.managers, *self.brokers]

    def __enter__(self) -> Self:
        try:
            self.start()
            self.wait_ready()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start all processes that are not running."""
        for process in self.processes:
            if not process.is_running:
                process.start()

    def wait_ready(self, timeout_s: float = 60.0) -> None:
        """Wait until produce and consume work."""

        def ready() -> bool:
            for manager in self.managers:
                assert manager.is_running, f"{manager.name} ended with {manager.exit_code}: {manager.log()[-2000:]}"
            with contextlib.suppress(httpx.HTTPError):
                return httpx.get(f"{self.url}/readyz", timeout=5, verify=self.verify).status_code == 200
            return False

        wait_until("the system to be ready", ready, timeout_s)
        for broker in self.brokers:
            if broker.is_running:
                broker.wait_alive()

    def kill_all(self) -> None:
        """Kill every process at once, with SIGKILL."""
        for process in self.processes:
            if process.is_running:
                process.signal(signal.SIGKILL)
        for process in self.processes:
            process.wait()

    def close(self) -> None:
        """Stop everything."""
        self.client.close()
        for process in self.processes:
            process.close()

    # -- the simple API --------------------------------------------------------------------------------------

    def post(self, path: str, **params: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
        """Send POST; fail unless it succeeds."""
        return succeeded(self.client.post(path, json=params))

    def get(self, path: str, **params: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
        """Send GET; fail unless it succeeds."""
        return succeeded(self.client.get(path, params=params))

    def create(self, name: str, partitions: int = 2, **options: Any) -> None:  # noqa: ANN401 - any JSON
        """Create a topic."""
        self.post("/topics", name=name, number_of_partitions=partitions, **options)

    def producer(self, topic: str) -> str:
        """Register a producer."""
        return str(self.post("/producer/register", topic=topic)["producer_id"])

    def consumer(self, topic: str, **options: Any) -> str:  # noqa: ANN401 - any JSON
        """Register a consumer."""
        return str(self.post("/consumer/register", topic=topic, **options)["consumer_id"])


def succeeded(response: httpx.Response) -> dict[str, Any]:
    """Return the body of a successful response."""
    found: dict[str, Any] = response.json()
    assert response.status_code == 200, f"{response.status_code}: {found}"
    assert found["status"] == "success", found
    return found


def refused(response: httpx.Response, message: str, status: int = 400) -> None:
    """Check an error response, with its exact message."""
    assert (response.status_code, response.json()) == (status, {"status": "failure", "message": message})
