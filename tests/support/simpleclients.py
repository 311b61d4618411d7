"""Many clients of the simple API, which send and receive single messages, and the responses they got."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from flotilla.net import Connection, Disconnected
from support.cluster import BrokerProcess, wait_until
from support.history import Name, Outcome, Read, Send, violations
from support.load import read_name, read_replica

_TIMEOUT_S = 30.0
_PAUSE_S = 0.02
_EMPTY = "No logs available to consume."


@dataclass
class Client:
    """One connection to the API, reopened when it is lost."""

    url: str
    _connection: Connection | None = None

    async def ask(self, method: str, target: str, body: bytes = b"") -> tuple[int, dict[str, object]]:
        """Send one request. Raises Disconnected."""
        if self._connection is None or not self._connection.is_usable:
            self._connection = await Connection.open(self.url)
        response = await self._connection.request(method, target, body, timeout_s=_TIMEOUT_S)
        return response.status, response.json()

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()


@dataclass
class SimpleProducer:
    """A producer that sends one message at a time, to the partitions round-robin."""

    name: str
    topic: str
    partitions: int
    producer_id: str
    url: str
    messages_max: int | None = None
    sends: list[Send] = field(default_factory=list)
    slowest_s: float = 0.0

    async def run(self, stop: asyncio.Event) -> None:
        """Send until `stop` is set."""
        client = Client(self.url)
        number = 0
        while not stop.is_set() and number != self.messages_max:
            began = time.monotonic()
            send = await self._send(client, number)
            self.slowest_s = max(self.slowest_s, time.monotonic() - began)
            self.sends.append(send)
            number += 1
            if send.outcome != Outcome.OK:
                await asyncio.sleep(_PAUSE_S)
        client.close()

    async def _send(self, client: Client, number: int) -> Send:
        name, partition = Name(self.name, number), number % self.partitions
        body = (
            f'{{"topic": "{self.topic}", "producer_id": "{self.producer_id}", "partition_index": {partition},'
            f' "message": "{name.producer} {name.number} "}}'
        )
        try:
            status, answer = await client.ask("POST", "/producer/produce", body.encode())
        except Disconnected as error:
            return Send(name, partition, Outcome.UNKNOWN if error.sent else Outcome.FAILED)
        if status == 200:
            offset = answer["offset"]
            assert isinstance(offset, int)
            assert answer["partition_index"] == partition
            return Send(name, partition, Outcome.OK, offset)
        return Send(name, partition, Outcome.UNKNOWN if answer["status"] == "unknown" else Outcome.FAILED)


@dataclass
class SimpleConsumer:
    """A consumer that reads one message at a time. Several can share an id."""

    name: str
    topic: str
    consumer_id: str
    url: str
    reads: list[Read] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)  # lost responses: their messages may be lost for this id

    async def run(self, stop: asyncio.Event, *, until_empty: bool = False) -> None:
        """Read until `stop` is set; with `until_empty`, continue until no messages are left."""
        client = Client(self.url)
        target = f"/consumer/consume?topic={self.topic}&consumer_id={self.consumer_id}"
        while True:
            try:
                status, answer = await client.ask("GET", target)
            except Disconnected as error:
                self.lost += [str(error)] if error.sent else []
                status, answer = 0, {}
            if status == 200:
                self._take(answer)
                continue
            self.lost += [str(answer)] if status == 503 else []
            is_empty = answer.get("message") == _EMPTY
            if stop.is_set() and (is_empty or not until_empty):
                break
            await asyncio.sleep(_PAUSE_S)
        client.close()

    def _take(self, answer: dict[str, object]) -> None:
        partition, offset, message = answer["partition_index"], answer["offset"], answer["message"]
        assert isinstance(partition, int)
        assert isinstance(offset, int)
        assert isinstance(message, str)
        self.reads.append(Read(self.name, partition, offset, read_name(message.encode())))


@dataclass
class SimpleClients:
    """Producers and consumers of one topic."""

    topic: str
    partitions: int
    brokers: Sequence[BrokerProcess]
    producers: list[SimpleProducer]
    consumers: list[SimpleConsumer]

    @property
    def acknowledged(self) -> int:
        """Number of acknowledged messages."""
        return sum(send.outcome == Outcome.OK for person in self.producers for send in person.sends)

    @property
    def lost(self) -> list[str]:
        """Errors instead of responses to consume requests."""
        return [reason for listener in self.consumers for reason in listener.lost]

    def wait_progress(self, messages: int) -> None:
        """Wait until this number of further messages is acknowledged."""
        before = self.acknowledged
        wait_until("more messages to be acknowledged", lambda: self.acknowledged >= before + messages)

    def run_while(self, disturb: Callable[[], object]) -> None:
        """Run `disturb` in a thread under load; then let consumers read all messages."""
        asyncio.run(self._run(disturb))

    async def _run(self, disturb: Callable[[], object]) -> None:
        stop, end = asyncio.Event(), asyncio.Event()
        producing = [asyncio.create_task(person.run(stop)) for person in self.producers]
        consuming = [asyncio.create_task(one.run(end, until_empty=True)) for one in self.consumers]
        try:
            await asyncio.to_thread(disturb)
        finally:
            stop.set()
            await asyncio.gather(*producing)
            end.set()
            await asyncio.gather(*consuming)

    def violations(self) -> list[str]:
        """Return violations of the guarantees, by the records of all replicas."""
        sends = [send for person in self.producers for send in person.sends]
        reads = [read for listener in self.consumers for read in listener.reads]
        replicas = [
            read_replica(broker, self.topic, partition)
            for broker in self.brokers
            for partition in range(self.partitions)
        ]
        return [*violations(sends, replicas, reads), *self._doubled(), *self._missing()]

    def _doubled(self) -> list[str]:
        """No message is delivered twice under one id."""
        found = []
        for id_ in {one.consumer_id for one in self.consumers}:
            given = Counter(
                (read.partition, read.offset) for one in self.consumers if one.consumer_id == id_ for read in one.reads
            )
            found += [f"consumer {id_} got {place} {times} times" for place, times in given.items() if times > 1]
        return found

    def _missing(self) -> list[str]:
        """Every acknowledged message is delivered under every id, unless a response was lost."""
        found = []
        acknowledged = {
            (send.partition, send.offset)
            for person in self.producers
            for send in person.sends
            if send.outcome == Outcome.OK
        }
        for id_ in {one.consumer_id for one in self.consumers}:
            theirs = [one for one in self.consumers if one.consumer_id == id_]
            given = {(read.partition, read.offset) for one in theirs for read in one.reads}
            missing = acknowledged - given
            if len(missing) > sum(len(one.lost) for one in theirs):
                found.append(f"consumer {id_} never got {len(missing)} messages, e.g. {sorted(missing)[:3]}")
        return found
