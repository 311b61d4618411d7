"""A whole cluster on this machine, over HTTP: single messages, and batches through a manager compared with direct ones.

Three brokers, a writer, two readers, SQLite, one client process; each figure is from one run on one machine.

Usage: api.py [--seconds 5] [--only produce,consume,batches] [--tls]
"""

import argparse
import asyncio
import os
import ssl
import sys
import tempfile
import time
from pathlib import Path
from typing import Self

import psutil
import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from measurement import append, cpu, percentiles, raw_rate

from flotilla.net import Connection
from support import certificates
from support.fleet import Fleet

PARTITIONS = 4
RECORD_BYTES = 100
CONNECTIONS = (1, 10, 50)


def main() -> None:
    """Parse the command line and run the selected measurements."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="duration of each measurement")
    parser.add_argument("--only", default="produce,consume,batches", help="measurements to run")
    parser.add_argument("--batch", type=int, default=1000, help="records per batch")
    parser.add_argument("--database", help="URL of a PostgreSQL database to use instead of SQLite")
    parser.add_argument("--tls", action="store_true", help="use TLS for all connections")
    options = parser.parse_args()
    wanted = options.only.split(",")
    uvloop.install()
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as folder:
        print(f"raw: {raw_rate(Path(folder)):.0f} MB/s append + fdatasync of 1 MiB")
        tls = certificates.write(Path(folder) / "tls", certificates.make_authority()) if options.tls else None
        with Fleet(Path(folder) / "fleet", database=options.database, tls=tls) as fleet:
            fleet.create("t", PARTITIONS)
            for count in CONNECTIONS if {"produce", "consume"} & set(wanted) else ():
                asyncio.run(produce(fleet, count, options.seconds))
                if "consume" in wanted:
                    asyncio.run(consume(fleet, count, options.seconds))
            if "batches" in wanted:
                direct = asyncio.run(batches(fleet, direct=True, seconds=options.seconds, records=options.batch))
                through = asyncio.run(batches(fleet, direct=False, seconds=options.seconds, records=options.batch))
                print(f"batches through a manager: {through / direct:.0%} of direct to brokers")


async def produce(fleet: Fleet, count: int, seconds: float) -> None:
    """Produce single messages, one at a time on each connection."""
    took: list[float] = []
    until = time.perf_counter() + seconds
    with Usage(fleet) as usage:
        await asyncio.gather(*(_produce(fleet, fleet.producer("t"), until, took) for _ in range(count)))
    print(f"produce, {count} connections: {len(took) / seconds:,.0f}/s, {percentiles(took)}; {usage}")


async def _produce(fleet: Fleet, producer: str, until: float, took: list[float]) -> None:
    connection = await Connection.open(fleet.url, tls=trusted(fleet))
    body = b'{"topic": "t", "producer_id": "%s", "message": "%s"}' % (producer.encode(), b"m" * RECORD_BYTES)
    while time.perf_counter() < until:
        began = time.perf_counter()
        response = await connection.request("POST", "/producer/produce", body)
        took.append(time.perf_counter() - began)
        assert response.status == 200, response.body
    connection.close()


async def consume(fleet: Fleet, count: int, seconds: float) -> None:
    """Consume single messages, one at a time with each consumer."""
    took: list[float] = []
    consumers = [fleet.consumer("t") for _ in range(count)]
    until = time.perf_counter() + seconds
    with Usage(fleet) as usage:
        await asyncio.gather(*(_consume(fleet, consumer, until, took) for consumer in consumers))
    print(f"consume, {count} connections: {len(took) / seconds:,.0f}/s, {percentiles(took)}; {usage}")


async def _consume(fleet: Fleet, consumer: str, until: float, took: list[float]) -> None:
    connection = await Connection.open(fleet.url, tls=trusted(fleet))
    target = f"/consumer/consume?topic=t&consumer_id={consumer}"
    while time.perf_counter() < until:
        began = time.perf_counter()
        response = await connection.request("GET", target)
        if response.status != 200:
            assert b"No logs" in response.body, response.body
            break
        took.append(time.perf_counter() - began)
    connection.close()


async def batches(fleet: Fleet, *, direct: bool, seconds: float, records: int) -> float:
    """Send batches on three connections per partition, to brokers or to a manager; return records per second."""
    leaders = {one["partition_index"]: one["leader"] for one in fleet.get("/topics/t/partitions")["partitions"]}
    urls = {broker.id: broker.url for broker in fleet.brokers}
    took: list[float] = []
    until = time.perf_counter() + seconds
    began = time.perf_counter()
    with Usage(fleet) as usage:
        tasks = [
            append(
                urls[leaders[partition]] if direct else fleet.url,
                partition,
                records,
                RECORD_BYTES,
                until,
                took,
                trusted(fleet),
            )
            for partition in range(PARTITIONS)
            for _ in range(3)
        ]
        await asyncio.gather(*tasks)
    rate = len(took) * records / (time.perf_counter() - began)
    way = "direct to brokers" if direct else "through a manager"
    megabytes = rate * RECORD_BYTES / 1e6
    print(f"batches {way}: {rate:,.0f} records/s, {megabytes:.0f} MB/s, {percentiles(took)}; {usage}")
    return rate


def trusted(fleet: Fleet) -> ssl.SSLContext | None:
    """Return the TLS context of the client."""
    return None if fleet.tls is None else fleet.tls.client


class Usage:
    """CPU usage of all processes during a measurement, as shares of a core."""

    def __init__(self, fleet: Fleet) -> None:
        self._kinds = {
            "readers": [psutil.Process(one.pid) for one in fleet.readers],
            "writer": [psutil.Process(fleet.writer.pid)],
            "brokers": [psutil.Process(one.pid) for one in fleet.brokers],
            "client": [psutil.Process()],
        }
        self._text = ""

    def _cpu(self) -> dict[str, float]:
        return {kind: sum(cpu(process) for process in processes) for kind, processes in self._kinds.items()}

    def __enter__(self) -> Self:
        self._began, self._before = time.perf_counter(), self._cpu()
        return self

    def __exit__(self, *_: object) -> None:
        elapsed = time.perf_counter() - self._began
        shares = {kind: (spent - self._before[kind]) / elapsed for kind, spent in self._cpu().items()}
        self._text = "CPU " + ", ".join(f"{kind} {share:.0%}" for kind, share in shares.items())

    def __str__(self) -> str:
        return self._text


if __name__ == "__main__":
    main()
