"""One process reads a topic: as a table, as columns of batches, as lists of values, record by record.

A whole cluster on this machine: 4 partitions with 3 replicas each, filled before. Rounds alternate, and medians are
shown; compare them within one run.

Usage: tables.py [--records 1000000] [--bytes 100] [--batch 5000] [--rounds 5] [--routes direct,gateway]
                 [--compression none]
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import pyarrow as pa
from measurement import cpu

from flotilla import Client
from support.fleet import Fleet

PARTITIONS = 4
TOPIC = "t"


def table(client: Client) -> int:
    """Read a table with all columns."""
    return len(client.read_arrow(TOPIC, max_bytes=None))


def values(client: Client) -> int:
    """Read a table with the values only."""
    return len(client.read_arrow(TOPIC, columns=["value"], max_bytes=None))


def frame(client: Client) -> int:
    """Read a pandas DataFrame."""
    return len(client.read_pandas(TOPIC, max_bytes=None))


def to_arrow(client: Client) -> int:
    """Read the batches of a consumer as columns."""
    with client.consumer(TOPIC) as consumer:
        return len(pa.Table.from_batches(batch.to_arrow() for batch in consumer.batches(until="end")))


def lists(client: Client) -> int:
    """Read the batches of a consumer, with a Python object for each value."""
    with client.consumer(TOPIC) as consumer:
        return sum(len(batch.values) for batch in consumer.batches(until="end"))


def records(client: Client) -> int:
    """Read the records of a consumer."""
    with client.consumer(TOPIC) as consumer:
        return sum(1 for _ in consumer.records(until="end"))


WAYS: tuple[Callable[[Client], int], ...] = (table, values, frame, to_arrow, lists, records)


def fill(client: Client, options: argparse.Namespace) -> None:
    """Send records; each awaited call makes a batch."""
    texts = [b"%-*d" % (options.bytes, at) for at in range(options.batch)]
    with client.producer(compression=options.compression, batch_bytes=8 << 20) as producer:
        for at in range(options.records // options.batch):
            producer.send_many(TOPIC, texts, partition=at % PARTITIONS)
            producer.flush()


def measure(client: Client, rounds: int) -> None:
    """Read the topic in each way in alternating rounds, and print the medians."""
    process = psutil.Process()
    frame(client)  # imports the libraries
    took: dict[str, list[tuple[float, float]]] = {way.__name__: [] for way in WAYS}
    for _ in range(rounds):
        for way in WAYS:
            began, used = time.perf_counter(), cpu(process)
            total = way(client)
            seconds = time.perf_counter() - began
            took[way.__name__].append((total / seconds, (cpu(process) - used) / total * 1e6))
    for way in WAYS:
        rates = [rate for rate, _ in took[way.__name__]]
        used = statistics.median(seconds for _, seconds in took[way.__name__])
        rate = statistics.median(rates)
        print(
            f"  {way.__name__:9} {rate:11,.0f} records/s ({min(rates):,.0f} to {max(rates):,.0f}); "
            f"CPU of the client for a million: {used:.2f} s"
        )


def main() -> None:
    """Parse the command line and run the measurements."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--bytes", type=int, default=100, help="size of a record")
    parser.add_argument("--batch", type=int, default=5000, help="records per batch")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--routes", default="direct,gateway")
    parser.add_argument("--compression", default="none")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as folder,
        Fleet(Path(folder)) as fleet,
    ):
        fleet.create(TOPIC, PARTITIONS)
        with Client(fleet.url) as client:
            fill(client, options)
        for route in options.routes.split(","):
            with Client(fleet.url, route=route) as client:
                print(f"{route}, {options.records:,} records of {options.bytes} bytes in batches of {options.batch}:")
                measure(client, options.rounds)


if __name__ == "__main__":
    main()
