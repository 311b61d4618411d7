"""A whole cluster under load: any process can be killed, and no acknowledged record is lost.

`KILL_SECONDS=600` keeps killing for as long.
"""

import os
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from support.cluster import wait_until
from support.fleet import Fleet
from support.load import Load
from support.process import ServerProcess
from support.simpleclients import SimpleClients, SimpleConsumer, SimpleProducer

KILL_SECONDS = float(os.environ.get("KILL_SECONDS", "8"))
QUICK = ("--heartbeat-s", "0.1", "--election-s-min", "0.5", "--election-s-max", "1.0")


def make_clients(
    fleet: Fleet, topic: str, partitions: int, *, producers: int, consumers: int, sharing: int = 1
) -> SimpleClients:
    """Register producers, and consumers of which `sharing` have the same id."""
    fleet.create(topic, partitions)
    sending = [SimpleProducer(f"p{at}", topic, partitions, fleet.producer(topic), fleet.url) for at in range(producers)]
    ids = [fleet.consumer(topic) for _ in range(consumers // sharing)]
    reading = [SimpleConsumer(f"c{at}", topic, ids[at // sharing], fleet.url) for at in range(consumers)]
    return SimpleClients(topic, partitions, fleet.brokers, sending, reading)


def wait_agreed(fleet: Fleet, topic: str, partitions: int) -> None:
    """Wait until all replicas are equal."""

    def agreed() -> bool:
        ends = []
        for broker in fleet.brokers:
            found = {
                (one["topic"], one["partition"]): (one["next_offset"], one["last_index"], one["committed_index"])
                for one in broker.get("/v1/replicas")["replicas"]
            }
            ends.append([found.get((topic, partition)) for partition in range(partitions)])
        return all(end == ends[0] for end in ends) and all(one is not None and one[1] == one[2] for one in ends[0])

    wait_until("all replicas to agree", agreed)


def test_ten_producers_and_ten_consumers_at_once(tmp_path: Path) -> None:
    """Guarantee 2, and each consumer gets every message exactly once, in each producer's order."""
    with Fleet(tmp_path) as fleet:
        clients = make_clients(fleet, "t", 3, producers=10, consumers=10)
        clients.run_while(lambda: clients.wait_progress(800))
        wait_agreed(fleet, "t", 3)
        assert clients.violations() == []
        # A manager that gets no CPU time on a busy machine may ask a consumer to retry; that must lose no message.
        assert [len(one.reads) for one in clients.consumers] == [clients.acknowledged] * 10, clients.lost


def test_consumers_that_share_an_id_get_each_message_exactly_once(tmp_path: Path) -> None:
    """While no connection or process fails, consumers that share an id get each message exactly once."""
    with Fleet(tmp_path) as fleet:
        clients = make_clients(fleet, "t", 3, producers=4, consumers=8, sharing=8)
        clients.run_while(lambda: clients.wait_progress(1000))
        wait_agreed(fleet, "t", 3)
        assert clients.violations() == []
        assert sum(len(one.reads) for one in clients.consumers) == clients.acknowledged, clients.lost
        assert sum(bool(one.reads) for one in clients.consumers) > 1


@pytest.mark.parametrize("victims", ["reader", "writer", "broker", "any", "everything"])
def test_killed_processes_lose_no_acknowledged_record(tmp_path: Path, victims: str) -> None:
    """Guarantees 1 to 5, through managers: kill -9 of each role, of any process, of all, repeatedly."""
    rng = random.Random(victims)
    with Fleet(tmp_path, broker_flags=QUICK) as fleet:
        clients = make_clients(fleet, "simple", 2, producers=3, consumers=3)
        fleet.create("programs", 2)
        load = Load("programs", 2, fleet.brokers, rng, gateways=[fleet.url], pause_s=0.005)
        kills = 0

        def kill() -> None:
            nonlocal kills
            until = time.monotonic() + KILL_SECONDS
            while time.monotonic() < until:
                clients.wait_progress(10)
                load.wait_progress(10)
                time.sleep(rng.random() * 0.3)  # a kill comes at any moment
                chosen = choose(fleet, victims, rng)
                for process in chosen:
                    process.kill()
                    kills += 1
                fleet.start()
                fleet.wait_ready()

        run_both(clients, load, kill)
        wait_agreed(fleet, "simple", 2)
        wait_agreed(fleet, "programs", 2)
        assert load.violations() == []
        assert clients.violations() == []
        assert kills >= 1
        assert fleet.get("/topics")["topics"] == ["simple", "programs"]
        print(f"{kills} kills, {load.acknowledged} records, {clients.acknowledged} messages")  # noqa: T201 - long runs


def choose(fleet: Fleet, victims: str, rng: random.Random) -> list[ServerProcess]:
    """Choose the processes to kill."""
    if victims == "everything":
        return fleet.processes
    kinds: dict[str, Sequence[ServerProcess]] = {
        "reader": fleet.readers,
        "writer": [fleet.writer],
        "broker": fleet.brokers,
        "any": fleet.processes,
    }
    return [rng.choice(kinds[victims])]


def run_both(clients: SimpleClients, load: Load, disturb: Callable[[], object]) -> None:
    """Run `disturb` under both kinds of load."""
    load.run_while(lambda: clients.run_while(disturb))
