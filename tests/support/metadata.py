"""Helpers for tests of metadata: example objects, direct SQL, and work in other processes.

Usage as a script: metadata.py WORK URL ARGUMENT ...   (prints the result as JSON)
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

from sqlalchemy import text

from flotilla_manager.metadata import Store, TopicExists, open_store
from flotilla_manager.model import Advance, Broker, Consumer, Partition, Topic, TopicState

T = TypeVar("T")

_PROCESS_S = 60


def an_id(number: int) -> str:
    """Make an id from a number."""
    return f"{number:032x}"


def a_topic(number: int = 1, name: str = "orders", partitions: int = 2, **values: Any) -> Topic:  # noqa: ANN401
    """Make a topic that is not stored yet."""
    members = (an_id(0xB1), an_id(0xB2), an_id(0xB3))
    made = tuple(Partition(index=at, epoch=1, members=members) for at in range(partitions))
    topic = Topic(
        id=an_id(number),
        name=name,
        state=TopicState.CREATING,
        partitions=made,
        retention_ms=None,
        retention_bytes=None,
    )
    return replace(topic, **values)


def a_broker(number: int = 0xB1, **values: Any) -> Broker:  # noqa: ANN401 - any of its fields
    """Make a broker."""
    broker = Broker(id=an_id(number), host="127.0.0.1", port=8081, peer_host="127.0.0.1", peer_port=9081)
    return replace(broker, **values)


def ready_topic(store: Store, epoch: int, topic: Topic | None = None) -> Topic:
    """Create a topic and make it ready."""
    made = store.create_topic(epoch, topic or a_topic())
    store.set_topic_state(epoch, made.id, TopicState.READY)
    return replace(made, state=TopicState.READY)


def a_step(consumer: Consumer, *, partition: int = 0) -> Advance:
    """Make the next step of a consumer: one record in a partition."""
    return Advance(
        consumer_id=consumer.id,
        version=consumer.version,
        cursor=(partition + 1) % len(consumer.positions),
        partition=partition,
        position=consumer.positions[partition] + 1,
    )


def sql(store: Store, statement: str) -> list[tuple[Any, ...]]:
    """Do something behind the store's back."""
    with store.write_transaction() as connection:
        result = connection.execute(text(statement))
        return [tuple(row) for row in result] if result.returns_rows else []


def at_once(work: Callable[[int], T], count: int) -> list[T]:
    """Run a function in several threads; raise the error of any of them."""
    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(work, range(count)))


def in_processes(work: str, url: str, each: Iterable[Iterable[object]]) -> list[Any]:
    """Run a function in several processes; return the results."""
    command = [sys.executable, "-W", "error", __file__, work, url]
    started = [
        subprocess.Popen([*command, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for arguments in each
    ]
    ended = [(process, *process.communicate(timeout=_PROCESS_S)) for process in started]
    for process, _, err in ended:
        assert process.returncode == 0, err.decode()
    return [json.loads(out) for _, out, _ in ended]


def migrate(store: Store) -> str:
    """Create the tables; return the cluster id."""
    store.migrate()
    return store.snapshot().cluster_id


def consume(store: Store, consumer_id: str, until: str) -> list[tuple[int, int]]:
    """Advance, in competition with others, until a version is reached; return (version, offset) pairs."""
    taken: list[tuple[int, int]] = []
    while True:
        consumer = store.find_consumer(consumer_id)
        assert consumer is not None
        if consumer.version >= int(until):
            return taken
        partition = consumer.cursor
        if store.advance([a_step(consumer, partition=partition)]) == [True]:
            taken.append((consumer.version, consumer.positions[partition]))


def create(store: Store, epoch: str, first: str, count: str) -> list[int]:
    """Create topics; return their serials, 0 for a name that exists."""
    serials = []
    for number in range(int(first), int(first) + int(count)):
        try:
            serials.append(store.create_topic(int(epoch), a_topic(number, f"topic-{number % 50}")).serial)
        except TopicExists:
            serials.append(0)
    return serials


WORK: dict[str, Callable[..., object]] = {"migrate": migrate, "consume": consume, "create": create}

if __name__ == "__main__":
    sys.stdout.write(json.dumps(WORK[sys.argv[1]](open_store(sys.argv[2]), *sys.argv[3:])))
