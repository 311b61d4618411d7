"""`flotilla bench`: limits, progress and report."""

import json
import os
import signal
import threading
from dataclasses import replace

import msgspec
import pytest

from flotilla.command.bench_measure import Load, Measurement, Meter
from flotilla.command.bench_run import Plan, run, show, to_json
from flotilla.command.connection import ConnectionTarget
from flotilla.command.errors import InputInvalid
from flotilla.testing import FakeFlotilla
from support.cluster import wait_until

LOAD = Load("t", 100, records_max=1000, seconds_max=10.0, rate=500, is_each=False, compression="none")
PLAN = Plan(
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
FOUND = [
    Measurement("produce", 1_000_000, 100_000_000, 2.0, [0.010, 0.020, 0.015, 0.300]),
    Measurement("consume", 1_000_000, 100_000_000, 0.5),
    Measurement("end-to-end", 2500, 250_000, 5.0, [0.0021] * 2400 + [0.0123] * 100),
]


@pytest.mark.parametrize(
    ("records", "seconds", "done"), [(0, 0.0, 0.0), (500, 1.0, 0.5), (100, 9.0, 0.9), (1001, 0.1, 1.0), (1, 11.0, 1.0)]
)
def test_load_ends_at_its_limit_of_records_or_seconds(records: int, seconds: float, done: float) -> None:
    assert LOAD.done(records, seconds) == done


@pytest.mark.parametrize(("size", "records"), [(16, 1000), (8000, 1000), (1 << 20, 8), (7 << 20, 1), (1 << 30, 1)])
def test_calls_with_large_records_have_fewer_records(size: int, records: int) -> None:
    """Memory stays bounded, whatever the size."""
    assert replace(LOAD, size=size).call_records == records


@pytest.mark.parametrize(("size", "reason"), [(15, "at least 16 bytes"), (1 << 40, "the maximum size of a record")])
def test_bench_rejects_invalid_record_size_before_creating_a_topic(size: int, reason: str) -> None:
    with pytest.raises(InputInvalid, match=reason):
        run(ConnectionTarget("http://127.0.0.1:1"), replace(PLAN, size=size), as_json=False)


def test_meter_counts_records_and_advances_progress() -> None:
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


def test_report_has_a_row_per_measurement_and_histograms() -> None:
    lines = show(FOUND)
    assert lines[:4] == [
        "              records  seconds  records/s    MB/s  p50 ms  p95 ms  p99 ms  p99.9 ms  max ms",
        "produce     1,000,000     2.00    500,000   50.00      15     300     300       300     300",
        "consume     1,000,000     0.50  2,000,000  200.00       -       -       -         -       -",
        "end-to-end      2,500     5.00        500    0.05     2.1     2.1    12.3      12.3    12.3",
    ]
    assert [line for line in lines if ":" in line] == [
        "produce: latency from send to acknowledgement, at full speed",
        "end-to-end: latency from send to consume, at a constant rate",
    ]
    assert lines[-3:] == [
        f"  2 - 5 ms  {'█' * 40}   96.0%",
        f" 5 - 10 ms  {' ' * 40}    0.0%",
        f"10 - 20 ms  {('█' + '▊').ljust(40)}    4.0%",
    ]


def test_json_report_has_settings_and_measurements() -> None:
    captured = json.loads(json.dumps(msgspec.to_builtins(to_json(PLAN, FOUND))))
    assert (captured["size"], captured["route"]) == (100, "auto")
    produced, consumed, _ = captured["measured"]
    assert (produced["records_per_s"], consumed["latency"]) == (500_000.0, None)
    assert produced["latency"]["p50_s"] == 0.015
    assert [bucket["count"] for bucket in produced["histogram"]] == [1, 2, 0, 0, 0, 1]


def test_second_interrupt_names_the_topic_that_may_still_exist(capsys: pytest.CaptureFixture[str]) -> None:
    """The first Ctrl-C stops the measurement and deletes the topic; the second does not wait for that."""
    names: list[str] = []
    with FakeFlotilla() as fake, fake.delay(30, "/v1/topics/bench-"):
        topics = fake.client().topics

        def interrupt() -> None:
            names.extend(topic.name for topic in wait_until("the topic", topics.list))
            wait_until("records", lambda: fake.records(names[0]))
            os.kill(os.getpid(), signal.SIGINT)
            wait_until("the topic to be gone", lambda: not topics.list())
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            run(ConnectionTarget(fake.url), replace(PLAN, what=("end-to-end",), seconds=60.0), as_json=False)
        thread.join()
    assert f"delete it with `flotilla topics delete {names[0]}`" in capsys.readouterr().err
