"""Percentiles and text histograms of latencies. Pure.

A percentile is one of the samples (nearest rank), never interpolated. Bucket bounds grow as 1, 2, 5, 10: latencies
spread over powers of ten, and equal buckets would put nearly all samples into one.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

_STEPS = (1, 2, 5)
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_US = 1e-6


@dataclass(frozen=True)
class Latencies:
    """Percentiles of latencies, in seconds."""

    count: int
    p50_s: float
    p95_s: float
    p99_s: float
    p999_s: float
    max_s: float

    @classmethod
    def of(cls, latencies_s: Sequence[float]) -> "Latencies | None":
        """Compute the percentiles; None without samples."""
        if not latencies_s:
            return None
        ordered = sorted(latencies_s)
        return cls(
            count=len(ordered),
            p50_s=percentile(ordered, 50.0),
            p95_s=percentile(ordered, 95.0),
            p99_s=percentile(ordered, 99.0),
            p999_s=percentile(ordered, 99.9),
            max_s=ordered[-1],
        )


@dataclass(frozen=True)
class Bucket:
    """Number of samples in (above_s, upto_s]."""

    above_s: float
    upto_s: float
    count: int


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Return a percentile of sorted samples, by nearest rank; there must be at least one."""
    # Rounded, because 99.9 is not exact in binary: rank 999 of 1000 must not become 1000.
    rank = math.ceil(round(percent / 100 * len(ordered), 6))
    return ordered[max(rank, 1) - 1]


def make_buckets(latencies_s: Sequence[float]) -> list[Bucket]:
    """Count samples per bucket, from the first non-empty bucket to the last."""
    if not latencies_s:
        return []
    ordered = sorted(latencies_s)
    bounds = _bounds(ordered[0], ordered[-1])
    ranks = [bisect_left(ordered, math.nextafter(bound, math.inf)) for bound in bounds]
    return [
        Bucket(bounds[at], bounds[at + 1], ranks[at + 1] - (ranks[at] if at else 0)) for at in range(len(bounds) - 1)
    ]


def _bounds(smallest: float, largest: float) -> list[float]:
    """List bounds of 1, 2 or 5 times a power of ten that enclose the samples."""
    exponent = math.floor(math.log10(max(smallest, _US)))
    series = [float(f"{step}e{exponent + more}") for more in range(-1, 14) for step in _STEPS]
    below = max((at for at, bound in enumerate(series) if bound < smallest), default=0)
    above = next(at for at, bound in enumerate(series) if bound >= largest and at > below)
    return series[below : above + 1]


def draw(buckets: Sequence[Bucket], width: int = 40) -> list[str]:
    """Draw a bar for each bucket, the longest with the given width."""
    if not buckets:
        return []
    names = [f"{format_ms(one.above_s)} - {format_ms(one.upto_s)} ms" for one in buckets]
    room, most = max(map(len, names)), max(one.count for one in buckets)
    total = sum(one.count for one in buckets)
    return [
        f"{name:>{room}}  {_bar(one.count / most, width)}  {one.count / total:6.1%}"
        for name, one in zip(names, buckets, strict=True)
    ]


def _bar(part: float, width: int) -> str:
    eighths = math.ceil(part * width * 8)  # a count above 0 is always visible
    full, rest = divmod(eighths, 8)
    return (_EIGHTHS[8] * full + (_EIGHTHS[rest] if rest else "")).ljust(width)


def format_ms(seconds: float) -> str:
    """Format a time in milliseconds, with three significant digits."""
    return f"{float(f'{seconds * 1000:.3g}'):,.10g}"
