"""How long things took: percentiles, and a picture of them in text. Pure.

A percentile is one of the measurements, never a value between two: the smallest that so many of 100 do not exceed.
Buckets grow as 1, 2, 5, 10: latencies spread over powers of ten, and equal steps would put nearly all into one.
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
    """What of a number of measurements is worth telling, in seconds."""

    count: int
    p50_s: float
    p95_s: float
    p99_s: float
    p999_s: float
    max_s: float

    @classmethod
    def of(cls, took_s: Sequence[float]) -> "Latencies | None":
        """Sum measurements up; None if there are none."""
        if not took_s:
            return None
        ordered = sorted(took_s)
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
    """How many measurements lie above one bound, and not above the other."""

    above_s: float
    upto_s: float
    count: int


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Find the smallest measurement that so many of a hundred do not exceed; they are in order, and some."""
    # Rounded, since 99.9 of a hundred is no number that a computer has: 999 of 1000 must not become 1000.
    rank = math.ceil(round(percent / 100 * len(ordered), 6))
    return ordered[max(rank, 1) - 1]


def make_buckets(took_s: Sequence[float]) -> list[Bucket]:
    """Count measurements by bucket: from the first that has any to the last, with empty ones between them."""
    if not took_s:
        return []
    ordered = sorted(took_s)
    bounds = _bounds(ordered[0], ordered[-1])
    ranks = [bisect_left(ordered, math.nextafter(bound, math.inf)) for bound in bounds]
    return [
        Bucket(bounds[at], bounds[at + 1], ranks[at + 1] - (ranks[at] if at else 0)) for at in range(len(bounds) - 1)
    ]


def _bounds(smallest: float, largest: float) -> list[float]:
    """List bounds of 1, 2 or 5 times a power of ten, from below the smallest to the first that reaches the largest."""
    exponent = math.floor(math.log10(max(smallest, _US)))
    series = [float(f"{step}e{exponent + more}") for more in range(-1, 14) for step in _STEPS]
    below = max((at for at, bound in enumerate(series) if bound < smallest), default=0)
    above = next(at for at, bound in enumerate(series) if bound >= largest and at > below)
    return series[below : above + 1]


def draw(buckets: Sequence[Bucket], width: int = 40) -> list[str]:
    """Draw a bar for each bucket; the longest has the width."""
    if not buckets:
        return []
    names = [f"{write_ms(one.above_s)} - {write_ms(one.upto_s)} ms" for one in buckets]
    room, most = max(map(len, names)), max(one.count for one in buckets)
    total = sum(one.count for one in buckets)
    return [
        f"{name:>{room}}  {_bar(one.count / most, width)}  {one.count / total:6.1%}"
        for name, one in zip(names, buckets, strict=True)
    ]


def _bar(part: float, width: int) -> str:
    eighths = math.ceil(part * width * 8)  # whatever is not 0 is seen
    full, rest = divmod(eighths, 8)
    return (_EIGHTHS[8] * full + (_EIGHTHS[rest] if rest else "")).ljust(width)


def write_ms(seconds: float) -> str:
    """Write a time in milliseconds, with three digits that matter."""
    return f"{float(f'{seconds * 1000:.3g}'):,.10g}"
