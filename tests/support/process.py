"""One server as a real process, for tests and benchmarks."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from support import forks

_WAIT_S = 30.0
_MODULE_AT = 2  # position of the module in `python -m module argument ...`


class ServerProcess:
    """A process that logs to a file. It can be restarted.

    Tests set `forked` to start many processes quickly. Benchmarks start each as its own program, as in a pod.
    """

    forked: ClassVar[bool] = False

    def __init__(self, log: Path, environment: Mapping[str, str]) -> None:
        self._log = log
        mine = {name: value for name, value in os.environ.items() if not name.startswith("FLOTILLA_")}
        self._environment = {**mine, **environment}  # without settings of the test's own environment
        self._process: subprocess.Popen[bytes] | forks.Fork | None = None

    def start(self) -> None:
        """Start the process, without waiting for readiness."""
        command = self.command()
        if self.forked and list(command[:_MODULE_AT]) == [sys.executable, "-m"]:
            module, *arguments = command[_MODULE_AT:]
            self._process = forks.start(module, arguments, self._environment, self._log)
            return
        with self._log.open("ab") as stderr:
            self._process = subprocess.Popen(command, stderr=stderr, env=self._environment)

    def command(self) -> Sequence[str]:
        """Command line."""
        raise NotImplementedError

    def set_environment(self, environment: Mapping[str, str]) -> None:
        """Change the environment of the next start."""
        self._environment.update(environment)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """Exit code, or None while it runs."""
        return None if self._process is None else self._process.poll()

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def log(self) -> str:
        """Return its log."""
        return self._log.read_text(errors="replace")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill the process."""
        if self.is_running:
            self.signal(signal.SIGKILL)
        self.wait()

    def terminate(self) -> int:
        """Send SIGTERM; return the exit code."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def wait(self, timeout_s: float = _WAIT_S) -> int:
        """Wait for the exit of the process."""
        assert self._process is not None
        return self._process.wait(timeout=timeout_s)

    def close(self) -> None:
        """Kill the process if it runs."""
        if self.is_running:
            self.signal(signal.SIGCONT)
            self.kill()
