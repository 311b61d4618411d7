"""Stages end at their time limit, and do not wait for processes that they left behind. Lanes run at the same time."""

import os
import signal
import sys
import threading

import pytest
import run_tests
from run_tests import PHASES, STAGES, Output, Result, Stage


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


def test_queues_of_a_phase_run_at_the_same_time() -> None:
    """The first stages of the queues wait for each other."""
    assert sorted(name for phase in PHASES for queue in phase for name in queue) == sorted(STAGES)
    barriers = {queue[0]: threading.Barrier(len(phase), timeout=30) for phase in PHASES for queue in phase[:1]}
    meeting = {queue[0]: barriers[phase[0][0]] for phase in PHASES for queue in phase}

    def make(name: str) -> Stage:
        def run(output: Output) -> Result:
            if name in meeting:
                meeting[name].wait()
            return Result(f"{output.prefix}{name}", 1, 0, (), 0.0)

        return run

    done = run_tests.run_stages(["lint", "unit", "smoke"], {name: make(name) for name in STAGES})
    assert [each.stage for each in done] == ["lint | lint", "unit", "smoke | smoke"]
