"""What `flotilla bench` counts, and how it tells it."""

import json

import msgspec
import pytest

from flotilla.command.benching import Plan, for_json, show
from flotilla.command.measuring import Load, Measured, Meter

LOAD = Load("t", 100, records_max=1000, seconds_max=10.0, rate=500, is_each=False, compression="none")
FOUND = [
    Measured("produce", 1_000_000, 100_000_000, 2.0, [0.010, 0.020, 0.015, 0.300]),
    Measured("consume", 1_000_000, 100_000_000, 0.5),
    Measured("end-to-end", 2500, 250_000, 5.0, [0.0021] * 2400 + [0.0123] * 100),
]


@pytest.mark.parametrize(
    ("records", "seconds", "done"), [(0, 0.0, 0.0), (500, 1.0, 0.5), (100, 9.0, 0.9), (1001, 0.1, 1.0), (1, 11.0, 1.0)]
)
def test_a_load_ends_after_so_many_records_or_so_long(records: int, seconds: float, done: float) -> None:
    assert LOAD.done(records, seconds) == done


def test_a_meter_counts_and_shows_and_tells_what_is_left() -> None:
    now = 100.0
    shown: list[tuple[int, float]] = []
    meter = Meter(LOAD, lambda records, done: shown.append((records, round(done, 6))), clock=lambda: now)
    assert meter.left == 1000
    meter.add(400)
    now += 5.0
    meter.add(0)
    assert (meter.left, meter.seconds) == (600, 5.0)
    now += 5.0
    assert meter.left == 0
    assert shown == [(400, 0.4), (0, 0.1)]


def test_the_table_has_a_row_for_each_and_a_picture_where_there_are_latencies() -> None:
    lines = show(FOUND)
    assert lines[:4] == [
        "              records  seconds  records/s    MB/s  p50 ms  p95 ms  p99 ms  p99.9 ms  max ms",
        "produce     1,000,000     2.00    500,000   50.00      15     300     300       300     300",
        "consume     1,000,000     0.50  2,000,000  200.00       -       -       -         -       -",
        "end-to-end      2,500     5.00        500    0.05     2.1     2.1    12.3      12.3    12.3",
    ]
    assert [line for line in lines if ":" in line] == [
        "produce: from the call until a record is acknowledged, at full speed",
        "end-to-end: from the call until a record is read, at a steady rate",
    ]
    assert lines[-3:] == [
        f"  2 - 5 ms  {'█' * 40}   96.0%",
        f" 5 - 10 ms  {' ' * 40}    0.0%",
        f"10 - 20 ms  {('█' + '▊').ljust(40)}    4.0%",
    ]


def test_json_has_the_settings_and_everything_that_was_found() -> None:
    plan = Plan(
        what=("produce",),
        topic=None,
        records=1000,
        seconds=5.0,
        size=100,
        partitions=4,
        replication=3,
        rate=500,
        route="auto",
        is_each=False,
        compression="none",
    )
    told = json.loads(json.dumps(msgspec.to_builtins(for_json(plan, FOUND))))
    assert (told["size"], told["route"]) == (100, "auto")
    produced, consumed, _ = told["measured"]
    assert (produced["records_per_s"], consumed["latency"]) == (500_000.0, None)
    assert produced["latency"]["p50_s"] == 0.015
    assert [bucket["count"] for bucket in produced["histogram"]] == [1, 2, 0, 0, 0, 1]
