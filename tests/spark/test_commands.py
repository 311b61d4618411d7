"""`flotilla-spark`: help without Spark, and refusals before it starts."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from flotilla_spark.__main__ import APPLICATIONS, main
from support.fleet import Fleet
from support.sparkapps import environment

NAMES = tuple(APPLICATIONS)


def call(*arguments: str, url: str = "http://127.0.0.1:9") -> subprocess.CompletedProcess[str]:
    command = Path(sys.executable).parent / "flotilla-spark"
    return subprocess.run(
        [command, *arguments], env=environment(url), capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("name", NAMES)
def test_help_tells_every_option(name: str) -> None:
    done = call(name, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    parser = import_module(f"flotilla_spark.{name}").make_arguments()
    for action in parser._actions:
        assert all(option in done.stdout for option in action.option_strings)
        assert action.help, action
    assert f"usage: flotilla-spark {name}" in done.stdout


@pytest.mark.parametrize("name", NAMES)
def test_help_does_not_load_spark(name: str) -> None:
    code = (
        f"import sys, flotilla_spark.{name} as a; a.make_arguments().format_help(); sys.exit('pyspark' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


def test_the_command_names_its_applications(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    told = capsys.readouterr().out
    assert all(name in told for name in NAMES)
    assert main([]) == 2
    assert main(["arhive"]) == 2
    assert "no application 'arhive'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("archive logs --to x", "--checkpoint"),
        ("archive , --to x --checkpoint c", "name a topic"),
        ("archive logs --to x --checkpoint c --at-most 0", "'0' is no number from 1 on"),
        ("archive logs --to x --checkpoint c --every often", "as in 30s or '5 minutes'"),
        ("archive logs --to x --checkpoint c --from 5", "neither earliest nor latest"),
        ("archive logs --to x --checkpoint c --token secret", "unrecognized arguments: --token"),
        ("log_stats logs --format pattern", "--format pattern and --pattern belong together"),
        ("log_stats logs --format pattern --pattern (?<level>", "brackets are not closed"),
        ("log_stats logs --to-topic counts", "need --checkpoint"),
        ("log_stats logs --checkpoint c", "--checkpoint is for --to-topic and --to-parquet"),
        ("log_stats logs --to-topic logs --checkpoint c", "counted for ever"),
        ("route logs --checkpoint c", "say where records go"),
        ("route logs --checkpoint c --rule alerts", "'alerts' is no rule"),
        ("route logs --checkpoint c --others logs", "go round for ever"),
        ("load logs nothing.csv", "there is no 'nothing.csv'"),
        ("load logs *.dat", "say what the files are"),
        ("load logs *.csv --headers h", "--headers is for Parquet"),
    ],
)
def test_what_cannot_be_meant_is_refused_at_once(line: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(line.split(" "))
    assert caught.value.code == 2
    assert words in capsys.readouterr().err


def test_a_topic_that_is_not_there_is_named_in_one_line(fleet: Fleet) -> None:
    fleet.create("there", partitions=1)
    for line in (
        "log_stats missing --once",
        "archive there,missing --to x --checkpoint c",
        "route there --others missing --checkpoint c",
        "load missing *.csv",
    ):
        done = call(*line.split(), url=fleet.url)
        assert (done.returncode, done.stdout) == (1, "")
        assert "there is no topic 'missing'" in done.stderr
        assert "flotilla topics create missing" in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_where_nobody_answers_it_says_so(tmp_path: Path) -> None:
    done = call("log_stats", "logs")
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert "no manager answers" in done.stderr
    done = call("log_stats", "logs", "--token-file", str(tmp_path / "none"))
    assert "cannot be read: No such file" in done.stderr
