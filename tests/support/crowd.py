"""People with curl, many of them: single messages in and out over the API for people, and what they were told."""

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
    """One connection at a time to the API, opened again when it is lost."""

    url: str
    _connection: Connection | None = None

    async def ask(self, method: str, target: str, body: bytes = b"") -> tuple[int, dict[str, object]]:
        """Ask once. Raises Disconnected."""
        if self._connection is None or not self._connection.is_usable:
            self._connection = await Connection.open(self.url)
        response = await self._connection.request(method, target, body, timeout_s=_TIMEOUT_S)
        return response.status, response.json()

    def close(self) -> None:
        """Hang up."""
        if self._connection is not None:
            self._connection.close()


@dataclass
class Person:
    """A producer that sends one message after the other, to the partitions in turn."""

    name: str
    topic: str
    partitions: int
    producer_id: str
    url: str
    messages_max: int | None = None
    sends: list[Send] = field(default_factory=list)
    slowest_s: float = 0.0

    async def run(self, stop: asyncio.Event) -> None:
        """Send until told to stop."""
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
class Listener:
    """A consumer that takes one message after the other. Several may share an id."""

    name: str
    topic: str
    consumer_id: str
    url: str
    reads: list[Read] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)  # why there was no answer: its message may be gone for this id

    async def run(self, stop: asyncio.Event, *, until_empty: bool = False) -> None:
        """Take messages until told to stop; with `until_empty`, then go on until there are none."""
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
class Crowd:
    """Producers and consumers of one topic."""

    topic: str
    partitions: int
    brokers: Sequence[BrokerProcess]
    people: list[Person]
    listeners: list[Listener]

    @property
    def acknowledged(self) -> int:
        """How many messages were acknowledged."""
        return sum(send.outcome == Outcome.OK for person in self.people for send in person.sends)

    @property
    def lost(self) -> list[str]:
        """What came instead of answers to consume that did not arrive."""
        return [reason for listener in self.listeners for reason in listener.lost]

    def wait_progress(self, messages: int) -> None:
        """Wait until so many more messages are acknowledged."""
        before = self.acknowledged
        wait_until("more messages to be acknowledged", lambda: self.acknowledged >= before + messages)

    def run_while(self, disturb: Callable[[], object]) -> None:
        """Keep going while `disturb`, in a thread, does its worst; then let consumers read everything."""
        asyncio.run(self._run(disturb))

    async def _run(self, disturb: Callable[[], object]) -> None:
        stop, end = asyncio.Event(), asyncio.Event()
        producing = [asyncio.create_task(person.run(stop)) for person in self.people]
        consuming = [asyncio.create_task(one.run(end, until_empty=True)) for one in self.listeners]
        try:
            await asyncio.to_thread(disturb)
        finally:
            stop.set()
            await asyncio.gather(*producing)
            end.set()
            await asyncio.gather(*consuming)

    def violations(self) -> list[str]:
        """Tell which promises were broken, given what all replicas hold now."""
        sends = [send for person in self.people for send in person.sends]
        reads = [read for listener in self.listeners for read in listener.reads]
        replicas = [
            read_replica(broker, self.topic, partition)
            for broker in self.brokers
            for partition in range(self.partitions)
        ]
        return [*violations(sends, replicas, reads), *self._doubled(), *self._missing()]

    def _doubled(self) -> list[str]:
        """No message is handed out twice under one id."""
        found = []
        for id_ in {one.consumer_id for one in self.listeners}:
            given = Counter(
                (read.partition, read.offset) for one in self.listeners if one.consumer_id == id_ for read in one.reads
            )
            found += [f"consumer {id_} got {place} {times} times" for place, times in given.items() if times > 1]
        return found

    def _missing(self) -> list[str]:
        """Every acknowledged message is handed out under every id, unless an answer was lost."""
        found = []
        acknowledged = {
            (send.partition, send.offset)
            for person in self.people
            for send in person.sends
            if send.outcome == Outcome.OK
        }
        for id_ in {one.consumer_id for one in self.listeners}:
            theirs = [one for one in self.listeners if one.consumer_id == id_]
            given = {(read.partition, read.offset) for one in theirs for read in one.reads}
            missing = acknowledged - given
            if len(missing) > sum(len(one.lost) for one in theirs):
                found.append(f"consumer {id_} never got {len(missing)} messages, e.g. {sorted(missing)[:3]}")
        return found
