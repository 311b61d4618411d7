"""Producers and consumers that put real brokers under load, and record the outcomes.

Producers retry with the same sequence until the outcome is known or a timeout, so a batch has one of three outcomes.
`history.violations` checks the guarantees.
"""

import asyncio
import contextlib
import random
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import httpx

from flotilla.net import Connection, Response
from flotilla.records import decode, encode, split
from support.cluster import BrokerProcess, wait_until
from support.history import Name, Outcome, Read, Replica, Send, violations

_TIMEOUT_S = 5.0
_FINAL = {409, 400, 413}


@dataclass
class Producer:
    """Sends batches to one partition, one at a time."""

    name: str
    topic: str
    partition: int
    urls: Sequence[str]
    rng: random.Random
    records: int = 5
    padding: int = 0  # bytes added to each record
    pause_s: float = 0.0
    retry_s: float = 20.0  # afterwards, the outcome stays unknown
    sends: list[Send] = field(default_factory=list)
    latencies_s: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._id = secrets.token_bytes(16)
        self._epoch = self._sequence = self._sent = 0
        self._url = self.urls[0]
        self._connections: dict[str, Connection] = {}

    async def run(self, stop: asyncio.Event) -> None:
        """Send until `stop` is set."""
        while not stop.is_set():
            await self._send()
            if self.pause_s:
                await asyncio.sleep(self.pause_s)
        for connection in self._connections.values():
            connection.close()

    async def _send(self) -> None:
        names = [Name(self.name, self._sent + at) for at in range(self.records)]
        self._sent += len(names)
        values = [f"{name.producer} {name.number} ".encode() + bytes(self.padding) for name in names]
        batch = encode(values, producer_id=self._id, producer_epoch=self._epoch, base_sequence=self._sequence)
        began = time.monotonic()
        outcome, offset = await self._deliver(batch)
        self.latencies_s.append(time.monotonic() - began)
        for at, name in enumerate(names):
            self.sends.append(Send(name, self.partition, outcome, None if offset is None else offset + at))
        self._sequence += len(names)
        if outcome != Outcome.OK:
            self._epoch, self._sequence = self._epoch + 1, 0

    async def _deliver(self, batch: bytearray) -> tuple[Outcome, int | None]:
        deadline = time.monotonic() + self.retry_s
        doubtful = False
        while time.monotonic() < deadline:
            try:
                response = await asyncio.wait_for(self._post(batch), _TIMEOUT_S)
            except (OSError, TimeoutError):
                doubtful = True
                self._forget(self._url)
                self._url = self.rng.choice(list(self.urls))
                await asyncio.sleep(0.02)
                continue
            if response.status == 200:
                offset = response.json()["base_offset"]
                assert isinstance(offset, int)
                return Outcome.OK, offset
            if response.status in _FINAL:
                return (Outcome.UNKNOWN if doubtful else Outcome.FAILED), None
            doubtful = doubtful or response.status in {500, 504}
            self._follow(response)
            await asyncio.sleep(0.02)
        return (Outcome.UNKNOWN if doubtful else Outcome.FAILED), None

    async def _post(self, batch: bytearray) -> Response:
        connection = self._connections.get(self._url)
        if connection is None or not connection.is_open:
            connection = self._connections[self._url] = await Connection.open(self._url)
        return await connection.request("POST", f"/v1/append?topic={self.topic}&partition={self.partition}", batch)

    def _forget(self, url: str) -> None:
        connection = self._connections.pop(url, None)
        if connection is not None:
            connection.close()

    def _follow(self, response: Response) -> None:
        details = response.json().get("details")
        leader = details.get("leader") if isinstance(details, dict) else None
        url = str(leader.get("url")) if isinstance(leader, dict) else ""
        self._url = url if url in self.urls else self.rng.choice(list(self.urls))


@dataclass
class Consumer:
    """Reads one partition from its first offset, from the leader or from any replica."""

    name: str
    topic: str
    partition: int
    urls: Sequence[str]
    rng: random.Random
    replica: str = "leader"
    reads: list[Read] = field(default_factory=list)
    offset: int = 0

    async def run(self, stop: asyncio.Event) -> None:
        """Read until `stop` is set."""
        while not stop.is_set():
            with contextlib.suppress(OSError, TimeoutError):
                await self._follow_one(self.rng.choice(list(self.urls)), stop)
            await asyncio.sleep(0.02)

    async def _follow_one(self, url: str, stop: asyncio.Event) -> None:
        connection = await Connection.open(url)
        try:
            while not stop.is_set():
                target = f"/v1/fetch?topic={self.topic}&partition={self.partition}&offset={self.offset}"
                response = await asyncio.wait_for(
                    connection.request("GET", f"{target}&wait_ms=200&replica={self.replica}"), _TIMEOUT_S
                )
                if response.status != 200:
                    self._skip(response)
                    return
                self._take(response.body)
        finally:
            connection.close()

    def _skip(self, response: Response) -> None:
        """Continue after the records that retention removed."""
        details = response.json().get("details")
        first = details.get("first_offset") if isinstance(details, dict) else None
        self.offset = max(self.offset, first or 0)

    def _take(self, body: bytes) -> None:
        for data in split(body):
            batch = decode(data)
            for at, value in enumerate(batch.values, batch.header.base_offset):
                if at >= self.offset:
                    self.reads.append(Read(self.name, self.partition, at, read_name(value)))
            self.offset = max(self.offset, batch.header.next_offset)


def read_name(value: bytes) -> Name:
    """Return the identity of the record with this value."""
    producer, number, _ = value.split(b" ", 2)
    return Name(producer.decode(), int(number))


class Asked(Protocol):
    """A broker that can be queried, on this machine or in a pod."""

    @property
    def id(self) -> str:
        """Id of the broker."""

    def get(self, path: str) -> dict[str, Any]:
        """Send GET; return JSON."""

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:  # noqa: ANN401 - as httpx has it
        """Send any request."""


def read_replica(broker: Asked, topic: str, partition: int) -> Replica:
    """Read all records of one replica."""
    names: list[Name] = []
    path = f"/v1/fetch?topic={topic}&partition={partition}&replica=any&max_bytes=8000000"
    response = broker.request("GET", f"{path}&offset=earliest")
    first = offset = int(response.headers["flotilla-first-offset"])
    while True:
        assert response.status_code == 200, response.text
        if not response.content:
            return Replica(broker.id, partition, names, first)
        for data in split(response.content):
            batch = decode(data)
            skip = max(0, offset - batch.header.base_offset)
            names += [read_name(value) for value in batch.values[skip:]]
            offset = batch.header.next_offset
        response = broker.request("GET", f"{path}&offset={offset}")


@dataclass
class Load:
    """Producers and consumers on all partitions of a topic, and the check of their history."""

    topic: str
    partitions: int
    brokers: Sequence[BrokerProcess]
    rng: random.Random
    producers_each: int = 2
    pause_s: float = 0.002
    gateways: Sequence[str] = ()  # managers to use as gateways, instead of direct connections to brokers

    def __post_init__(self) -> None:
        urls = list(self.gateways) or [broker.url for broker in self.brokers]
        self.producers = [
            Producer(f"p{partition}.{at}", self.topic, partition, urls, self.rng, pause_s=self.pause_s)
            for partition in range(self.partitions)
            for at in range(self.producers_each)
        ]
        self.consumers = [
            Consumer(f"c{partition}.{replica}", self.topic, partition, urls, self.rng, replica)
            for partition in range(self.partitions)
            for replica in ("leader", "any")
        ]

    @property
    def acknowledged(self) -> int:
        """Number of acknowledged records."""
        return sum(send.outcome == Outcome.OK for producer in self.producers for send in producer.sends)

    def wait_progress(self, records: int) -> None:
        """Wait until this number of further records is acknowledged. Called in the thread of `disturb`."""
        before = self.acknowledged
        wait_until("more records to be acknowledged", lambda: self.acknowledged >= before + records)

    def run_while(self, disturb: Callable[[], object]) -> None:
        """Run `disturb` in a thread under load; then let all clients finish."""
        asyncio.run(self._run(disturb))

    async def _run(self, disturb: Callable[[], object]) -> None:
        stop = asyncio.Event()
        runs = [one.run(stop) for one in self.producers] + [one.run(stop) for one in self.consumers]
        tasks = [asyncio.create_task(run) for run in runs]
        try:
            await asyncio.to_thread(disturb)
        finally:
            stop.set()
            await asyncio.gather(*tasks)

    def violations(self) -> list[str]:
        """Return violations of the guarantees, by the records of all replicas."""
        sends = [send for producer in self.producers for send in producer.sends]
        reads = [read for consumer in self.consumers for read in consumer.reads]
        replicas = [
            read_replica(broker, self.topic, partition)
            for broker in self.brokers
            for partition in range(self.partitions)
        ]
        return violations(sends, replicas, reads)
