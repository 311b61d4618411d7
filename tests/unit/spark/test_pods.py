"""What runs in pods of Pipelines: how a driver begins and ends, what an executor runs, what is told meanwhile."""

import io
import json
import sys
from pathlib import Path

import httpx
import pytest

from flotilla_spark import driver, executor, reporting
from flotilla_spark.reporting import Report, Server

TOLD = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@10.0.0.1:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "1024m",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.2",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "stats-exec-3",
}


def test_an_executor_runs_what_spark_has_told_it() -> None:
    options = {f"SPARK_JAVA_OPT_{at}": f"-Dat={at}" for at in range(12)}
    words = executor.command({**TOLD, **options, "JAVA_HOME": "/java"}, Path("/spark"))
    assert words[0] == "/java/bin/java"
    assert words[1:13] == [f"-Dat={at}" for at in range(12)]  # as numbers, and not as texts
    assert words[13:17] == ["-Xms1024m", "-Xmx1024m", "-cp", "/spark/jars/*"]
    assert words[words.index("--driver-url") + 1] == TOLD["SPARK_DRIVER_URL"]
    assert words[words.index("--podName") + 1] == "stats-exec-3"


def test_an_executor_that_was_told_nothing_says_what_it_lacks() -> None:
    with pytest.raises(executor.NotTold, match="SPARK_EXECUTOR_ID"):
        executor.command({name: value for name, value in TOLD.items() if name != "SPARK_EXECUTOR_ID"}, Path("/spark"))


def test_settings_are_written_where_spark_reads_them(tmp_path: Path) -> None:
    properties = {"spark.master": "local[2]", "spark.a": "one\\two\nthree"}
    given = {"SPARK_PROPERTIES": json.dumps(properties), "SPARK_EXECUTOR_TEMPLATE": '{"kind": "Pod"}'}
    assert driver.write_settings(given, tmp_path / "conf") == {"SPARK_CONF_DIR": str(tmp_path / "conf")}
    written = (tmp_path / "conf" / "spark-defaults.conf").read_text()
    assert written == "spark.a one\\\\two\\nthree\nspark.master local[2]\n"
    assert json.loads((tmp_path / "conf" / "executor.json").read_text()) == {"kind": "Pod"}


@pytest.mark.parametrize("partitions", [1, 100, 5_000])
def test_what_is_left_behind_fits(partitions: int) -> None:
    """Kubernetes keeps 4096 bytes: the reason before the offsets."""
    progress = {"time": "2026-03-01T12:00:00Z", "offsets": {"logs": {str(at): 10**9 for at in range(partitions)}}}
    written = driver.farewell("é" * 3_000, progress)
    assert len(written) <= 4096
    told = json.loads(written)
    assert told["failure"].startswith("é" * 200)


def test_a_short_farewell_has_everything() -> None:
    progress = {"time": "2026-03-01T12:00:00Z", "offsets": {"logs": {"0": 5}}}
    assert json.loads(driver.farewell(None, progress)) == {"failure": None, "progress": progress}


@pytest.mark.parametrize(
    ("text", "code"),
    [("x = 1", 0), ("raise SystemExit(3)", 3), ("raise SystemExit('no room')", 1), ("raise SystemExit", 0)],
)
def test_an_application_is_run_as_python_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, code: int
) -> None:
    monkeypatch.setattr(sys, "argv", ["before"])
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "helping.py").write_text("WHAT = 'a module beside it'")
    file = tmp_path / "job.py"
    file.write_text(
        f"import sys, helping\nassert sys.argv == [{str(file)!r}, 'one']\nassert __name__ == '__main__'\n{text}"
    )
    assert driver.run(str(file), ["one"]) == code


def test_the_last_words_are_remembered() -> None:
    out = io.StringIO()
    memory = driver.Memory(out)
    print("usage: …", file=memory)
    print("it needs a topic\n\n", file=memory)
    assert memory.last() == "it needs a topic"
    assert out.getvalue() == "usage: …\nit needs a topic\n\n\n"


@pytest.mark.parametrize("text", [None, "", "5", "not JSON", '{"a": 1}', '{"a": {"b": "c"}}', "[1]"])
def test_offsets_of_other_sources_are_none(text: str | None) -> None:
    assert reporting.read_offsets(text) == {}


def test_of_several_queries_what_all_have_read_counts() -> None:
    report = Report()
    assert report.look() is None
    report.hear("one", {"batch": 1}, [{"logs": {"0": 5, "1": 7}}])
    report.hear("two", {"batch": 9}, [{"logs": {"0": 3}}, {"orders": {"0": 1}}])
    assert report.look() == {"batch": 9, "offsets": {"logs": {"0": 3, "1": 7}, "orders": {"0": 1}}}


def test_whoever_asks_is_told_how_far_it_is() -> None:
    report = Report()
    with Server(report, 0) as server:
        url = f"http://127.0.0.1:{server.port}"
        assert httpx.get(f"{url}/progress").json() is None
        report.hear("one", {"batch": 1}, [{"logs": {"0": 5}}])
        assert httpx.get(f"{url}/progress").json() == {"batch": 1, "offsets": {"logs": {"0": 5}}}
        assert httpx.get(f"{url}/etc/passwd").status_code == 404
