"""Brokers as real processes on this machine, for tests and benchmarks."""

import contextlib
import fcntl
import functools
import os
import random
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

import httpx

from support.access import system_headers
from support.certificates import Files
from support.process import ServerProcess

T = TypeVar("T")

_NO_PICKLE = Path(__file__).resolve().parent / "nopickle"  # brokers must never unpickle
_WAIT_S = 30.0
_POLL_S = 0.02
_PORTS = range(10_000, 20_000)
_ports = iter(random.sample(_PORTS, len(_PORTS)))  # each port is used once here, and in no other process


def wait_until(what: str, ask: Callable[[], T], timeout_s: float = _WAIT_S) -> T:
    """Wait until `ask` returns a true value; return it."""
    deadline = time.monotonic() + timeout_s
    while True:
        found = ask()
        if found:
            return found
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout_s} s in vain for: {what}")
        time.sleep(_POLL_S)


def free_port() -> int:
    """Find a free port below the range of outgoing connections."""
    for port in _ports:
        with socket.socket() as sock, contextlib.suppress(OSError):
            sock.bind(("127.0.0.1", port))
            fcntl.lockf(_claims(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
            return port
    raise AssertionError("no port is free")


@functools.cache
def _claims() -> int:
    """Open the lock file for ports: a locked byte is a port in use. Locks end with their process."""
    path = Path(tempfile.gettempdir(), f"flotilla-test-ports-{os.geteuid()}")
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


class BrokerProcess(ServerProcess):
    """One broker. It keeps its ports and its folder across restarts."""

    def __init__(
        self,
        folder: Path,
        flags: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        tls: Files | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        super().__init__(folder / "stderr.txt", {"PYTHONPATH": str(_NO_PICKLE), **(environment or {})})
        self.folder = folder
        self.data = folder / "data"
        self.port, self.peer_port = free_port(), free_port()
        self.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{self.port}"
        self.id = ""
        self._flags = [*flags, *(() if tls is None else tls.flags)]
        self._client = httpx.Client(
            base_url=self.url,
            timeout=10,
            verify=True if tls is None else tls.client,
            headers=system_headers(environment or {}),
        )

    def command(self) -> Sequence[str]:
        """Command line."""
        command = [sys.executable, "-m", "flotilla_broker", "--data", str(self.data)]
        return [*command, "--port", str(self.port), "--peer-port", str(self.peer_port), *self._flags]

    def set_flags(self, flags: Sequence[str]) -> None:
        """Change the flags of the next start."""
        self._flags = list(flags)

    def wait_alive(self) -> None:
        """Wait until it responds, and read its id."""

        def ask() -> str:
            if self.exit_code is not None:
                raise AssertionError(f"the broker ended with {self.exit_code}: {self.log()[-2000:]}")
            with contextlib.suppress(httpx.HTTPError):
                return str(self.get("/v1/broker")["id"])
            return ""

        self.id = wait_until(f"a broker on {self.url}", ask)

    def get(self, path: str) -> dict[str, Any]:
        """Send GET; return JSON."""
        return self._json(self._client.get(path))

    def put(self, path: str, body: object) -> dict[str, Any]:
        """Send PUT; return JSON."""
        return self._json(self._client.put(path, json=body))

    def post(self, path: str, body: object) -> dict[str, Any]:
        """Send POST; return JSON."""
        return self._json(self._client.post(path, json=body))

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:  # noqa: ANN401 - as httpx has it
        """Send any request."""
        return self._client.request(method, path, **options)

    @staticmethod
    def _json(response: httpx.Response) -> dict[str, Any]:
        response.raise_for_status()
        found: dict[str, Any] = response.json()
        return found

    def close(self) -> None:
        """Kill the process and close the client."""
        self._client.close()
        super().close()


class Cluster:
    """Brokers that know each other. `address` can redirect the connection between two of them."""

    def __init__(
        self,
        folder: Path,
        count: int = 3,
        flags: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        address: Callable[[BrokerProcess, BrokerProcess], int] = lambda _, to: to.peer_port,
    ) -> None:
        self.brokers = [BrokerProcess(folder / str(at), flags, environment) for at in range(count)]
        self.writer_epoch = 1
        self._address = address

    def __enter__(self) -> Self:
        try:
            for broker in self.brokers:
                broker.start()
            for broker in self.brokers:
                broker.wait_alive()
            self.introduce()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop everything."""
        for broker in self.brokers:
            broker.close()

    def introduce(self) -> None:
        """Send all brokers the addresses of the others."""
        for broker in self.brokers:
            brokers = {
                other.id: {
                    "host": "127.0.0.1",
                    "port": other.port,
                    "peer_host": "127.0.0.1",
                    "peer_port": self._address(broker, other),
                }
                for other in self.brokers
            }
            broker.put("/v1/brokers", {"writer_epoch": self.writer_epoch, "brokers": brokers})

    def create(self, topic: str, partitions: int = 1, topic_id: str = "1" * 32, **options: Any) -> None:  # noqa: ANN401
        """Create a topic with a replica of each partition on each broker."""
        members = [broker.id for broker in self.brokers]
        for partition in range(partitions):
            for broker in self.brokers:
                order = {"writer_epoch": self.writer_epoch, "topic": topic, "members": members, **options}
                broker.put(f"/v1/replicas/{topic_id}/{partition}/1", order)

    def describe(self, broker: BrokerProcess, partition: int = 0, topic_id: str = "1" * 32) -> dict[str, Any]:
        """Describe a replica; empty if the broker does not respond."""
        with contextlib.suppress(httpx.HTTPError):
            return broker.get(f"/v1/replicas/{topic_id}/{partition}/1")
        return {}

    def leader(self, partition: int = 0, timeout_s: float = _WAIT_S) -> BrokerProcess:
        """Wait for a leader that has committed in its term."""
        return wait_until("a leader", lambda: next(self._leaders(partition), None), timeout_s)  # type: ignore[return-value]

    def _leaders(self, partition: int) -> Iterator[BrokerProcess]:
        found = [
            (described["term"], broker)
            for broker in self.brokers
            if broker.is_running and (described := self.describe(broker, partition)).get("settled")
        ]
        if found:
            yield max(found, key=lambda pair: pair[0])[1]

    def wait_agreed(self, partitions: int = 1, timeout_s: float = _WAIT_S) -> None:
        """Wait until all replicas have committed all entries."""

        def agreed() -> bool:
            for partition in range(partitions):
                found = [self.describe(broker, partition) for broker in self.brokers]
                ends = {(d.get("last_index"), d.get("committed_index"), d.get("term")) for d in found}
                if len(ends) != 1 or not any(d.get("settled") for d in found):
                    return False
                ((last, committed, _),) = ends
                if last is None or last != committed:
                    return False
            return True

        wait_until("all replicas to agree", agreed, timeout_s)
