"""The producer of the client library on real processes, while they fail.

`KILL_SECONDS=600` keeps killing for as long.
"""

import asyncio
import contextlib
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import psutil
import pytest

from flotilla import Client
from flotilla.client.config import load_client
from flotilla.client.deliveries import Delivery
from flotilla.client.engine import Engine
from flotilla.client.errors import BufferFull, DeliveryFailed, NotAllowed, RecordInvalid, TopicMissing
from flotilla.client.producer import AsyncProducer
from support.access import ENVIRONMENT
from support.clientload import Sender, broken_promises, open_producer, run_while, wait_progress
from support.cluster import wait_until
from support.fleet import Fleet
from support.history import Outcome
from support.proxy import Proxy

KILL_SECONDS = float(os.environ.get("KILL_SECONDS", "6"))
QUICK = ("--heartbeat-s", "0.1", "--election-s-min", "0.5", "--election-s-max", "1.0")
ROUTES = ("direct", "gateway", "auto")
PARTITIONS = 3


@contextlib.contextmanager
def sending(fleet: Fleet, *routes: str, url: str | None = None, padding: int = 0) -> Iterator[list[Sender]]:
    """Create a topic, and a sender for each route."""
    fleet.create("t", PARTITIONS)
    with contextlib.ExitStack() as stack:
        senders = []
        for route in routes:
            producer = stack.enter_context(open_producer(url or fleet.url, route))
            senders.append(Sender(route, producer, "t", PARTITIONS, padding))
        yield senders


def check(fleet: Fleet, senders: list[Sender]) -> None:
    """No record is lost, duplicated or out of order, and all are acknowledged."""
    assert broken_promises(senders, fleet.brokers, "t", PARTITIONS) == []
    outcomes = {(sender.name, send.outcome) for sender in senders for send in sender.sends}
    assert outcomes == {(sender.name, Outcome.OK) for sender in senders}


def keep_on(disturb: Callable[[], object]) -> None:
    until = time.monotonic() + KILL_SECONDS
    while time.monotonic() < until:
        disturb()


def test_records_arrive_by_every_route_with_keys_headers_timestamps_and_compression(tmp_path: Path) -> None:
    with Fleet(tmp_path) as fleet:
        fleet.create("t", 4, batch_bytes_max=100_000)
        for route in ROUTES:
            with open_producer(fleet.url, route, compression="zstd", linger_s=0.005) as producer:
                receipt = producer.send("t", b"x", key=b"table 7", headers=(("a", b"b"),), timestamp_ms=5).result(10)
                assert (receipt.topic, receipt.partition) == ("t", 1)
                values = [b"%d" % number for number in range(10_000)]
                receipts = producer.send_many("t", values, keys=values).result(10)
                assert {one.partition for one in receipts} == {0, 1, 2, 3}
                offsets = [one.offset for one in receipts if one.partition == 2]
                assert offsets == list(range(offsets[0], offsets[0] + len(offsets)))
                with pytest.raises(RecordInvalid, match="takes up to 100000"):
                    producer.send("t", random.Random(1).randbytes(100_000))
                with pytest.raises(TopicMissing, match="topic 'other' does not exist"):
                    producer.send("other", b"x")
            assert producer.stats.acknowledged == 10_001


def test_async_producer_awaits_its_deliveries(tmp_path: Path) -> None:
    async def produce(url: str) -> None:
        engine = Engine(load_client(url, environment={}))
        async with AsyncProducer(engine) as producer:
            deliveries = [await producer.send("t", b"%d" % number, partition=0) for number in range(1000)]
            assert [(await one).offset for one in deliveries] == list(range(1000))
        engine.close()

    with Fleet(tmp_path) as fleet:
        fleet.create("t", PARTITIONS)
        asyncio.run(produce(fleet.url))


def test_producer_loses_nothing_while_leaders_are_killed(tmp_path: Path) -> None:
    """Guarantees 1 to 3, for the library: kill -9 of brokers under load, by all routes."""
    rng = random.Random("leaders")
    with Fleet(tmp_path, broker_flags=QUICK) as fleet, sending(fleet, *ROUTES) as senders:

        def kill() -> None:
            wait_progress(senders, 50)
            time.sleep(rng.random() * 0.3)  # a kill comes at any moment
            leaders = {one["leader"] for one in fleet.get("/topics/t/partitions")["partitions"]}
            victim = rng.choice([one for one in fleet.brokers if one.id in leaders] or fleet.brokers)
            victim.kill()
            wait_progress(senders, 50)
            fleet.start()
            fleet.wait_ready()

        run_while(senders, lambda: keep_on(kill))
        check(fleet, senders)


@pytest.mark.parametrize("victims", ["managers", "everything"])
def test_producer_loses_nothing_while_all_servers_restart(tmp_path: Path, victims: str) -> None:
    """Guarantees 1 to 3, for the library: kill -9 of all managers, or of all servers at once."""
    with Fleet(tmp_path, broker_flags=QUICK) as fleet, sending(fleet, *ROUTES) as senders:
        straight = [sender for sender in senders if sender.name != "gateway"]

        def kill() -> None:
            wait_progress(senders, 50)
            if victims == "everything":
                fleet.kill_all()
            else:
                for manager in fleet.managers:
                    manager.kill()
                wait_progress(straight, 50)  # they do not need managers
            fleet.start()
            fleet.wait_ready()

        run_while(senders, lambda: keep_on(kill))
        check(fleet, senders)


@pytest.mark.parametrize("trouble", ["cut", "freeze"])
def test_producer_loses_nothing_while_connections_break(tmp_path: Path, trouble: str) -> None:
    """Guarantees 2 and 3, for the library: responses are lost, and nothing is stored twice."""
    rng = random.Random(trouble)
    fleet = Fleet(tmp_path, broker_flags=QUICK)
    with contextlib.ExitStack() as stack:
        proxies = [stack.enter_context(contextlib.closing(Proxy(one.port))) for one in fleet.brokers]
        front = stack.enter_context(contextlib.closing(Proxy(fleet.port)))
        for broker, proxy in zip(fleet.brokers, proxies, strict=True):
            broker.set_flags([*broker._flags, "--advertise-port", str(proxy.port)])
        stack.enter_context(fleet)
        senders = stack.enter_context(sending(fleet, *ROUTES, url=f"http://127.0.0.1:{front.port}"))

        def disturb() -> None:
            wait_progress(senders, 50)
            victims = rng.sample([*proxies, front], 2)
            for proxy in victims:
                getattr(proxy, trouble)()
            time.sleep(rng.random() * 0.5)  # that is how long it lasts
            for proxy in victims:
                proxy.heal()

        run_while(senders, lambda: keep_on(disturb))
        check(fleet, senders)


def test_producer_memory_is_bounded_while_servers_hang(tmp_path: Path) -> None:
    """Back pressure: unsent records wait, up to `buffer_bytes`; then `send` blocks."""
    with Fleet(tmp_path) as fleet:
        fleet.create("t", PARTITIONS)
        with open_producer(fleet.url, "direct", buffer_bytes=8 << 20) as producer:
            producer.send("t", b"first").result(10)
            before = psutil.Process().memory_info().rss
            for broker in fleet.brokers:
                broker.signal(signal.SIGSTOP)
            deliveries: list[Delivery] = []
            with pytest.raises(BufferFull):
                deliveries.extend(producer.send("t", bytes(1000), timeout_s=0.5) for _ in count())
            assert producer.stats.buffered_bytes <= 8 << 20
            assert 7000 < len(deliveries) < 8400
            assert psutil.Process().memory_info().rss - before < 40 << 20
            for broker in fleet.brokers:
                broker.signal(signal.SIGCONT)
            assert len({delivery.result(30)[1:] for delivery in deliveries}) == len(deliveries)
            assert producer.stats.buffered_bytes == 0


def test_recreated_topic_gets_only_its_own_records(tmp_path: Path) -> None:
    with Fleet(tmp_path) as fleet:
        fleet.create("t", 1)
        with open_producer(fleet.url, "direct") as producer:
            assert producer.send("t", b"old").result(10).offset == 0
            assert fleet.client.delete("/topics/t").status_code == 200
            with pytest.raises((DeliveryFailed, TopicMissing)):
                producer.send("t", b"lost").result(20)
            with pytest.raises(TopicMissing):
                producer.send("t", b"lost")
            fleet.create("t", 1)
            receipt = wait_until("the new topic", lambda: producer.send("t", b"new").result(20))
            assert receipt.offset == 0


def test_new_partitions_of_a_topic_get_records(tmp_path: Path) -> None:
    with Fleet(tmp_path) as fleet:
        fleet.create("t", 1)
        with open_producer(fleet.url) as producer:
            producer.send("t", b"x").result(10)
            response = fleet.client.patch("/v1/topics/t", json={"partitions": 3})
            assert response.status_code == 200, response.text
            assert producer.send("t", b"x", partition=2).result(10).offset == 0, "the producer looks a new partition up"
            found = {producer.send("t", b"x").result(10).partition for _ in range(9)}
            assert found == {0, 1, 2}
            assert fleet.client.patch("/v1/topics/t", json={"partitions": 4}).status_code == 200
            assert producer.send_many("t", [b"x"], partition=3).result(10)[0].offset == 0
            with pytest.raises(RecordInvalid, match="topic 't' has no partition 4, only 0 to 3"):
                producer.send("t", b"x", partition=4)


def test_token_can_be_used_as_soon_as_it_is_created(tmp_path: Path) -> None:
    """Brokers learn of tokens within about two seconds; direct clients do not notice."""
    with Fleet(tmp_path, environment=ENVIRONMENT) as fleet:
        fleet.create("t", PARTITIONS)
        made = fleet.client.post("/v1/tokens", json={"name": "x", "grants": ["produce:t"]})
        token = made.raise_for_status().json()["token"]
        with open_producer(fleet.url, "direct", token=token) as producer:
            assert producer.send("t", b"x").result(10).offset == 0
        with open_producer(fleet.url, token="wrong") as producer, pytest.raises(NotAllowed):  # noqa: S106 - it is
            producer.send("t", b"x")


def test_quota_slows_clients_down_without_loss(tmp_path: Path) -> None:
    """Producers and consumers wait after a 429, on both routes; all records arrive once, in order."""
    values = [b"%d " % number + bytes(1000) for number in range(3000)]
    with Fleet(tmp_path, environment=ENVIRONMENT) as fleet:
        limits = {"bytes_per_s": 1 << 20, "grants": ["produce", "consume"], "name": "slow"}
        token = fleet.client.post("/v1/tokens", json=limits).raise_for_status().json()["token"]
        for route in ("direct", "gateway"):
            fleet.create(route, 1)
            with open_producer(fleet.url, route, token=token, batch_bytes=100_000) as producer:
                producer.send_many(route, values)
                producer.flush(60)
                assert producer.stats.acknowledged == len(values)
            with Client(fleet.url, route=route, token=token) as client:
                records = client.consumer(route, fetch_bytes=200_000).records(until="end")
                assert [one.value for one in records] == values
