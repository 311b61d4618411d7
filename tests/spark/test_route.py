"""`route`: each record goes to the topic of its rule once, and records that do not parse to the dead letters."""

import json
import signal
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from flotilla import Client
from flotilla_spark.errors import JobFailed, PatternInvalid, RuleInvalid
from flotilla_spark.failures import summarize_failure
from support.fleet import Fleet
from support.sparkapps import LIMIT_S, child, fetch, kill, run, send, start

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")

ERRORS = "level = 'ERROR'"


def make(client: Client, name: str, count: int = 100) -> tuple[str, str, str]:
    """Create the output topics, and an input where every tenth line is an error and every seventh does not parse."""
    lines = [
        b"broken %d \xff" % at
        if at % 7 == 0
        else json.dumps({"level": "error" if at % 10 == 1 else "info", "message": str(at)}).encode()
        for at in range(count)
    ]
    send(
        client,
        name,
        lines,
        2,
        keys=[b"key %d" % at for at in range(count)],
        headers=[(("at", b"%d" % at),) for at in range(count)],
    )
    targets = (f"{name}-alerts", f"{name}-dead", f"{name}-others")
    for target in targets:
        client.topics.create(target, partitions=2)
    return targets


def numbers(client: Client, topic: str) -> list[int]:
    return sorted(int(dict(record.headers)["at"]) for record in fetch(client, topic))


def expect(client: Client, targets: tuple[str, str, str], count: int) -> None:
    broken = [at for at in range(count) if at % 7 == 0]
    errors = [at for at in range(count) if at % 7 and at % 10 == 1]
    rest = [at for at in range(count) if at % 7 and at % 10 != 1]
    assert [numbers(client, one) for one in targets] == [errors, broken, rest]


def flags(name: str, targets: tuple[str, str, str], checkpoint: Path) -> tuple[object, ...]:
    alerts, dead, others = targets
    where = ("--rule", f"{alerts}={ERRORS}", "--dead-letters", dead, "--others", others)
    return (name, *where, "--checkpoint", checkpoint)


def test_records_are_routed_by_rules_and_dead_letters_have_a_reason(
    spark: SparkSession, fleet: Fleet, client: Client, name: str, tmp_path: Path
) -> None:
    targets = make(client, name)
    run(spark, "route", *flags(name, targets, tmp_path / "c"), "--url", fleet.url, "--once")
    expect(client, targets, 100)
    before = {(one.partition, one.offset): one for one in fetch(client, name)}
    for letter in fetch(client, targets[1]):
        headers = dict(letter.headers)
        topic, partition, offset = headers.pop("origin").decode().split("/")
        origin = before[int(partition), int(offset)]
        assert (topic, headers.pop("problem")) == (name, b"not valid UTF-8")
        assert (letter.key, letter.value, headers) == (origin.key, origin.value, dict(origin.headers))
    for alert in fetch(client, targets[0]):
        assert list(dict(alert.headers)) == ["at"]


def test_restarted_route_delivers_each_record_once(
    spark: SparkSession, fleet: Fleet, client: Client, name: str, tmp_path: Path
) -> None:
    """A micro-batch that was written but not committed is written again, and stored once."""
    count = 400
    targets = make(client, name, count)
    mine = (*flags(name, targets, tmp_path / "c"), "--url", fleet.url, "--at-most", 50)
    work = start(spark, "route", *mine, "--every", "1s")
    until_s = time.monotonic() + LIMIT_S
    while not (tmp_path / "c" / "commits" / "1").exists():
        work.wait(0.05)
        assert time.monotonic() < until_s
    work.stop()
    last = max(int(path.name) for path in (tmp_path / "c" / "commits").glob("[0-9]*"))
    for path in (f"{last}", f".{last}.crc"):  # as if killed between write and commit
        (tmp_path / "c" / "commits" / path).unlink()
    run(spark, "route", *mine, "--once")
    expect(client, targets, count)


def test_rules_apply_to_unparsed_records_without_dead_letters(
    spark: SparkSession, fleet: Fleet, client: Client, name: str, tmp_path: Path
) -> None:
    targets = make(client, name, 20)
    rules = ("--rule", f"{targets[0]}=problem is not null and partition >= 0", "--rule", f"{targets[2]}=message = '2'")
    run(spark, "route", name, *rules, "--url", fleet.url, "--checkpoint", tmp_path / "c", "--once")
    assert [numbers(client, one) for one in targets] == [[0, 7, 14], [], [2]]


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ("levle = 'ERROR'", "`levle` cannot be resolved"),
        ("level = ", "Syntax error at or near end of input"),
        ("upper(level)", "expected a boolean condition, got type string"),
        ("rand() < 0.5", "not deterministic"),
        ("count(*) > 1", "count"),
    ],
)
def test_invalid_rule_is_rejected_before_anything_is_read(
    spark: SparkSession, fleet: Fleet, client: Client, tmp_path: Path, condition: str, words: str
) -> None:
    client.topics.create("ruled", partitions=1, exist_ok=True)
    given = ("ruled", "--url", fleet.url, "--rule", f"x={condition}", "--checkpoint", tmp_path / "c")
    with pytest.raises((RuleInvalid, JobFailed)) as caught:
        run(spark, "route", *given, "--once")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "c").exists()


def test_invalid_pattern_is_rejected_before_anything_is_read(spark: SparkSession, fleet: Fleet, tmp_path: Path) -> None:
    given = ("x", "--url", fleet.url, "--format", "pattern", "--pattern", r"(?<level>\p{No})\p{Such}")
    with pytest.raises(PatternInvalid):
        run(spark, "route", *given, "--others", "y", "--checkpoint", tmp_path / "c", "--once")


def test_sigterm_stops_route_and_the_next_run_continues(
    spark: SparkSession, fleet: Fleet, client: Client, name: str, tmp_path: Path
) -> None:
    targets = make(client, name, 50)
    process = child(fleet.url, "route", *flags(name, targets, tmp_path / "c"))
    try:
        until_s = time.monotonic() + LIMIT_S
        while not fetch(client, targets[0]):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < until_s
            time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=LIMIT_S)
    finally:
        kill(process)
    assert (process.returncode, out) == (143, "")
    assert "(stopped)" in err
    assert len(err.splitlines()) == 1, err
    run(spark, "route", *flags(name, targets, tmp_path / "c"), "--url", fleet.url, "--once")
    expect(client, targets, 50)


def test_failed_query_reports_its_reason_in_one_line(fleet: Fleet, client: Client, name: str, tmp_path: Path) -> None:
    targets = make(client, name, 50)
    rule = ("--rule", f"{targets[0]}=cast(concat('x', message) as int) > 5")
    process = child(fleet.url, "route", name, *rule, "--checkpoint", tmp_path / "c", "--once")
    out, err = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, out) == (1, "")
    assert len(err.splitlines()) == 1, err
    assert err.startswith("flotilla-spark route: The value 'x")


def test_reason_of_a_failure_is_the_last_python_exception() -> None:
    text = """[STREAM_FAILED] Query terminated with exception: [PYTHON_DATA_SOURCE_ERROR] Failed
Traceback (most recent call last):
  File "x.py", line 1, in read
    raise DataLoss("gone")
pyspark_flotilla.readers.DataLoss: 3 of the records are missing: they were removed
\tat org.apache.spark.Foo(Foo.scala:1)
Caused by: java.lang.RuntimeException: other
"""
    assert summarize_failure(text) == "3 of the records are missing: they were removed"
    assert summarize_failure("[TABLE.X] no table. SQLSTATE: 42P01; line 1\nplan") == "no table."
    failed = "[STREAM_FAILED] Query [id = 1] failed: [CAST_INVALID_INPUT] no number. SQLSTATE: 22018\n\tat x"
    assert summarize_failure(failed) == "no number."
    assert summarize_failure("An error\n: x.Y: a\nCaused by: java.io.IOException: no room") == "no room"
    assert summarize_failure("") == "Spark gave no reason"
