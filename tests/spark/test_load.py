"""`load`: one record per row."""

import csv
import gzip
import json
import re
import sys
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from flotilla import Client
from flotilla_spark.errors import ColumnInvalid
from flotilla_spark.jobs.load import describe_progress
from support.cluster import wait_until
from support.fleet import Fleet
from support.scripts import run_program
from support.sparkapps import LIMIT_S, child, environment, fetch, finish, kill, run, send, start

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")

ROOT = Path(__file__).resolve().parents[2]


def load(
    spark: SparkSession, fleet: Fleet, client: Client, name: str, path: Path, *more: str
) -> list[tuple[bytes | None, bytes]]:
    client.topics.create(name, partitions=2)
    kind = {".parquet": "parquet", ".csv": "csv", ".jsonl": "jsonl"}[path.suffix]
    output = run(spark, "load", name, path, "--url", fleet.url, "--format", kind, *more)
    found = [(record.key, record.value) for record in fetch(client, name)]
    assert output == f"{len(found):,} records written"
    return found


def test_json_lines_are_loaded_byte_for_byte(
    spark: SparkSession, fleet: Fleet, client: Client, name: str, tmp_path: Path
) -> None:
    lines = [
        b'{"b": 1.50, "a":"caf\xc3\xa9" , "n": null}',
        b'{"a": "x", "a": "y"}',
        b'{"big": 12345678901234567890123}',
    ]
    lines += [json.dumps({"a": at, "text": "x" * at}).encode() for at in range(500)]
    (tmp_path / "rows.jsonl").write_bytes(b"\n\n".join(lines) + b"\r\n")
    found = load(spark, fleet, client, name, tmp_path / "rows.jsonl")
    assert sorted(found, key=repr) == sorted(((None, line) for line in lines), key=repr)


def test_load_prints_progress(
    spark: SparkSession,
    fleet: Fleet,
    client: Client,
    name: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also for a compressed file."""
    monkeypatch.setattr("flotilla_spark.jobs.load._PROGRESS_PLAIN_S", 0.0)
    lines = [b'{"at": %d}' % at for at in range(200_000)]
    (tmp_path / "rows.jsonl.gz").write_bytes(gzip.compress(b"\n".join(lines)))
    client.topics.create(name, partitions=1)
    output = run(spark, "load", name, tmp_path / "rows.jsonl.gz", "--url", fleet.url, "--format", "jsonl")
    assert output == "200,000 records written"
    assert re.search(r"flotilla-spark load: [\d,]+ records, 0 of 1 tasks, 0 %", capfd.readouterr().err)
    assert [record.value for record in fetch(client, name)] == lines


def test_fields_of_json_lines_are_loaded_as_key_and_value(
    spark: SparkSession, fleet: Fleet, client: Client, name: str, tmp_path: Path
) -> None:
    (tmp_path / "rows.jsonl").write_text('{"k": 7, "v": {"x": [1]}}\n{"v": "text"}\n')
    found = load(spark, fleet, client, name, tmp_path / "rows.jsonl", "--key", "k", "--value", "v")
    assert sorted(found, key=repr) == [(None, b"text"), (b"7", b'{"x":[1]}')]


def test_csv_rows_are_loaded_as_json(
    spark: SparkSession, fleet: Fleet, client: Client, name: str, tmp_path: Path
) -> None:
    """Quotes, commas and line breaks in cells follow RFC 4180; backslashes have no meaning."""
    rows = [["id", "text"], ["1", 'a "quoted", one'], ["2", "two\nlines"], ["3", "back\\slash"], ["04", "é"]]
    with (tmp_path / "rows.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    found = load(spark, fleet, client, name, tmp_path / "rows.csv", "--key", "id")
    assert sorted((key, json.loads(value)) for key, value in found) == sorted(
        (one.encode(), {"id": one, "text": text}) for one, text in rows[1:]
    )


def test_csv_rows_with_a_wrong_number_of_cells_are_rejected(
    spark: SparkSession, fleet: Fleet, client: Client, name: str, tmp_path: Path
) -> None:
    client.topics.create(name, partitions=1)
    (tmp_path / "rows.csv").write_text("id,text\n1,a\n2,b,c,d\n")
    with pytest.raises(Exception, match="Malformed"):
        run(spark, "load", name, tmp_path / "rows.csv", "--url", fleet.url, "--format", "csv")


def test_parquet_rows_are_loaded_as_json_or_by_column(
    spark: SparkSession, fleet: Fleet, client: Client, name: str, tmp_path: Path
) -> None:
    moment = datetime(2026, 1, 31, 12, tzinfo=UTC)
    table = pa.table({"n": [1, None], "t": pa.array([moment] * 2, pa.timestamp("us", tz="UTC")), "a.b": [b"\xff", b""]})
    pq.write_table(table, tmp_path / "rows.parquet")
    found = load(spark, fleet, client, name, tmp_path / "rows.parquet", "--key", "n")
    time = "2026-01-31T12:00:00.000Z"
    assert sorted(((key, json.loads(value)) for key, value in found), key=repr) == [
        (None, {"n": None, "t": time, "a.b": ""}),
        (b"1", {"n": 1, "t": time, "a.b": "/w=="}),
    ]
    raw = load(spark, fleet, client, f"{name}-raw", tmp_path / "rows.parquet", "--value", "a.b")
    assert sorted(value for _, value in raw) == [b"", b"\xff"]
    with pytest.raises(ColumnInvalid, match=r"no column 'x' in the files; columns: n, t, a\.b"):
        run(spark, "load", name, tmp_path / "rows.parquet", "--url", fleet.url, "--format", "parquet", "--key", "x")


def test_archive_can_be_loaded_back_unchanged(
    spark: SparkSession, fleet: Fleet, client: Client, name: str, tmp_path: Path
) -> None:
    send(client, name, [b"\xff\x00", b""], 1, keys=[b"\xfe", None], headers=[(("h", b"\x01"),), ()])
    kept = ("--to", tmp_path / "a", "--checkpoint", tmp_path / "c", "--once")
    run(spark, "archive", name, "--url", fleet.url, *kept)
    back = f"{name}-back"
    client.topics.create(back, partitions=1)
    columns = ("--format", "parquet", "--key", "key", "--value", "value", "--headers", "headers")
    run(spark, "load", back, tmp_path / "a", "--url", fleet.url, *columns)
    first, second = (
        [(one.key, one.value, dict(one.headers)) for one in fetch(client, topic)] for topic in (name, back)
    )
    assert first == second


def test_load_runs_with_spark_submit(fleet: Fleet, client: Client, name: str, tmp_path: Path) -> None:
    client.topics.create(name, partitions=1)
    pq.write_table(pa.table({"n": list(range(20_000))}), tmp_path / "rows.parquet")
    script = ROOT / "spark-apps/src/flotilla_spark/load.py"
    command = [str(Path(sys.executable).parent / "spark-submit"), "--master", "local[1]", str(script), name]
    environ = {**environment(fleet.url), "PYSPARK_PYTHON": sys.executable}
    done = run_program([*command, str(tmp_path / "rows.parquet")], environ, LIMIT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "flotilla-spark load: 20,000 records written in " in done.stdout + done.stderr
    assert sorted(json.loads(one.value)["n"] for one in fetch(client, name)) == list(range(20_000))


def test_load_that_is_killed_adds_only_missing_records_when_repeated_with_its_run_id(
    spark: SparkSession, fleet: Fleet, client: Client, name: str, tmp_path: Path
) -> None:
    """No record is lost or duplicated, also with another number of cores."""
    client.topics.create(name, partitions=3)
    (tmp_path / "rows.jsonl").write_text("".join(f'{{"number": {at:09}}}\n' for at in range(600_000)))
    named = (name, tmp_path / "rows.jsonl", "--run-id", "monday")

    def stored() -> int:
        return sum(one.next_offset for one in client.topics.offsets(name))

    process = child(fleet.url, "load", *named)
    try:
        wait_until("it to write something", lambda: stored() > 0 or process.poll() is not None, LIMIT_S)
    finally:
        kill(process)
    assert 0 < stored() < 600_000, "it was killed in the middle"
    for _ in range(2):  # the second repetition adds nothing
        run(spark, "load", *named, "--url", fleet.url, "--format", "jsonl")
        assert stored() == 600_000
    assert len({record.value for record in fetch(client, name)}) == 600_000
    (tmp_path / "rows.jsonl").write_text('{"number": 1}\n')  # other files are another load, which is complete
    run(spark, "load", *named, "--url", fleet.url, "--format", "jsonl")
    assert stored() == 600_001


def test_load_shows_progress_in_one_line_on_a_terminal(
    spark: SparkSession, fleet: Fleet, client: Client, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    client.topics.create(name, partitions=1)
    pq.write_table(pa.table({"n": list(range(200_000))}), tmp_path / "rows.parquet")
    work = start(spark, "load", name, tmp_path / "rows.parquet", "--url", fleet.url, "--format", "parquet")
    work._is_terminal = True
    assert finish(work) == "200,000 records written"
    output = capsys.readouterr().err
    assert "\n" not in output
    assert output.endswith("\r\033[K")


def test_progress_has_records_tasks_and_percent() -> None:
    assert describe_progress((3, 8, 1_234_567)) == "1,234,567 records, 3 of 8 tasks, 37 %"
    assert describe_progress((0, 0, 0)) == "0 records, 0 of 0 tasks, 0 %"
    assert describe_progress(None) is None
