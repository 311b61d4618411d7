"""`flotilla experiment`: options, reports, and errors without servers."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from flotilla.command import main
from flotilla.command.experiment_options import repeat_flag
from flotilla.command.experiment_report import format_report, print_report
from flotilla.experiments.checker import check
from flotilla.experiments.consumer_logs import Origin, consumer_file, format_header, format_row, parse_consumer
from flotilla.experiments.plans import PLANS
from flotilla.experiments.producer_logs import ProducerLog
from flotilla.experiments.samples import make_sample
from support.cluster import free_port
from support.fakemanager import serving


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("--id 1 --topics T1 T2 T3 --log-loc x", "--id 1 --topics T1 --topics T2 --topics T3 --log-loc x"),
        ("--topics T1 --topics T2", "--topics T1 --topics T2"),
        ("--topics=T1 T2", "--topics=T1 --topics T2"),
        ("--topics T1 T2", "--topics T1 --topics T2"),
        ("--topics --id 1", "--topics --id 1"),
        ("--id 1", "--id 1"),
    ],
)
def test_topics_option_takes_several_values(given: str, meant: str) -> None:
    assert repeat_flag(given.split(), "--topics") == meant.split()


def test_json_report_has_its_documented_names(capsys: pytest.CaptureFixture[str]) -> None:
    """They differ from the columns of the table; docs/experiments.md lists them."""
    logs = make_sample(PLANS["2P2C"], steps=1, seed=1)
    text = format_header(1, ["T1"]) + format_row("T1", "x", None)
    assert print_report(check(logs, [parse_consumer(text, consumer_file(1))]), as_json=True) == 1
    (tally,) = json.loads(capsys.readouterr().out)["tallies"]
    assert list(tally) == [
        *("consumer", "topic", "producers", "sent", "received", "missing", "doubled", "disordered", "strange")
    ]
    assert (tally["received"], tally["strange"]) == (1, 1)


def write_consumers(folder: Path, logs: list[ProducerLog], change: Callable[[list[str]], None]) -> None:
    """Write consumer files as if producers had sent one after the other; change that of consumer 2."""
    for id_, topics in PLANS["2P2C"].consumers.items():
        lines = [line for log in logs for line in log.lines]
        rows = [format_row(line.topic, line.message, Origin(line.step, line.number)) for line in lines]
        if id_ == 2:
            change(rows)
        (folder / consumer_file(id_)).write_text(format_header(id_, topics) + "".join(rows), encoding="utf-8")


def test_sample_generates_files_that_check_accepts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sample = ["experiment", "sample", str(tmp_path), "--plan", "2P2C", "--steps", "2"]
    assert main(sample) == 0
    assert capsys.readouterr().out.splitlines() == [str(tmp_path / f"producer_{id_}.txt") for id_ in (1, 2)]
    assert main(sample) == 2
    assert "overwrite them with --force" in capsys.readouterr().err
    assert main([*sample, "--force"]) == 0
    logs = make_sample(PLANS["2P2C"], steps=2)
    write_consumers(tmp_path, logs, lambda _: None)
    capsys.readouterr()
    assert main(["experiment", "check", str(tmp_path)]) == 0
    assert capsys.readouterr().out == GOOD
    write_consumers(tmp_path, logs, lambda rows: rows.insert(0, rows.pop(4)))
    assert main(["experiment", "check", str(tmp_path)]) == 1
    assert "failed: " in capsys.readouterr().out
    assert main(["experiment", "check", str(tmp_path), "--json"]) == 1
    assert '"ok": false' in capsys.readouterr().out


GOOD = """\
consumer  topic  producers  sent  received  missing  duplicate  out-of-order  unexpected
C1        T1     P1 P2         4         4        0          0             0           0
C1        T2     P1 P2         4         4        0          0             0           0
C2        T1     P1 P2         4         4        0          0             0           0
C2        T2     P1 P2         4         4        0          0             0           0
ok: 2 consumers received 16 messages, each once and in order
"""


def test_report_lists_problems_and_a_verdict() -> None:
    logs = make_sample(PLANS["2P2C"], steps=30)
    text = format_header(1, ["T1"]) + format_row("T1", "who is this?", None)
    report = check(logs, [parse_consumer(text, consumer_file(1))])
    lines = format_report(report)
    assert lines[0].split()[:5] == ["consumer", "topic", "producers", "sent", "received"]
    assert lines[2] == "consumer_1.txt line 4: message does not come from a producer of the experiment (T1)"
    assert lines[3] == "consumer_1.txt: producer_1.txt line 3 is missing (T1)"
    assert lines[-2] == f"... and {len(report.problems) - 20} more"
    assert lines[-1] == f"failed: {len(report.problems)} problems"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ("check {0}/nowhere", 2, "has no producer_N.txt or no consumer_N.txt"),
        ("produce --id 1 --topics T1 --log-loc {0}", 2, "producer_1.txt cannot be read: No such file or directory"),
        ("produce --id 3 --topics T1 --log_loc {0}", 2, "producer_3.txt line 1: 1 of 4 columns"),
        ("produce --id 4 --topics T1 --log_loc {0}", 2, "topic T2 is not one of T1"),
        ("produce --id 4 --topics T2 --broker here --log_loc {0}", 2, "'here' is not an address"),
        ("2P2C --broker here --log_loc {0}", 2, "'here' is not an address"),
        ("produce --id 4 --log-loc {0}", 2, "--topics"),
        ("consume --id x --topics T1 --log-loc {0}", 2, "'x' is not a valid integer"),
        ("5P3C --log-loc {0}", 2, "producer_1.txt, producer_2.txt, producer_5.txt missing"),
        ("sample {0}/producer_3.txt", 2, "cannot be read: Not a directory"),
    ],
)
def test_experiment_errors_have_a_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: str, code: int, said: str
) -> None:
    (tmp_path / "producer_3.txt").write_text("nonsense")
    (tmp_path / "producer_4.txt").write_text("00:00:00\tINFO\tP4-1\tT2\n")
    assert main(["experiment", *arguments.format(tmp_path).split()]) == code
    err = capsys.readouterr().err
    assert said in err
    assert "flotilla experiment: " in err


@pytest.mark.parametrize("task", ["2P2C --log-loc {0}", "api-test {1}", "consume --id 1 --topics T1 --log-loc {0}"])
def test_experiment_without_server_fails_fast_and_keeps_old_results(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, task: str
) -> None:
    """Results of the last run are kept."""
    where = f"127.0.0.1:{free_port()}"
    monkeypatch.setenv("FLOTILLA_URL", f"http://{where}")
    (tmp_path / "consumer_1.txt").write_text("of the last time")
    assert main(["experiment", *task.format(tmp_path, where).split()]) == 1
    assert f"cannot reach http://{where}" in capsys.readouterr().err
    assert (tmp_path / "consumer_1.txt").read_text() == "of the last time"


@pytest.mark.parametrize("task", ["consume --id 1 --topics T1 --log-loc {0} --broker {1}", "api-test {1}"])
def test_experiment_does_not_send_the_context_token_to_another_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: str
) -> None:
    """The token of the current context is for its own servers only."""
    (tmp_path / "token").write_text(f"flt_{'0' * 16}_{'x' * 43}")
    config = f'current = "prod"\n[contexts.prod]\nurl = "http://prod:1"\ntoken_file = "{tmp_path / "token"}"\n'
    (tmp_path / "config.toml").write_text(config)
    monkeypatch.setenv("FLOTILLA_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.delenv("FLOTILLA_URL", raising=False)
    with serving() as manager:
        manager.status = 400
        manager.answer = b'{"code": "bad_request", "message": "no"}'
        assert main(["experiment", *task.format(tmp_path, manager.url.removeprefix("http://")).split()]) == 1
        assert {authorization for _, _, authorization, _ in manager.asked} == {None}
