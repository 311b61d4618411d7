"""Effect of a quota: a well-behaved client alone, with a greedy client, and with a greedy client that has a quota.

Three brokers, a writer, one reader that both clients use, SQLite; authentication is on. The well-behaved client sends
one small batch at a time on one connection. The greedy client is another process, which sends large batches on many
connections, with or without a quota. When it is rejected, it either waits as `Retry-After` says, or retries at once.
Each figure is from one run on one machine; compare the ratios.

Usage: quotas.py [--seconds 8] [--connections 16] [--rate-mib 4]
"""

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from measurement import raw_rate

from flotilla.net import Connection
from flotilla.records import encode
from support.access import ENVIRONMENT, bearer
from support.cluster import wait_until
from support.fleet import Fleet

MIB = 1 << 20
PARTITIONS = 4
POLITE = (10, 100)  # records per batch, and bytes per record
GREEDY = (1000, 1000)
TOKEN = "BENCH_TOKEN"  # noqa: S105 - the name of a variable
_REFUSED = 429


@dataclass(frozen=True)
class Figures:
    """Throughput and latency of the well-behaved client."""

    rate: float
    p50_ms: float
    p99_ms: float

    @classmethod
    def of(cls, took: list[float], seconds: float) -> "Figures":
        """Summarize the latencies of requests."""
        cuts = statistics.quantiles(took, n=100)
        return cls(len(took) / seconds, cuts[49] * 1e3, cuts[98] * 1e3)

    def beside(self, alone: "Figures") -> str:
        """Format the figures, with their ratio to those without a greedy client."""
        return (
            f"{self.rate:6,.0f}/s ({self.rate / alone.rate:4.0%})   "
            f"p50 {self.p50_ms:7.2f} ms ({self.p50_ms / alone.p50_ms:5.1f}x)   "
            f"p99 {self.p99_ms:7.2f} ms ({self.p99_ms / alone.p99_ms:5.1f}x)"
        )


def main() -> None:
    """Run the measurements, or the greedy client in its own process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=8.0, help="duration of each measurement")
    parser.add_argument("--connections", type=int, default=16, help="connections of the greedy client")
    parser.add_argument("--rate-mib", type=float, default=4.0, help="quota of the greedy client in MiB/s")
    parser.add_argument("--greedy", help=argparse.SUPPRESS)  # URL, in the process of the greedy client
    parser.add_argument("--heed", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    uvloop.install()
    if options.greedy:
        asyncio.run(be_greedy(options.greedy, options.connections, heed=options.heed))
        return
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as folder:
        print(f"raw: {raw_rate(Path(folder)):.0f} MB/s append + fdatasync of 1 MiB")
        with Fleet(Path(folder) / "fleet", readers=1, environment=ENVIRONMENT) as fleet:
            fleet.create("t", PARTITIONS)
            measure(fleet, options)


def measure(fleet: Fleet, options: argparse.Namespace) -> None:
    """Measure the well-behaved client with each kind of greedy client."""
    polite, free = make_token(fleet), make_token(fleet)
    held = make_token(fleet, bytes_per_s=int(options.rate_mib * MIB))

    def run() -> Figures:
        return asyncio.run(be_polite(fleet.url, polite, options.seconds))

    run()  # warm up
    alone = run()
    print(f"alone:                                      {alone.beside(alone)}")
    for text, token, heed in (
        ("beside a greedy client without a quota", free, False),
        ("beside one with a quota, that comes again", held, False),
        ("beside one with a quota, that waits", held, True),
    ):
        before, began = stored(fleet), time.perf_counter()
        with greedy(fleet.url, token, options.connections, heed=heed):
            found = run()
        seconds = time.perf_counter() - began
        moved = (stored(fleet) - before - found.rate * options.seconds * POLITE[0]) * GREEDY[1] / seconds / MIB
        print(f"{text + ':':43} {found.beside(alone)}   it moved {moved:.1f} MiB/s")
    again = run()
    print(f"alone again:                                {again.beside(alone)}")


def make_token(fleet: Fleet, **limits: int) -> str:
    """Create a token that the reader knows."""
    made = fleet.client.post("/v1/tokens", json={"name": "bench", "grants": ["produce:*"], **limits})
    text = str(made.raise_for_status().json()["token"])
    wait_until("the token to be known", lambda: httpx.get(f"{fleet.url}/topics", headers=bearer(text)).is_success)
    return text


def stored(fleet: Fleet) -> int:
    """Return the number of stored records."""
    return sum(int(one["next_offset"]) for one in fleet.get("/topics/t/partitions")["partitions"])


@contextmanager
def greedy(url: str, token: str, connections: int, *, heed: bool) -> Iterator[None]:
    """Run a greedy client in another process during the block."""
    command = [sys.executable, __file__, "--greedy", url, "--connections", str(connections)]
    process = subprocess.Popen(
        [*command, *(["--heed"] if heed else [])], env={**os.environ, TOKEN: token}, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()  # it has started
    try:
        yield
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


async def be_polite(url: str, token: str, seconds: float) -> Figures:
    """Send small batches one at a time."""
    took: list[float] = []
    records, size = POLITE
    body, headers = bytes(encode([os.urandom(size)] * records)), list(bearer(token).items())
    connection = await Connection.open(url)
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        sent = time.perf_counter()
        response = await connection.request("POST", "/v1/append?topic=t&partition=0", body, headers)
        took.append(time.perf_counter() - sent)
        assert response.status == 200, response.body
    connection.close()
    return Figures.of(took, time.perf_counter() - began)


async def be_greedy(url: str, connections: int, *, heed: bool) -> None:
    """Send large batches on many connections until the process is killed."""
    records, size = GREEDY
    body, headers = bytes(encode([os.urandom(size)] * records)), list(bearer(os.environ[TOKEN]).items())

    async def send(partition: int) -> None:
        connection = await Connection.open(url)
        while True:
            response = await connection.request("POST", f"/v1/append?topic=t&partition={partition}", body, headers)
            if response.status == _REFUSED and heed:
                await asyncio.sleep(int(response.headers[b"retry-after"]))

    print("begun", flush=True)
    await asyncio.gather(*(send(at % PARTITIONS) for at in range(connections)))


if __name__ == "__main__":
    main()
