"""Producers of the client library under load, and checks of the acknowledged records."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from flotilla.client.config import ProducerConfig, load_client
from flotilla.client.deliveries import Delivery
from flotilla.client.engine import Engine
from flotilla.client.errors import DeliveryUnknown
from flotilla.client.producer import AsyncProducer, Producer
from flotilla.client.runner import Runner
from support.cluster import wait_until
from support.history import Name, Outcome, Read, Replica, Send, violations
from support.load import Asked, read_replica

_TURN = 10  # records between two checks of the stop flag


@contextmanager
def open_producer(url: str, route: str = "auto", *, token: str | None = None, **options: Any) -> Iterator[Producer]:  # noqa: ANN401 - any option
    """Open a blocking producer; close it at the end."""
    runner = Runner()

    async def begin() -> tuple[Engine, AsyncProducer]:
        engine = Engine(load_client(url, route=route, token=token, environment={}))
        return engine, AsyncProducer(engine, ProducerConfig(**options))

    engine, producer = runner.run(begin())
    try:
        with Producer(runner, producer) as blocking:
            yield blocking
    finally:
        runner.run(_close(engine))
        runner.close()


async def _close(engine: Engine) -> None:
    engine.close()
    await asyncio.sleep(0)  # connections close in the next iteration of the loop


class Sender:
    """Sends records to all partitions round-robin in a thread, and keeps the outcomes."""

    def __init__(
        self, name: str, producer: Producer, topic: str, partitions: int, padding: int = 0, pause_s: float = 0.002
    ) -> None:
        self.name = name
        self.producer = producer
        self.sent: list[tuple[Name, int, Delivery]] = []
        self.longest_s = 0.0  # longest time from send to acknowledgement
        self._topic = topic
        self._partitions = partitions
        self._padding = bytes(padding)
        self._pause_s = pause_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._trouble: Exception | None = None
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                for _ in range(_TURN):
                    self._send()
                time.sleep(self._pause_s)  # the history is checked record by record, so limit its size
        except Exception as error:  # noqa: BLE001 - raised in the test
            self._trouble = error

    def _send(self) -> None:
        name = Name(self.name, len(self.sent))
        partition = name.number % self._partitions
        value = f"{name.producer} {name.number} ".encode() + self._padding
        began = time.monotonic()
        delivery = self.producer.send(self._topic, value, partition=partition)
        delivery.add_done_callback(lambda _: self._took(time.monotonic() - began))
        self.sent.append((name, partition, delivery))

    def _took(self, seconds: float) -> None:
        self.longest_s = max(self.longest_s, seconds)

    @property
    def acknowledged(self) -> int:
        return self.producer.stats.acknowledged

    def stop(self) -> None:
        """Stop sending, and wait for all outcomes."""
        self._stop.set()
        self._thread.join()
        if self._trouble is not None:
            raise self._trouble
        self.producer.flush()

    @property
    def sends(self) -> list[Send]:
        return [_to_send(name, partition, delivery) for name, partition, delivery in self.sent]


def _to_send(name: Name, partition: int, delivery: Delivery) -> Send:
    error = delivery.exception(0)
    if error is None:
        return Send(name, partition, Outcome.OK, delivery.result().offset)
    return Send(name, partition, Outcome.UNKNOWN if isinstance(error, DeliveryUnknown) else Outcome.FAILED)


def run_while(senders: Sequence[Sender], disturb: Callable[[], object]) -> None:
    """Run `disturb` under load; then let all senders finish."""
    try:
        disturb()
    finally:
        for sender in senders:
            sender.stop()


def wait_progress(senders: Sequence[Sender], records: int) -> None:
    """Wait until each sender has this number of further acknowledged records."""
    goals = [(sender, sender.acknowledged + records) for sender in senders]
    wait_until("more records to be acknowledged", lambda: all(one.acknowledged >= goal for one, goal in goals), 60)


def wait_agreed(brokers: Sequence[Asked], topic: str, partitions: int) -> None:
    """Wait until all replicas are equal."""

    def agreed() -> bool:
        ends = []
        for broker in brokers:
            found = {
                (one["topic"], one["partition"]): (one["next_offset"], one["last_index"], one["committed_index"])
                for one in broker.get("/v1/replicas")["replicas"]
            }
            ends.append([found.get((topic, partition)) for partition in range(partitions)])
        return all(end == ends[0] for end in ends) and all(one is not None and one[1] == one[2] for one in ends[0])

    wait_until("all replicas to agree", agreed)


def broken_promises(
    senders: Sequence[Sender], brokers: Sequence[Asked], topic: str, partitions: int, reads: Iterable[Read] = ()
) -> list[str]:
    """Return violations of the guarantees, by the records of all replicas and of consumers."""
    wait_agreed(brokers, topic, partitions)
    replicas: list[Replica] = [read_replica(one, topic, index) for one in brokers for index in range(partitions)]
    return violations([send for sender in senders for send in sender.sends], replicas, reads)
