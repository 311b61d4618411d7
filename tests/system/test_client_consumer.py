"""Consumers on real processes: where they start, how they go on, and what they do while servers die."""

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
from flotilla.client.positions import Place
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


def test_a_consumer_reads_all_partitions_each_in_order(fleet: Fleet, consumers: Consumers) -> None:
    """Everything that is there comes, once, in the order of each partition; and then what is new."""
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
        assert consumer.lag() == dict.fromkeys((Place("all", at) for at in range(3)), 0)


def test_a_consumer_starts_where_it_is_told(fleet: Fleet, consumers: Consumers) -> None:
    """Earliest, latest, at a time; some partitions only."""
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
        assert one.assignment == [Place("starts", 1)]


def test_a_consumer_goes_elsewhere_pauses_and_stops(fleet: Fleet, consumers: Consumers) -> None:
    """seek, position, lag, pause, resume, stop."""
    create(fleet, "moves", 2)
    for partition in range(2):
        append(fleet, "moves", partition, values(10))
    zero = Place("moves", 0)
    with consumers.make("moves") as consumer:
        consumer.pause(Place("moves", 1))
        assert [record.offset for record in consumer.records(max_records=4)] == [0, 1, 2, 3]
        assert (consumer.position("moves", 0), consumer.lag()[zero]) == (4, 6)
        consumer.seek("moves", 0, 8)
        assert [record.offset for record in consumer.records(timeout_s=QUIET_S)] == [8, 9]
        consumer.seek("moves", 0, "earliest")
        batch = next(consumer.batches())
        assert (batch.partition, batch.offset, batch.values) == (0, 0, values(10))
        consumer.resume()
        assert {record.partition for record in consumer.records(timeout_s=QUIET_S)} == {1}
        consumer.stop()
        assert list(consumer) == []
        threading.Timer(0.1, consumer.stop).start()
        assert list(consumer) == []
        with pytest.raises(ConfigInvalid, match="partition 7 of 'moves' is not with this consumer"):
            consumer.position("moves", 7)
        for wrong in (-1, "middle"):
            with pytest.raises(ConfigInvalid, match="to must be earliest, latest, a datetime, or an offset"):
                consumer.seek("moves", 0, wrong)
    with pytest.raises(ClientClosed):
        consumer.poll()


def test_records_and_batches_can_be_mixed(fleet: Fleet, consumers: Consumers) -> None:
    """Nothing comes twice and nothing is left out, whichever way one asks."""
    create(fleet, "mixed")
    append(fleet, "mixed", 0, values(6))
    append(fleet, "mixed", 0, values(2, 6))
    with consumers.make("mixed") as consumer:
        assert next(iter(consumer)).offset == 0
        record = consumer.poll(SOON_S)
        assert record is not None
        assert record.offset == 1
        assert [batch.values for batch in consumer.batches(until="end")] == [values(4, 2), values(2, 6)]


def test_what_was_removed_is_passed_over_or_told(fleet: Fleet, consumers: Consumers) -> None:
    """A beginning that moved is not waited for."""
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


def test_a_topic_that_is_not_there_is_told_at_once_and_one_that_goes_when_it_goes(
    fleet: Fleet, consumers: Consumers
) -> None:
    """A consumer never reads another topic that has the name."""
    with pytest.raises(TopicMissing, match="there is no topic 'never'"):
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


def test_partitions_that_a_topic_gets_are_read_from_their_beginning(fleet: Fleet, consumers: Consumers) -> None:
    """A topic grows while it is read."""
    create(fleet, "grows")
    with consumers.make("grows", start="latest") as consumer:
        grown = fleet.client.patch("/v1/topics/grows", json={"partitions": 2})
        assert grown.status_code == 200, grown.text
        append(fleet, "grows", 1, [b"first"])
        record = consumer.poll(SOON_S)
        assert record is not None
        assert (record.partition, record.offset) == (1, 0)


def test_the_async_face_reads_the_same(fleet: Fleet) -> None:
    """One core, two faces."""
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
def test_nothing_is_lost_or_doubled_while_servers_die(tmp_path: Path, route: str) -> None:
    """Leaders are killed, readers restarted and connections cut: a consumer reads on, in order, each record once."""
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


def test_memory_is_bounded_with_a_slow_user(fleet: Fleet, consumers: Consumers) -> None:
    """However much there is, no more is fetched ahead than `prefetch_bytes`."""
    create(fleet, "much", 2)
    for partition in range(2):
        for _ in range(20):
            append(fleet, "much", partition, [os.urandom(1 << 18)] * 4)
    with consumers.make("much", prefetch_bytes=8 << 20, fetch_bytes=2 << 20) as consumer:
        lanes = consumer._core.fetcher.lanes.values()
        wait_until("a full buffer", lambda: sum(lane.held_bytes for lane in lanes) > 4 << 20)
        highest = 0
        for record in consumer.records(until="end"):
            assert len(record.value) == 1 << 18
            highest = max(highest, sum(lane.held_bytes for lane in lanes))
        assert highest <= 8 << 20
