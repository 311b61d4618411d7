"""Consumers on real processes: starting positions, seeking, and failures of servers."""

import asyncio
import contextlib
import os
import random
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from flotilla.client.async_consumer import AsyncConsumer
from flotilla.client.config import ConsumerConfig, load_client
from flotilla.client.engine import Engine
from flotilla.client.errors import ClientClosed, ConfigInvalid, OffsetOutOfRange, TopicMissing
from flotilla.client.positions import TopicPartition
from support.cluster import wait_until
from support.consumers import Consumers, append, create
from support.fleet import Fleet
from support.proxy import Proxy

QUICK = ("--heartbeat-s", "0.1", "--election-s-min", "0.5", "--election-s-max", "1.0")
SOON_S = 10.0
QUIET_S = 0.3


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with Fleet(Path(tmp_path_factory.mktemp("fleet")), brokers=1) as fleet:
        yield fleet


@pytest.fixture(scope="module")
def consumers(fleet: Fleet) -> Iterator[Consumers]:
    with Consumers(fleet.url) as consumers:
        yield consumers


def values(count: int, begin: int = 0) -> list[bytes]:
    return [str(begin + at).encode() for at in range(count)]


def test_consumer_reads_all_partitions_each_in_order(fleet: Fleet, consumers: Consumers) -> None:
    """All existing records once, in the order of each partition, then new ones."""
    create(fleet, "all", 3)
    for partition in range(3):
        for begin in (0, 5):
            append(fleet, "all", partition, values(5, begin))
    with consumers.make("all") as consumer:
        found = defaultdict(list)
        for one in consumer.records(until="end"):
            found[one.partition].append((one.offset, one.value))
        assert found == {partition: list(enumerate(values(10))) for partition in range(3)}
        assert consumer.poll(QUIET_S) is None
        append(fleet, "all", 1, [b"new"])
        record = consumer.poll(SOON_S)
        assert record is not None
        assert (record.topic, record.partition, record.offset, record.value) == ("all", 1, 10, b"new")
        assert consumer.lag() == dict.fromkeys((TopicPartition("all", at) for at in range(3)), 0)


def test_consumer_starts_at_the_given_position(fleet: Fleet, consumers: Consumers) -> None:
    """Earliest, latest, a timestamp; some partitions only."""
    create(fleet, "starts", 2)
    append(fleet, "starts", 0, values(3))
    append(fleet, "starts", 1, values(3))
    began = time.time()
    wait_until("another millisecond", lambda: time.time() > began + 0.005)
    middle = datetime.now(UTC)
    append(fleet, "starts", 0, [b"later"])
    with consumers.make("starts", start=middle) as since, consumers.make("starts", start="latest") as latest:
        assert [record.value for record in since.records(until="end")] == [b"later"]
        assert list(latest.records(until="end")) == []
        append(fleet, "starts", 1, [b"last"])
        assert [record.value for record in latest.records(max_records=1, timeout_s=SOON_S)] == [b"last"]
    with consumers.make("starts", partitions=[1]) as one:
        assert [record.value for record in one.records(until="end")] == [b"0", b"1", b"2", b"last"]
        assert one.assignment == [TopicPartition("starts", 1)]


def test_consumer_seeks_pauses_and_stops(fleet: Fleet, consumers: Consumers) -> None:
    """seek, position, lag, pause, resume, stop."""
    create(fleet, "moves", 2)
    for partition in range(2):
        append(fleet, "moves", partition, values(10))
    zero = TopicPartition("moves", 0)
    with consumers.make("moves") as consumer:
        consumer.pause(TopicPartition("moves", 1))
        assert [record.offset for record in consumer.records(max_records=4)] == [0, 1, 2, 3]
        assert (consumer.position("moves", 0), consumer.lag()[zero]) == (4, 6)
        consumer.seek("moves", 0, 8)
        assert [record.offset for record in consumer.records(max_records=2, timeout_s=SOON_S)] == [8, 9]
        consumer.seek("moves", 0, "earliest")
        batch = next(consumer.batches())
        assert (batch.partition, batch.offset, batch.values) == (0, 0, values(10))
        consumer.resume()
        assert {record.partition for record in consumer.records(max_records=10, timeout_s=SOON_S)} == {1}
        consumer.stop()
        assert list(consumer) == []
        threading.Timer(0.1, consumer.stop).start()
        assert list(consumer) == []
        with pytest.raises(ConfigInvalid, match="moves-7 is not assigned to this consumer"):
            consumer.position("moves", 7)
        for wrong in (-1, "middle"):
            with pytest.raises(ConfigInvalid, match="to must be earliest, latest, a datetime, or an offset"):
                consumer.seek("moves", 0, wrong)
    with pytest.raises(ClientClosed):
        consumer.poll()


def test_records_and_batches_can_be_mixed(fleet: Fleet, consumers: Consumers) -> None:
    """No record is repeated or skipped."""
    create(fleet, "mixed")
    append(fleet, "mixed", 0, values(6))
    append(fleet, "mixed", 0, values(2, 6))
    with consumers.make("mixed") as consumer:
        assert next(iter(consumer)).offset == 0
        record = consumer.poll(SOON_S)
        assert record is not None
        assert record.offset == 1
        assert [batch.values for batch in consumer.batches(until="end")] == [values(4, 2), values(2, 6)]


def test_removed_records_are_skipped_or_reported(fleet: Fleet, consumers: Consumers) -> None:
    """A first offset that moved is not waited for."""
    create(fleet, "gone")
    append(fleet, "gone", 0, values(4))
    body = {"partitions": [{"partition": 0, "offset": 3}]}
    deleted = fleet.client.post("/v1/topics/gone/delete-records", json=body)
    assert deleted.status_code == 200, deleted.text
    with consumers.make("gone") as consumer, consumers.make("gone", on_gone="raise") as strict:
        consumer.seek("gone", 0, 1)
        assert [record.offset for record in consumer.records(until="end")] == [3]
        strict.seek("gone", 0, 1)
        with pytest.raises(OffsetOutOfRange):
            strict.poll(SOON_S)


def test_missing_topic_is_reported_at_once_and_a_deleted_one_when_it_is_deleted(
    fleet: Fleet, consumers: Consumers
) -> None:
    """A consumer never reads another topic with the same name."""
    with pytest.raises(TopicMissing, match="topic 'never' does not exist"):
        consumers.make("never")
    create(fleet, "goes")
    append(fleet, "goes", 0, [b"old"])
    with consumers.make("goes", wait_s=0.2) as consumer:
        assert next(iter(consumer)).value == b"old"
        assert fleet.client.delete("/v1/topics/goes").status_code == 200
        create(fleet, "goes")
        append(fleet, "goes", 0, [b"another", b"one"])
        with pytest.raises(TopicMissing):
            consumer.poll(SOON_S)


def test_new_partitions_are_read_from_their_first_offset(fleet: Fleet, consumers: Consumers) -> None:
    """A topic gets partitions while it is read."""
    create(fleet, "grows")
    with consumers.make("grows", start="latest") as consumer:
        grown = fleet.client.patch("/v1/topics/grows", json={"partitions": 2})
        assert grown.status_code == 200, grown.text
        append(fleet, "grows", 1, [b"first"])
        record = consumer.poll(SOON_S)
        assert record is not None
        assert (record.partition, record.offset) == (1, 0)


def test_async_consumer_reads_the_same_records(fleet: Fleet) -> None:
    """Both APIs share one implementation."""
    create(fleet, "async", 2)
    for partition in range(2):
        append(fleet, "async", partition, values(4))

    async def read() -> None:
        engine = Engine(load_client(fleet.url, environment={}))
        async with AsyncConsumer(engine, ConsumerConfig(), "async") as consumer:
            assert len([record async for record in consumer.records(max_records=3)]) == 3
            assert len([record async for record in consumer.records(until="end")]) == 5
            await consumer.seek("async", 0, 1)
            assert [batch.values async for batch in consumer.batches(until="end")] == [values(3, 1)]
            assert await consumer.poll(QUIET_S) is None
            asyncio.get_running_loop().call_later(0.1, consumer.stop)
            assert [record async for record in consumer] == []
        engine.close()

    asyncio.run(read())


@pytest.mark.parametrize("route", ["direct", "gateway", "auto"])
def test_consumer_reads_each_record_once_while_servers_fail(tmp_path: Path, route: str) -> None:
    """Leaders are killed, readers restarted and connections cut."""
    rng = random.Random(route)
    with Fleet(tmp_path, broker_flags=QUICK) as fleet, contextlib.closing(Proxy(fleet.port)) as proxy:
        create(fleet, "storm", 2, replication=3)
        with Consumers(f"http://127.0.0.1:{proxy.port}", route) as consumers, consumers.make("storm") as consumer:
            found: dict[int, list[int]] = {0: [], 1: []}
            sent = {0: 0, 1: 0}
            for trouble in ("broker", "reader", "cut", "broker", "stop"):
                for partition in sent:
                    sent[partition] = append(fleet, "storm", partition, values(20)) + 20
                strike(trouble, fleet, proxy, rng)
                while sum(map(len, found.values())) < sum(sent.values()):
                    record = consumer.poll(60)
                    assert record is not None, f"after {trouble}: {found} of {sent}"
                    found[record.partition].append(record.offset)
                for process in fleet.processes:
                    if process.is_running:
                        process.signal(signal.SIGCONT)
                fleet.start()
                fleet.wait_ready()
            assert consumer.poll(QUIET_S) is None
            assert found == {partition: list(range(count)) for partition, count in sent.items()}


def strike(trouble: str, fleet: Fleet, proxy: Proxy, rng: random.Random) -> None:
    if trouble == "broker":
        rng.choice(fleet.brokers).kill()
    elif trouble == "stop":
        rng.choice(fleet.brokers).signal(signal.SIGSTOP)
    elif trouble == "reader":
        rng.choice(fleet.readers).kill()
    else:
        proxy.cut()
        proxy.heal()


def test_prefetch_memory_is_bounded(fleet: Fleet, consumers: Consumers) -> None:
    """A slow consumer fetches at most `prefetch_bytes` ahead."""
    create(fleet, "much", 2)
    for partition in range(2):
        for _ in range(20):
            append(fleet, "much", partition, [os.urandom(1 << 18)] * 4)
    with consumers.make("much", prefetch_bytes=8 << 20, fetch_bytes=2 << 20) as consumer:
        fetches = consumer._core.fetcher.fetches.values()
        wait_until("a full buffer", lambda: sum(fetch.buffered_bytes for fetch in fetches) > 4 << 20)
        highest = 0
        for record in consumer.records(until="end"):
            assert len(record.value) == 1 << 18
            highest = max(highest, sum(fetch.buffered_bytes for fetch in fetches))
        assert highest <= 8 << 20
