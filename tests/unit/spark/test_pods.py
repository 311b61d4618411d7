"""Driver and executor pods of Pipelines: start, exit, and progress."""

import io
import json
import sys
from pathlib import Path

import httpx
import pytest

from flotilla_spark import driver, executor, progress
from flotilla_spark.progress import ProgressReport, ProgressServer

VARIABLES = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@10.0.0.1:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "1024m",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.2",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "stats-exec-3",
}


def test_executor_command_is_built_from_the_variables_that_spark_sets() -> None:
    options = {f"SPARK_JAVA_OPT_{at}": f"-Dat={at}" for at in range(12)}
    words = executor.command({**VARIABLES, **options, "JAVA_HOME": "/java"}, Path("/spark"))
    assert words[0] == "/java/bin/java"
    assert words[1:13] == [f"-Dat={at}" for at in range(12)]  # sorted as numbers
    assert words[13:17] == ["-Xms1024m", "-Xmx1024m", "-cp", "/spark/jars/*"]
    assert words[words.index("--driver-url") + 1] == VARIABLES["SPARK_DRIVER_URL"]
    assert words[words.index("--podName") + 1] == "stats-exec-3"


def test_executor_names_missing_variables() -> None:
    with pytest.raises(executor.VariableMissing, match="SPARK_EXECUTOR_ID"):
        executor.command(
            {name: value for name, value in VARIABLES.items() if name != "SPARK_EXECUTOR_ID"}, Path("/spark")
        )


def test_driver_writes_settings_to_the_spark_conf_dir(tmp_path: Path) -> None:
    properties = {"spark.master": "local[2]", "spark.a": "one\\two\nthree"}
    given = {"SPARK_PROPERTIES": json.dumps(properties), "SPARK_EXECUTOR_TEMPLATE": '{"kind": "Pod"}'}
    assert driver.write_settings(given, tmp_path / "conf") == {"SPARK_CONF_DIR": str(tmp_path / "conf")}
    written = (tmp_path / "conf" / "spark-defaults.conf").read_text()
    assert written == "spark.a one\\\\two\\nthree\nspark.master local[2]\n"
    assert json.loads((tmp_path / "conf" / "executor.json").read_text()) == {"kind": "Pod"}


@pytest.mark.parametrize("partitions", [1, 100, 5_000])
def test_termination_message_fits_into_4096_bytes(partitions: int) -> None:
    """Kubernetes keeps 4096 bytes. The failure takes precedence over offsets."""
    progress = {"time": "2026-03-01T12:00:00Z", "offsets": {"logs": {str(at): 10**9 for at in range(partitions)}}}
    written = driver.termination_message("é" * 3_000, progress)
    assert len(written) <= 4096
    message = json.loads(written)
    assert message["failure"].startswith("é" * 200)


def test_short_termination_message_is_complete() -> None:
    progress = {"time": "2026-03-01T12:00:00Z", "offsets": {"logs": {"0": 5}}}
    assert json.loads(driver.termination_message(None, progress)) == {"failure": None, "progress": progress}


@pytest.mark.parametrize(
    ("text", "code"),
    [("x = 1", 0), ("raise SystemExit(3)", 3), ("raise SystemExit('no room')", 1), ("raise SystemExit", 0)],
)
def test_driver_runs_an_application_as_python_does(
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


def test_tee_stream_returns_the_last_line() -> None:
    out = io.StringIO()
    stream = driver.TeeStream(out)
    print("usage: …", file=stream)
    print("it needs a topic\n\n", file=stream)
    assert stream.last() == "it needs a topic"
    assert out.getvalue() == "usage: …\nit needs a topic\n\n\n"


@pytest.mark.parametrize("text", [None, "", "5", "not JSON", '{"a": 1}', '{"a": {"b": "c"}}', "[1]"])
def test_offsets_of_other_sources_are_ignored(text: str | None) -> None:
    assert progress.read_offsets(text) == {}


def test_progress_of_several_queries_has_the_lowest_offset_of_each_partition() -> None:
    report = ProgressReport()
    assert report.snapshot() is None
    report.record("one", {"batch": 1}, [{"logs": {"0": 5, "1": 7}}])
    report.record("two", {"batch": 9}, [{"logs": {"0": 3}}, {"orders": {"0": 1}}])
    assert report.snapshot() == {"batch": 9, "offsets": {"logs": {"0": 3, "1": 7}, "orders": {"0": 1}}}


def test_progress_server_returns_the_last_progress() -> None:
    report = ProgressReport()
    with ProgressServer(report, 0) as server:
        url = f"http://127.0.0.1:{server.port}"
        assert httpx.get(f"{url}/progress").json() is None
        report.record("one", {"batch": 1}, [{"logs": {"0": 5}}])
        assert httpx.get(f"{url}/progress").json() == {"batch": 1, "offsets": {"logs": {"0": 5}}}
        assert httpx.get(f"{url}/etc/passwd").status_code == 404
