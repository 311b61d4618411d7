"""`log_stats`: counts equal those of a plain Python implementation, in the table, in a topic and as Parquet."""

import json
import os
import pty
import random
import select
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from flotilla import Client
from flotilla_spark.errors import FolderInUse
from flotilla_spark.table import Group, Table
from support.fleet import Fleet
from support.sparkapps import LIMIT_S, child, fetch, json_lines, kill, run, send

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")

BEGIN = datetime(2026, 1, 31, 12, tzinfo=UTC)
BATCH = 50
LATE = timedelta(minutes=2)
WINDOW = timedelta(minutes=1)
Counts = Counter[tuple[datetime, str, str]]


def make_lines(seed: int, batches: int) -> list[tuple[datetime, str, str]]:
    """Generate lines whose time advances by a minute per batch, some of them minutes late."""
    rng = random.Random(seed)
    lines = []
    for batch in range(batches):
        for _ in range(BATCH):
            back = rng.choice([0, 0, 0, 1, 2, 4, 9])
            moment = BEGIN + timedelta(minutes=batch - back, seconds=rng.randrange(60))
            lines.append((moment, rng.choice(["info", "Warn", "ERROR"]), rng.choice(["web", "db"])))
    return lines


def count(lines: list[tuple[datetime, str, str]], runs_end: int) -> tuple[Counts, datetime, int]:
    """Count as Spark does: a line is late if its window was complete before its own micro-batch.

    At the end of a run there is one more micro-batch, without lines.
    """
    counts: Counts = Counter()
    before = edge = datetime.min.replace(tzinfo=UTC)
    late = 0
    for first in range(0, len(lines), BATCH):
        before = edge if first == runs_end else before
        batch = lines[first : first + BATCH]
        for moment, level, source in batch:
            window = moment.replace(second=0, microsecond=0)
            if window + WINDOW <= before:
                late += 1
            else:
                counts[window, level.upper(), source] += 1
        before, edge = edge, max(edge, max(moment for moment, _, _ in batch) - LATE)
    return counts, edge, late


def produce(client: Client, name: str, lines: list[tuple[datetime, str, str]]) -> None:
    rows = [{"time": moment.isoformat(), "level": level, "source": source} for moment, level, source in lines]
    send(client, name, json_lines(rows))


def test_windows_are_written_once_to_topics_and_parquet_when_they_are_complete(
    spark: SparkSession, fleet: Fleet, client: Client, name: str, tmp_path: Path
) -> None:
    """Over several runs, and with late lines, which are not counted but reported."""
    lines = make_lines(7, 12)
    counts, edge, late = count(lines, 5 * BATCH)
    assert late > 10
    client.topics.create(f"{name}-counts", partitions=2)
    given = (name, "--url", fleet.url, "--at-most", BATCH, "--late", "2m", "--once", "--checkpoint")
    output = ""
    for part in (lines[: 5 * BATCH], lines[5 * BATCH :]):
        produce(client, name, part)
        output += run(spark, "log_stats", *given, tmp_path / "topic", "--to-topic", f"{name}-counts")
        output += run(spark, "log_stats", *given, tmp_path / "files", "--to-parquet", tmp_path / "counts")
    assert "some lines arrived later than --late" in output
    wanted = {group: number for group, number in counts.items() if group[0] + WINDOW <= edge}
    assert len(wanted) > 20
    from_topic = [json.loads(record.value) for record in fetch(client, f"{name}-counts")]
    assert {record.key for record in fetch(client, f"{name}-counts")} == {b"web", b"db"}
    found = {(datetime.fromisoformat(one["from"]), one["level"], one["source"]): one["lines"] for one in from_topic}
    assert (found, len(from_topic)) == (wanted, len(wanted))
    rows = spark.read.parquet(str(tmp_path / "counts")).selectExpr("unix_timestamp(from) at", "*").collect()
    files = {(datetime.fromtimestamp(row["at"], UTC), row["level"], row["source"]): row["lines"] for row in rows}
    assert (files, len(rows)) == (wanted, len(wanted))


def test_counts_that_are_written_again_after_a_crash_are_stored_once(
    spark: SparkSession, fleet: Fleet, client: Client, name: str, tmp_path: Path
) -> None:
    """Spark's order is random, and another order would be rejected at each retry."""
    client.topics.create(f"{name}-counts", partitions=2)
    given = (name, "--url", fleet.url, "--once", "--checkpoint", tmp_path / "c", "--to-topic", f"{name}-counts")
    # After many groups, state from a checkpoint is in larger hash tables than state in memory: another order.
    for hour, groups in ((0, 3_000), (2, 300)):
        moments = [(BEGIN + timedelta(hours=hour), f"{at}") for at in range(groups)]
        moments.append((BEGIN + timedelta(hours=hour + 1), "clock"))
        rows = [{"time": at.isoformat(), "level": "info", "source": source} for at, source in moments]
        send(client, name, json_lines(rows))
        run(spark, "log_stats", *given)
    commits = tmp_path / "c" / "commits"
    last = max(int(file.name) for file in commits.iterdir() if file.name.isdecimal())
    for file in (f"{last}", f".{last}.crc"):
        (commits / file).unlink()  # as if killed before the commit
    run(spark, "log_stats", *given)
    found = Counter(json.loads(record.value)["source"] for record in fetch(client, f"{name}-counts"))
    assert found == Counter([*(f"{at}" for at in range(3_000)), "clock", *(f"{at}" for at in range(300))])
    with pytest.raises(FolderInUse, match=f"was used to write to the topic '{name}-counts'"):
        run(spark, "log_stats", *given[:-1], "elsewhere")
    with pytest.raises(FolderInUse, match=f"was used to write to the topic '{name}-counts'"):
        run(spark, "log_stats", *given[:-2], "--to-parquet", tmp_path / "counts")


def test_table_of_a_finite_run_is_complete(
    spark: SparkSession, fleet: Fleet, client: Client, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has windows that Spark has removed from its state, and a line from the future does not complete others."""
    lines = make_lines(8, 6)
    produce(client, name, lines)
    future = [{"time": "2199-01-01T00:00:00Z", "level": "odd", "source": "clock"}]
    send(client, name, [*json_lines(future), b"no JSON"])
    more = make_lines(9, 6)
    produce(client, name, more)
    output = run(
        spark, "log_stats", name, "--url", fleet.url, "--late", "60w", "--once", "--rows", 500, "--at-most", BATCH
    )
    assert output == f"{len(lines) + len(more) + 2} records read"
    head, *rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert head == ["from", "to", "level", "source", "lines"]
    seen = {tuple(row[:2] + row[3:-1]): int(row[-1]) for row in rows}
    wanted = Counter(
        (f"{moment:%Y-%m-%d}", f"{moment:%H:%M}:00", level.upper(), source) for moment, level, source in lines + more
    )
    assert {key: number for key, number in seen.items() if "2026-01-31" in key[0]} == wanted
    assert sorted((*key[2:], number) for key, number in seen.items() if "2026-01-31" not in key[0]) == [
        ("(does", "not", "parse)", 1),
        ("ODD", "clock", 1),
    ]


def test_table_on_a_terminal_is_updated_until_ctrl_c(fleet: Fleet, client: Client, name: str) -> None:
    produce(client, name, [(BEGIN, "info", "web")] * 3)
    main, terminal = pty.openpty()
    process = child(fleet.url, "log_stats", name, "--every", "1s", stdin=terminal, stdout=terminal, stderr=terminal)
    try:
        shown = read_until(main, "starting Spark")
        shown += read_until(main, "INFO web 3")
        produce(client, name, [(BEGIN, "info", "web")] * 2 + [(BEGIN + WINDOW, "error", "\033[31mred")])
        shown += read_until(main, "INFO web 5")
        assert "·[31mred" in shown
        assert "\033[31m" not in shown
        os.killpg(process.pid, 2)
        shown += read_until(main, "(stopped)")
        assert process.wait(LIMIT_S) == 130
    finally:
        kill(process)
        os.close(terminal)
        os.close(main)
    assert "WARN" not in shown
    assert "Traceback" not in shown


def read_until(terminal: int, words: str) -> str:
    output = b""
    until_s = time.monotonic() + LIMIT_S
    while words not in " ".join(output.decode(errors="replace").split()):
        assert time.monotonic() < until_s, output.decode()
        if select.select([terminal], [], [], 0.5)[0]:
            output += os.read(terminal, 65536)
    return output.decode()


def row(at: int, level: str, source: str, lines: int) -> tuple[Group, int]:
    return Group(f"2026-01-31 12:{at:02}:00", f"2026-01-31 12:{at + 1:02}:00", level, source), lines


def test_table_shows_the_newest_windows_first_and_counts_hidden_rows() -> None:
    table = Table()
    table.update([row(0, "INFO", "web", 5), row(1, "INFO", "web", 2), row(1, "ERROR", "日本", 1_000)])
    table.update([row(0, "INFO", "web", 7)])
    assert table.draw(2).splitlines() == [
        "from                 to        level  source  lines",
        "2026-01-31 12:01:00  12:02:00  ERROR  日本    1,000",
        "2026-01-31 12:01:00  12:02:00  INFO   web         2",
        "rows not shown: 1, with 7 lines",
    ]
    assert all(len(line) <= 20 for line in table.draw(9, 20).splitlines())


def test_removed_window_does_not_reappear_in_part() -> None:
    """With too many rows, a window is shown completely or not at all."""
    table = Table(rows_kept=3)
    table.update([row(0, "INFO", "a", 1), row(0, "INFO", "b", 1), row(1, "INFO", "a", 1), row(1, "INFO", "b", 1)])
    table.update([row(0, "INFO", "a", 2)])
    drawn = table.draw(9)
    assert "12:00:00  12:01:00" not in drawn
    assert "windows up to 2026-01-31 12:00:00 are no longer shown" in drawn
    table.update([row(1, "INFO", name, 5) for name in "cdef"])
    assert [line.split()[4] for line in table.draw(9).splitlines()[1:4]] == ["c", "d", "e"]


def test_table_shows_the_date_of_the_end_if_it_is_another_day() -> None:
    table = Table()
    table.update([(Group("2026-01-31 23:00:00", "2026-02-01 00:00:00", "", ""), 1)])
    assert "2026-01-31 23:00:00  2026-02-01 00:00:00" in table.draw(9)
