"""`flotilla-spark`: help without Spark, and validation before it starts."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from flotilla_spark.__main__ import APPLICATIONS, main
from support.fleet import Fleet
from support.scripts import run_program
from support.sparkapps import LIMIT_S, environment

NAMES = tuple(APPLICATIONS)


def call(*arguments: str, url: str = "http://127.0.0.1:9") -> subprocess.CompletedProcess[str]:
    command = str(Path(sys.executable).parent / "flotilla-spark")
    return run_program([command, *arguments], environment(url), LIMIT_S)


@pytest.mark.parametrize("name", NAMES)
def test_help_lists_every_option(name: str) -> None:
    done = call(name, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    parser = import_module(f"flotilla_spark.{name}").make_parser()
    for action in parser._actions:
        assert all(option in done.stdout for option in action.option_strings)
        assert action.help, action
    assert f"usage: flotilla-spark {name}" in done.stdout


@pytest.mark.parametrize("name", NAMES)
def test_help_does_not_import_spark(name: str) -> None:
    code = f"import sys, flotilla_spark.{name} as a; a.make_parser().format_help(); sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


def test_command_lists_its_applications(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    output = capsys.readouterr().out
    assert all(name in output for name in NAMES)
    assert main([]) == 2
    assert main(["arhive"]) == 2
    assert "unknown application 'arhive'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("archive logs --to x", "--checkpoint"),
        ("archive , --to x --checkpoint c", "expected one or more topic names"),
        ("archive logs --to x --checkpoint c --at-most 0", "'0': expected a number of at least 1"),
        ("archive logs --to x --checkpoint c --every often", "e.g. 30s or '5 minutes'"),
        ("archive logs --to x --checkpoint c --from 5", "expected earliest, latest or"),
        ("archive logs --to x --checkpoint c --token secret", "unrecognized arguments: --token"),
        ("log_stats logs --format pattern", "--format pattern and --pattern must be used together"),
        ("log_stats logs --format pattern --pattern (?<level>", "unbalanced brackets"),
        ("log_stats logs --to-topic counts", "require --checkpoint"),
        ("log_stats logs --checkpoint c", "--checkpoint requires --to-topic or --to-parquet"),
        ("log_stats logs --to-topic logs --checkpoint c", "is also an input topic"),
        ("route logs --checkpoint c", "no output topic"),
        ("route logs --checkpoint c --rule alerts", "'alerts': expected TOPIC=CONDITION"),
        ("route logs --checkpoint c --others logs", "would loop forever"),
        ("load logs nothing.csv", "'nothing.csv': no such file"),
        ("load logs *.dat", "unknown file format"),
        ("load logs *.csv --headers h", "--headers requires --format parquet"),
    ],
)
def test_invalid_command_lines_are_rejected_before_spark_starts(
    line: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(line.split(" "))
    assert caught.value.code == 2
    assert words in capsys.readouterr().err


def test_missing_topic_is_reported_in_one_line(fleet: Fleet) -> None:
    fleet.create("there", partitions=1)
    for line in (
        "log_stats missing --once",
        "archive there,missing --to x --checkpoint c",
        "route there --others missing --checkpoint c",
        "load missing *.csv",
    ):
        done = call(*line.split(), url=fleet.url)
        assert (done.returncode, done.stdout) == (1, "")
        assert "topic 'missing' does not exist" in done.stderr
        assert "flotilla topics create missing" in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_session_of_an_application_shows_no_progress_bars() -> None:
    """`pyspark` turns them on, and they would mix with the application's output."""
    code = (
        "from flotilla_spark.sessions import make_session; session = make_session('x', is_verbose=False); "
        "print(session.sparkContext.getConf().get('spark.ui.showConsoleProgress'))"
    )
    done = run_program([sys.executable, "-c", code], environment("http://127.0.0.1:9"), LIMIT_S)
    assert done.stdout.split() == ["false"], done.stderr


def test_unreachable_server_and_unreadable_token_file_are_reported_in_one_line(tmp_path: Path) -> None:
    done = call("log_stats", "logs")
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert "no manager responded" in done.stderr
    done = call("log_stats", "logs", "--token-file", str(tmp_path / "none"))
    assert "cannot be read: No such file" in done.stderr
