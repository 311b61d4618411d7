"""Percentiles and histograms of latencies."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flotilla.command.histogram import Bucket, Latencies, draw, format_ms, make_buckets, percentile

TIMES = st.lists(st.floats(min_value=0.0, max_value=1000.0), min_size=1, max_size=50)


def test_percentile_is_the_nearest_rank() -> None:
    hundred = [float(number) for number in range(1, 101)]
    assert [percentile(hundred, percent) for percent in (0, 1, 50, 95, 99, 99.9, 100)] == [1, 1, 50, 95, 99, 100, 100]
    thousand = [float(number) for number in range(1, 1001)]
    assert percentile(thousand, 99.9) == 999
    assert percentile([7.0], 50) == 7


@given(TIMES, st.floats(min_value=0.0, max_value=100.0))
def test_percentile_is_a_sample_and_covers_its_share(took: list[float], percent: float) -> None:
    found = percentile(sorted(took), percent)
    assert found in took
    assert sum(one <= found for one in took) >= percent / 100 * len(took) - 1e-4


def test_latencies_do_not_depend_on_order() -> None:
    assert Latencies.of([3.0, 1.0, 2.0]) == Latencies(3, 2.0, 3.0, 3.0, 3.0, 3.0)
    assert Latencies.of([]) is None


def test_bucket_bounds_grow_as_1_2_5() -> None:
    assert make_buckets([0.001, 0.0011, 0.002, 0.004, 0.03]) == [
        Bucket(0.0005, 0.001, 1),
        Bucket(0.001, 0.002, 2),
        Bucket(0.002, 0.005, 1),
        Bucket(0.005, 0.01, 0),
        Bucket(0.01, 0.02, 0),
        Bucket(0.02, 0.05, 1),
    ]
    assert make_buckets([]) == []


@given(TIMES)
def test_each_sample_is_in_exactly_one_bucket(took: list[float]) -> None:
    buckets = make_buckets(took)
    assert sum(one.count for one in buckets) == len(took)
    assert all(one.upto_s == other.above_s for one, other in pairwise(buckets))
    assert buckets[-1].upto_s >= max(took)
    for at, one in enumerate(buckets):
        assert one.count == sum((at == 0 or one.above_s < time) and time <= one.upto_s for time in took)


def test_histogram_shows_every_non_empty_bucket() -> None:
    buckets = [Bucket(0.0005, 0.001, 1), Bucket(0.001, 0.002, 499), Bucket(0.002, 0.005, 0), Bucket(0.5, 1.0, 250)]
    assert draw(buckets, width=8) == [
        "    0.5 - 1 ms  ▏           0.1%",
        "      1 - 2 ms  ████████   66.5%",
        "      2 - 5 ms              0.0%",
        "500 - 1,000 ms  ████▏      33.3%",
    ]
    assert draw([]) == []


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0"), (0.0000123456, "0.0123"), (0.00123456, "1.23"), (0.1, "100"), (0.99999, "1,000"), (12.3456, "12,300")],
)
def test_milliseconds_have_three_significant_digits(seconds: float, text: str) -> None:
    assert format_ms(seconds) == text
