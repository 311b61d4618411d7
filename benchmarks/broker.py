"""Three brokers on this machine, one client process over HTTP: throughput, latency, idle cost, time until ready.

Each figure is from one run on one machine, next to the raw disk rate of the same run.

Usage: broker.py [--seconds 5] [--only throughput,latency,idle,settle]
"""

import argparse
import asyncio
import os
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from measurement import append, cpu, percentiles, raw_rate

from flotilla.net import Connection
from flotilla.records import encode
from support.cluster import BrokerProcess, Cluster, wait_until

PARTITIONS = 4
RECORD_BYTES = 100


def main() -> None:
    """Parse the command line and run the selected measurements."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="duration of each measurement")
    parser.add_argument("--only", default="latency,throughput,idle,settle", help="measurements to run")
    parser.add_argument("--batch", type=int, default=1000, help="records per batch")
    parser.add_argument("--connections", type=int, default=3, help="connections per partition")
    options = parser.parse_args()
    wanted = options.only.split(",")
    uvloop.install()
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as folder:
        if {"latency", "throughput"} & set(wanted):
            with Cluster(Path(folder) / "load") as cluster:
                cluster.create("t", PARTITIONS)
                leaders = [cluster.leader(partition) for partition in range(PARTITIONS)]
                print(f"raw: {raw_rate(Path(folder)):.0f} MB/s append + fdatasync of 1 MiB")
                if "latency" in wanted:
                    asyncio.run(latency(leaders[0], options.seconds))
                if "throughput" in wanted:
                    with used(cluster.brokers) as usage:
                        asyncio.run(throughput(leaders, options.seconds, options.batch, options.connections, usage))
        if {"idle", "settle"} & set(wanted):
            with Cluster(Path(folder) / "many") as cluster:
                many(cluster, options.seconds, wanted)


async def latency(leader: BrokerProcess, seconds: float) -> None:
    """Append single records one at a time, each acknowledged by a quorum of disks."""
    connection = await Connection.open(leader.url)
    body = encode([bytes(RECORD_BYTES)])
    took: list[float] = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        began = time.perf_counter()
        response = await connection.request("POST", "/v1/append?topic=t&partition=0", body)
        took.append(time.perf_counter() - began)
        assert response.status == 200, response.body
    connection.close()
    print(f"single append: {len(took) / seconds:.0f}/s, {percentiles(took)}")


async def throughput(
    leaders: list[BrokerProcess], seconds: float, records: int, connections: int, usage: dict[str, float]
) -> None:
    """Append batches of several producers, one at a time on each connection."""
    took: list[float] = []
    stop_at = time.perf_counter() + seconds
    began = time.perf_counter()
    tasks = [
        append(leader.url, partition, records, RECORD_BYTES, stop_at, took)
        for partition, leader in enumerate(leaders)
        for _ in range(connections)
    ]
    await asyncio.gather(*tasks)
    elapsed = time.perf_counter() - began
    rate = len(took) * records / elapsed
    usage["records"] = len(took) * records
    print(
        f"throughput: {rate:,.0f} records/s, {rate * RECORD_BYTES / 1e6:.0f} MB/s in batches of {records} x "
        f"{RECORD_BYTES} B, {len(tasks)} connections, {percentiles(took)}"
    )


@contextmanager
def used(brokers: list[BrokerProcess]) -> Iterator[dict[str, float]]:
    """Measure the CPU usage of brokers during the block."""
    usage: dict[str, float] = {"records": 0}
    processes = [psutil.Process(broker.pid) for broker in brokers]
    before = [cpu(process) for process in processes]
    own = time.process_time()
    yield usage
    million = usage["records"] / 1e6
    spent = [cpu(process) - start for process, start in zip(processes, before, strict=True)]
    rss = max(process.memory_info().rss for process in processes) / 1e6
    print(
        f"CPU per million records: brokers {sum(spent) / million:.2f} s, "
        f"client {(time.process_time() - own) / million:.2f} s; "
        f"largest broker {rss:.0f} MB, client {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3:.0f} MB"
    )


def many(cluster: Cluster, seconds: float, wanted: list[str]) -> None:
    """Measure 300 partitions: CPU usage while idle, and the time until all are ready after a restart."""
    count = 300
    cluster.create("t", count)
    wait_settled(cluster, count)
    if "idle" in wanted:
        processes = [psutil.Process(broker.pid) for broker in cluster.brokers]
        time.sleep(2)
        before = [cpu(process) for process in processes]
        time.sleep(seconds)
        shares = [(cpu(process) - start) / seconds * 100 for process, start in zip(processes, before, strict=True)]
        print(f"{count} idle partitions: {', '.join(f'{share:.1f} %' for share in shares)} of a core per broker")
    if "settle" in wanted:
        for broker in cluster.brokers:
            broker.kill()
        began = time.monotonic()
        for broker in cluster.brokers:
            broker.start()
        for broker in cluster.brokers:
            broker.wait_alive()
        alive = time.monotonic() - began
        wait_settled(cluster, count)
        print(
            f"restart of all: processes answer after {alive:.1f} s, all leaders after {time.monotonic() - began:.1f} s"
        )


def wait_settled(cluster: Cluster, count: int) -> None:
    """Wait until each partition has a leader that has committed in its term."""

    def settled() -> bool:
        replicas = [replica for broker in cluster.brokers for replica in broker.get("/v1/replicas")["replicas"]]
        return len({replica["partition"] for replica in replicas if replica["settled"]}) == count

    wait_until("leaders of all partitions", settled, 60)


if __name__ == "__main__":
    main()
