"""Programs with children, such as a JVM, and scripts of bash, such as the commands of a page of the docs."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


def run_script(
    text: str,
    environment: Mapping[str, str],
    seconds: float,
    cwd: Path | None = None,
    *,
    stops_at_failure: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run a script, as `run_program` does."""
    options = ["-euo", "pipefail"] if stops_at_failure else []
    return run_program(["bash", *options, "-c", text], environment, seconds, cwd)


def run_program(
    command: Sequence[str], environment: Mapping[str, str], seconds: float, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program. At the time limit, end its whole process group: a child could hold the output open."""
    with subprocess.Popen(
        command,
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            stdout, stderr = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            stdout, stderr = process.communicate()
            stderr += f"killed after {seconds:.1f} s\n"
    return subprocess.CompletedProcess(command, process.returncode, stdout, stderr)
