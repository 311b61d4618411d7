"""Servers as forks of a process that has imported their modules, because imports dominate the start time.

They are real processes, each with its own pid, ports, files and exit. There is one forker for each module and Python
path, started with the first server. It ends with the tests, and its servers with it.
"""

import functools
import json
import os
import select
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_FORKER = Path(__file__).with_name("forker.py")


class Forker:
    """The process that forks servers of one module."""

    def __init__(self, module: str, path: str) -> None:
        mine = {name: value for name, value in os.environ.items() if not name.startswith("FLOTILLA_")}
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(_FORKER), module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**mine, "PYTHONPATH": path},
        )

    def ask(self, **what: object) -> dict[str, Any]:
        """Send a request."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            print(json.dumps(what), file=self._process.stdin, flush=True)
            line = self._process.stdout.readline()
        assert line, "the process that forks servers has ended"
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        """Stop it with all its forks."""
        self._process.kill()
        self._process.communicate()


class Fork:
    """One server, with the methods of `subprocess.Popen` that tests use."""

    def __init__(self, forker: Forker, pid: int) -> None:
        self._forker = forker
        self._code: int | None = None
        self.pid = pid

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs; a negative code is a signal."""
        if self._code is None:
            self._code = self._forker.ask(poll=self.pid)["code"]
        return self._code

    def wait(self, timeout: float) -> int:
        """Wait for the exit."""
        if self.poll() is None:
            self._wait_end(timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
        return code

    def _wait_end(self, timeout: float) -> None:
        descriptor = os.pidfd_open(self.pid)
        try:
            select.select([descriptor], [], [], timeout)
        finally:
            os.close(descriptor)


_forkers: list[Forker] = []


@functools.cache
def _forker(module: str, path: str) -> Forker:
    made = Forker(module, path)
    _forkers.append(made)
    return made


def start(module: str, arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> Fork:
    """Start a server like `python -m`, in a fraction of the time."""
    forker = _forker(module, environment.get("PYTHONPATH", ""))
    wanted = {"arguments": list(arguments), "environment": dict(environment), "log": str(log)}
    return Fork(forker, forker.ask(start=wanted)["pid"])


def close_all() -> None:
    """Stop every forker and every server."""
    _forker.cache_clear()
    while _forkers:
        _forkers.pop().close()
