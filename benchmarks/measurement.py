"""Common measurements: raw disk rate, percentiles, CPU usage."""

import os
import secrets
import ssl
import statistics
import time
from pathlib import Path

import psutil

from flotilla.net import Connection
from flotilla.records import encode

_MIB = 1 << 20


def raw_rate(folder: Path) -> float:
    """Write and sync 1 MiB at a time for a second; return MB/s."""
    block = os.urandom(_MIB)
    fd = os.open(folder / "raw", os.O_WRONLY | os.O_CREAT)
    began, written = time.perf_counter(), 0
    while time.perf_counter() - began < 1:
        written += os.write(fd, block)
        os.fdatasync(fd)
    os.close(fd)
    return written / (time.perf_counter() - began) / 1e6


def cpu(process: psutil.Process) -> float:
    """Return the CPU seconds of a process."""
    times = process.cpu_times()
    return float(times.user + times.system)


def percentiles(took: list[float]) -> str:
    """Format the 50th and 99th percentile."""
    cuts = statistics.quantiles(took, n=100)
    return f"p50 {cuts[49] * 1e3:.2f} ms, p99 {cuts[98] * 1e3:.2f} ms"


async def append(
    url: str,
    partition: int,
    records: int,
    record_bytes: int,
    stop_at: float,
    took: list[float],
    tls: ssl.SSLContext | None = None,
) -> None:
    """Send batches of topic t one at a time to a broker or a manager; record the latency of each."""
    connection = await Connection.open(url, tls=tls)
    producer, sequence = secrets.token_bytes(16), 0
    values = [os.urandom(record_bytes) for _ in range(records)]
    while time.perf_counter() < stop_at:
        body = encode(values, producer_id=producer, base_sequence=sequence)
        sequence += records
        began = time.perf_counter()
        response = await connection.request("POST", f"/v1/append?topic=t&partition={partition}", body)
        took.append(time.perf_counter() - began)
        assert response.status == 200, response.body
    connection.close()
