"""The client library on the whole system, all on this machine: one process sends, until everything is acknowledged.

Three brokers, a writer, two readers, SQLite, fdatasync everywhere; 4 partitions with 3 replicas each. Each figure is
from one run on one machine; rounds take turns, and medians are shown.

Usage: client.py [--records 1000000] [--rounds 3] [--routes direct,gateway] [--only send,many,keys,latency]
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from measuring import cpu, percentiles, raw_rate

from flotilla.client.deliveries import Delivery
from flotilla.client.producer import Producer
from support.clientload import open_producer
from support.fleet import Fleet

PARTITIONS = 4
MANY = 10_000
LATENCY_PER_S = 500
LATENCY_S = 5.0


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000, help="of 100 bytes, in each round; fewer large ones")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--routes", default="direct,gateway")
    parser.add_argument("--sizes", default="100,1024", help="bytes of a record")
    parser.add_argument("--only", default="send,many,keys,latency", help="what to measure")
    parser.add_argument("--linger-ms", type=float, default=0.0)
    parser.add_argument("--batch-kib", type=int, default=1024)
    options = parser.parse_args()
    wanted, routes = options.only.split(","), options.routes.split(",")
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as folder:
        print(f"raw: {raw_rate(Path(folder)):.0f} MB/s append + fdatasync of 1 MiB")
        with Fleet(Path(folder) / "fleet") as fleet:
            fleet.create("t", PARTITIONS)
            for size in map(int, options.sizes.split(",")):
                records = max(1, options.records * 100 // size // MANY) * MANY
                for way in (way for way in ("send", "many", "keys") if way in wanted):
                    settings = {"linger_s": options.linger_ms / 1000, "batch_bytes": options.batch_kib << 10}
                    produce(fleet, routes, way, size, records, options.rounds, settings)
            if "latency" in wanted:
                for route in routes:
                    latency(fleet, route)


def produce(
    fleet: Fleet, routes: list[str], way: str, size: int, records: int, rounds: int, settings: dict[str, Any]
) -> None:
    """Send records in one way, by each route in turns, and print the medians."""
    found: dict[str, list[Round]] = {route: [] for route in routes}
    for _ in range(rounds):
        for route in routes:
            with open_producer(fleet.url, route, **settings) as producer:
                producer.send("t", b"warm").result(10)
                found[route].append(Round(fleet, producer, partial(WAYS[way], producer, size, records), records))
    for route, measured in found.items():
        rate = statistics.median(one.rate for one in measured)
        middle = min(measured, key=lambda one: abs(one.rate - rate))
        all_rates = ", ".join(f"{one.rate:,.0f}" for one in measured)
        print(f"{way} {size} B, {route}: {rate:,.0f} records/s, {rate * size / 1e6:.0f} MB/s ({all_rates}); {middle}")


class Round:
    """One measurement: from the first record until the last is acknowledged."""

    def __init__(self, fleet: Fleet, producer: Producer, send: Callable[[], object], records: int) -> None:
        kinds = {
            "client": [psutil.Process()],
            "brokers": [psutil.Process(one.pid) for one in fleet.brokers],
            "readers": [psutil.Process(one.pid) for one in fleet.readers],
        }
        before = {kind: sum(map(cpu, processes)) for kind, processes in kinds.items()}
        batches, began = producer.stats.batches, time.perf_counter()
        send()
        producer.flush()
        elapsed = time.perf_counter() - began
        assert producer.stats.acknowledged == records + 1, producer.stats
        self.rate = records / elapsed
        self.batch_records = records / (producer.stats.batches - batches)
        spent = {kind: sum(map(cpu, processes)) - before[kind] for kind, processes in kinds.items()}
        self.cpu = ", ".join(f"{kind} {seconds * 1e6 / records:.2f}" for kind, seconds in spent.items())

    def __str__(self) -> str:
        return f"{self.batch_records:,.0f} records a batch; CPU µs a record: {self.cpu}"


def send_each(producer: Producer, size: int, records: int) -> None:
    """A call for each record."""
    value = os.urandom(size)
    send = producer.send
    for _ in range(records):
        send("t", value)


def send_keys(producer: Producer, size: int, records: int) -> None:
    """A call for each record, with one of a thousand keys."""
    value = os.urandom(size)
    keys = [b"key %d" % number for number in range(1000)]
    send = producer.send
    for number in range(records):
        send("t", value, key=keys[number % 1000])


def send_many(producer: Producer, size: int, records: int) -> None:
    """A call for many records."""
    values = [os.urandom(size) for _ in range(MANY)]
    for _ in range(records // MANY):
        producer.send_many("t", values)


WAYS = {"send": send_each, "many": send_many, "keys": send_keys}


def latency(fleet: Fleet, route: str) -> None:
    """Send at a steady pace, and see how long each record takes until it is acknowledged."""
    took: list[float] = []
    with open_producer(fleet.url, route) as producer:
        producer.send("t", b"warm").result(10)
        began = time.perf_counter()
        for number in range(int(LATENCY_PER_S * LATENCY_S)):
            time.sleep(max(0.0, began + number / LATENCY_PER_S - time.perf_counter()))
            sent = time.perf_counter()
            producer.send("t", b"x" * 100).add_done_callback(partial(_note, took, sent))
        producer.flush()
    print(f"until acknowledged, {LATENCY_PER_S} records/s of 100 B, {route}: {percentiles(took)}")


def _note(took: list[float], sent: float, _: Delivery) -> None:
    took.append(time.perf_counter() - sent)


if __name__ == "__main__":
    main()
