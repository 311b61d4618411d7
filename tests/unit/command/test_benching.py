"""What `flotilla bench` counts, and how it tells it."""

import json
import os
import signal
import threading
from dataclasses import replace

import msgspec
import pytest

from flotilla.command.asking import Server
from flotilla.command.benching import Plan, for_json, run, show
from flotilla.command.errors import InputInvalid
from flotilla.command.measuring import Load, Measured, Meter
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
    Measured("produce", 1_000_000, 100_000_000, 2.0, [0.010, 0.020, 0.015, 0.300]),
    Measured("consume", 1_000_000, 100_000_000, 0.5),
    Measured("end-to-end", 2500, 250_000, 5.0, [0.0021] * 2400 + [0.0123] * 100),
]


@pytest.mark.parametrize(
    ("records", "seconds", "done"), [(0, 0.0, 0.0), (500, 1.0, 0.5), (100, 9.0, 0.9), (1001, 0.1, 1.0), (1, 11.0, 1.0)]
)
def test_a_load_ends_after_so_many_records_or_so_long(records: int, seconds: float, done: float) -> None:
    assert LOAD.done(records, seconds) == done


@pytest.mark.parametrize(("size", "records"), [(16, 1000), (8000, 1000), (1 << 20, 8), (7 << 20, 1), (1 << 30, 1)])
def test_a_call_for_large_records_has_few_of_them(size: int, records: int) -> None:
    """Memory stays bounded, whatever the size."""
    assert replace(LOAD, size=size).call_records == records


@pytest.mark.parametrize(("size", "reason"), [(15, "at least 16 bytes"), (1 << 40, "no record can be larger")])
def test_a_size_that_no_record_can_have_is_refused_before_anything_is_made(size: int, reason: str) -> None:
    with pytest.raises(InputInvalid, match=reason):
        run(Server("http://127.0.0.1:1"), replace(PLAN, size=size), as_json=False)


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
    told = json.loads(json.dumps(msgspec.to_builtins(for_json(PLAN, FOUND))))
    assert (told["size"], told["route"]) == (100, "auto")
    produced, consumed, _ = told["measured"]
    assert (produced["records_per_s"], consumed["latency"]) == (500_000.0, None)
    assert produced["latency"]["p50_s"] == 0.015
    assert [bucket["count"] for bucket in produced["histogram"]] == [1, 2, 0, 0, 0, 1]


def test_who_does_not_wait_until_its_topic_is_deleted_is_told_which_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    """A first Ctrl-C ends the measuring, and the topic is deleted; a second one does not wait for that."""
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
            run(Server(fake.url), replace(PLAN, what=("end-to-end",), seconds=60.0), as_json=False)
        thread.join()
    assert f"`flotilla topics delete {names[0]}` removes it" in capsys.readouterr().err
