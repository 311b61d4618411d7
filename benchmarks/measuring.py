"""What benchmarks share: the raw disk, percentiles, what processes use."""

import os
import statistics
import time
from pathlib import Path

import psutil

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
    """CPU seconds of a process."""
    times = process.cpu_times()
    return float(times.user + times.system)


def percentiles(took: list[float]) -> str:
    """Half of them, and all but one of a hundred, were faster than this."""
    cuts = statistics.quantiles(took, n=100)
    return f"p50 {cuts[49] * 1e3:.2f} ms, p99 {cuts[98] * 1e3:.2f} ms"
