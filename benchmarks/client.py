"""The client library with a whole cluster on this machine: one process produces, consumes, and does both.

Three brokers, a writer, two readers, SQLite, fdatasync for all writes; 4 partitions with 3 replicas each. Rounds
alternate, and each figure is the median of one run on one machine. A record counts as sent when it is acknowledged.

Usage: client.py [--records 1000000] [--rounds 3] [--routes direct,gateway] [--only send,many,keys,consume,latency]
"""

import argparse
import os
import statistics
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from measurement import cpu, percentiles, raw_rate

from flotilla import Client, Consumer, Delivery, Producer
from support.clientload import open_producer
from support.fleet import Fleet

PARTITIONS = 4
MANY = 10_000
LATENCY_PER_S = 500
LATENCY_S = 5.0


def main() -> None:
    """Parse the command line and run the selected measurements."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000, help="100-byte records per round; fewer larger ones")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--routes", default="direct,gateway")
    parser.add_argument("--sizes", default="100,1024", help="bytes of a record")
    parser.add_argument("--only", default="send,many,keys,consume,latency", help="measurements to run")
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
                if "consume" in wanted:
                    consume(fleet, routes, size, 2 * records, options.rounds)
            if "latency" in wanted:
                for route in routes:
                    latency(fleet, route)


def produce(
    fleet: Fleet, routes: list[str], way: str, size: int, records: int, rounds: int, settings: dict[str, Any]
) -> None:
    """Send records by each route in alternating rounds, and print the medians."""
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
    """One measurement, from the first record until the last acknowledgement."""

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
    """Call `send` for each record."""
    value = os.urandom(size)
    send = producer.send
    for _ in range(records):
        send("t", value)


def send_keys(producer: Producer, size: int, records: int) -> None:
    """Call `send` for each record, with one of a thousand keys."""
    value = os.urandom(size)
    keys = [b"key %d" % number for number in range(1000)]
    send = producer.send
    for number in range(records):
        send("t", value, key=keys[number % 1000])


def send_many(producer: Producer, size: int, records: int) -> None:
    """Call `send_many`."""
    values = [os.urandom(size) for _ in range(MANY)]
    for _ in range(records // MANY):
        producer.send_many("t", values)


WAYS = {"send": send_each, "many": send_many, "keys": send_keys}


def columns(consumer: Consumer) -> Iterator[int]:
    """Read batches as columns, as for Arrow and pandas."""
    for batch in consumer.batches(until="end"):
        yield len(batch)


def lists(consumer: Consumer) -> Iterator[int]:
    """Read batches, and convert each value to a Python object."""
    for batch in consumer.batches(until="end"):
        yield len(batch.values)


def records(consumer: Consumer) -> Iterator[int]:
    """Iterate over records."""
    yield sum(1 for _ in consumer.records(until="end"))


def consume(fleet: Fleet, routes: list[str], size: int, count: int, rounds: int) -> None:
    """Fill a topic, read it in each way by each route in alternating rounds, and print the medians."""
    topic = f"full-{size}"
    fleet.create(topic, PARTITIONS)
    values = [os.urandom(size) for _ in range(MANY)]
    with open_producer(fleet.url, "direct") as producer:
        for _ in range(count // MANY):
            producer.send_many(topic, values)
    for way in (columns, lists, records):
        found: dict[str, list[tuple[float, float]]] = {route: [] for route in routes}
        for _ in range(rounds):
            for route in routes:
                found[route].append(_read(fleet.url, route, topic, way, count))
        for route, measured in found.items():
            rates, used = zip(*measured, strict=True)
            rate = statistics.median(rates)
            print(
                f"consume {size} B as {way.__name__}, {route}: {rate:,.0f} records/s, {rate * size / 1e6:,.0f} MB/s"
                f" ({', '.join(f'{one:,.0f}' for one in rates)}); CPU of the client {statistics.median(used):.0%}"
            )


def _read(
    url: str, route: str, topic: str, way: Callable[[Consumer], Iterator[int]], count: int
) -> tuple[float, float]:
    process = psutil.Process()
    with Client(url, route=route) as client, client.consumer(topic, prefetch_bytes=64 << 20) as consumer:
        began, used = time.perf_counter(), cpu(process)
        assert sum(way(consumer)) == count
        took, used = time.perf_counter() - began, cpu(process) - used
    return count / took, used / took


def latency(fleet: Fleet, route: str) -> None:
    """Send at a constant rate; measure the time until each record is acknowledged, and until it is consumed."""
    acknowledged: list[float] = []
    consumed: list[float] = []
    total = int(LATENCY_PER_S * LATENCY_S)
    with Client(fleet.url, route=route) as client, client.producer() as producer:
        for partition in range(PARTITIONS):
            producer.send("t", b"warm", partition=partition).result(10)
        with client.consumer("t", start="latest") as consumer:
            reader = threading.Thread(target=_receive, args=(consumer, total, consumed))
            reader.start()
            began = time.perf_counter()
            for number in range(total):
                time.sleep(max(0.0, began + number / LATENCY_PER_S - time.perf_counter()))
                sent = time.perf_counter()
                delivery = producer.send("t", struct.pack("<d", sent) + b"x" * 92, partition=number % PARTITIONS)
                delivery.add_done_callback(partial(_note, acknowledged, sent))
            producer.flush()
            reader.join()
    for what, took in (("acknowledged", acknowledged), ("consumed", consumed)):
        print(f"until {what}, {LATENCY_PER_S} records/s of 100 B, {route}: {percentiles(took)}")


def _receive(consumer: Consumer, total: int, took: list[float]) -> None:
    records = consumer.records(max_records=total, timeout_s=10)
    took.extend(time.perf_counter() - struct.unpack_from("<d", record.value)[0] for record in records)


def _note(took: list[float], sent: float, _: Delivery) -> None:
    took.append(time.perf_counter() - sent)


if __name__ == "__main__":
    main()
