"""One process that consumes with the client library: records per second, as columns, as lists of values, one by one.

The whole system is on this machine: 4 partitions with 3 replicas each, filled through HTTP before the clock starts.

Usage: client_consume.py [--records 2000000] [--bytes 100] [--batch 5000] [--route direct,gateway]
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from measuring import cpu

from flotilla.client.consumer import Consumer
from flotilla.net import Connection
from flotilla.records import encode
from support.consumers import Consumers, create
from support.fleet import Fleet

PARTITIONS = 4
TOPIC = "bench"


def columns(consumer: Consumer) -> Iterator[int]:
    """Take batches as they are: what Arrow and pandas are given."""
    for batch in consumer.batches(until="end"):
        yield len(batch)


def lists(consumer: Consumer) -> Iterator[int]:
    """Take batches, and make a Python object of each value."""
    for batch in consumer.batches(until="end"):
        yield len(batch.values)


def records(consumer: Consumer) -> Iterator[int]:
    """Iterate over records."""
    yield sum(1 for _ in consumer.records(until="end"))


def measure(url: str, route: str, ways: tuple[Callable[[Consumer], Iterator[int]], ...]) -> None:
    """Read all of the topic in each way, and print the rates."""
    with Consumers(url, route) as consumers:
        for way in ways:
            process = psutil.Process()
            with consumers.make(TOPIC, prefetch_bytes=64 << 20) as consumer:
                began, used = time.perf_counter(), cpu(process)
                total = sum(way(consumer))
                took, used = time.perf_counter() - began, cpu(process) - used
            print(f"{route:8} {way.__name__:8} {total / took:12,.0f} records/s   CPU of the client {used / took:.0%}")


async def fill(url: str, partition: int, count: int, record_bytes: int, batch: int) -> None:
    """Append records to a partition."""
    connection = await Connection.open(url)
    body = bytes(encode([os.urandom(record_bytes) for _ in range(batch)]))
    for _ in range(max(1, count // batch)):
        response = await connection.request("POST", f"/v1/append?topic={TOPIC}&partition={partition}", body)
        assert response.status == 200, response.body
    connection.close()


async def fill_all(url: str, options: argparse.Namespace) -> None:
    """Append records to all partitions."""
    each = options.records // PARTITIONS
    await asyncio.gather(*(fill(url, at, each, options.bytes, options.batch) for at in range(PARTITIONS)))


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--bytes", type=int, default=100, help="of a record")
    parser.add_argument("--batch", type=int, default=5000, help="records per batch")
    parser.add_argument("--route", default="direct,gateway")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as folder,
        Fleet(Path(folder)) as fleet,
    ):
        create(fleet, TOPIC, PARTITIONS, replication=3)
        asyncio.run(fill_all(fleet.url, options))
        for route in options.route.split(","):
            measure(fleet.url, route, (columns, lists, records))


if __name__ == "__main__":
    main()
