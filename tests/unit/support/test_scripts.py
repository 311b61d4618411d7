"""Scripts end at their time limit, and what they printed until then is returned."""

import os
import time
from pathlib import Path

from support.scripts import run_script


def test_script_that_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    started = time.monotonic()
    done = run_script("echo begun; sleep 60 & wait", os.environ, 0.3, tmp_path)
    assert time.monotonic() - started < 30, "the child that holds the output open was killed, too"
    assert done.returncode == -9
    assert done.stdout == "begun\n"
    assert done.stderr == "killed after 0.3 s\n"


def test_script_returns_its_output_and_exit_code(tmp_path: Path) -> None:
    done = run_script("pwd; exit 3", os.environ, 30, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (3, f"{tmp_path}\n", "")


def test_script_can_stop_at_its_first_failure(tmp_path: Path) -> None:
    done = run_script("echo one; false | true; echo two", os.environ, 30, tmp_path, stops_at_failure=True)
    assert (done.returncode, done.stdout) == (1, "one\n")
