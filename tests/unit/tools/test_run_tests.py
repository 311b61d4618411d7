"""Stages end: at their time limit, and although processes that they started hold their output open."""

import os
import signal
import sys

import pytest
import run_tests
from run_tests import Output


def test_stage_is_interrupted_at_its_time_limit(capsys: pytest.CaptureFixture[str]) -> None:
    code = Output("slow | ").run([sys.executable, "-c", "import time; time.sleep(60)"], seconds_max=0.5)
    assert code != 0
    assert "slow | interrupted: the time limit of 0 seconds is exceeded" in capsys.readouterr().out


def test_stage_ends_while_a_process_of_it_holds_its_output_open(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_tests, "OUTPUT_GRACE_SECONDS", 0.2)
    leave_behind = "import subprocess; print(subprocess.Popen(['sleep', '60']).pid, flush=True)"
    assert Output("stage | ").run([sys.executable, "-c", leave_behind], seconds_max=30) == 0
    _, _, printed, left_behind = (line.removeprefix("stage | ") for line in capsys.readouterr().out.splitlines())
    os.kill(int(printed), signal.SIGKILL)
    assert left_behind.startswith(f"left behind, with the output still open: {printed} sleep 60")
