"""`flotilla up` as a real process: its output, its child processes and its exit."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import httpx
import psutil

from support.cluster import wait_until

_TESTS = Path(__file__).resolve().parent.parent
_READY_S_MAX = 60.0
_NAME = re.compile(r"(broker|reader)-\d+|writer")
_ROW = re.compile(r"^(\S+) +(broker|writer|reader) +(\S+).* (\d+) +ready$")


class UpProcess:
    """One `flotilla up`."""

    def __init__(
        self,
        data: Path,
        *flags: str,
        cwd: Path | None = None,
        port: int = 0,
        fork: bool = True,
    ) -> None:
        self.data = data
        data.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "support.uprun", "--data-dir", str(data), "--port", str(port), *flags]
        environment = {
            **os.environ,
            "PYTHONPATH": str(_TESTS),
            "UP_FORK": str(int(fork)),
        }
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment, cwd=cwd, text=True
        )
        self.output: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            self.output.extend(line.rstrip("\n") for line in lines)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self.wait()

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait(self, timeout_s: float = 30.0) -> int:
        """Wait for the exit; return the exit code. The output is complete afterwards."""
        code = self._process.wait(timeout_s)
        self._reader.join(timeout_s)
        return code

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def text(self) -> str:
        return "\n".join(self.output)

    def wait_line(self, pattern: str, timeout_s: float = 30.0) -> str:
        """Wait until it prints a line that matches `pattern`; return the line."""

        def find() -> str:
            found = next((line for line in self.output if re.search(pattern, line)), "")
            assert found or self._process.poll() is None, f"it ended with {self._process.poll()}: {self.text()}"
            return found

        return wait_until(f"a line with {pattern!r}", find, timeout_s)

    def wait_ready(self) -> Self:
        self.wait_line("all processes ready after", _READY_S_MAX)
        return self

    @property
    def url(self) -> str:
        """Address of the API."""
        found = re.search(r"The API is on (\S+)\. ", self.text())
        assert found is not None
        return found[1]

    def rows(self) -> dict[str, tuple[str, str, int]]:
        """The printed table: role, address and process id by name."""
        matches = [match for line in self.output if (match := _ROW.match(line))]
        return {match[1]: (match[2], match[3], int(match[4])) for match in matches}

    def pids(self) -> dict[str, int]:
        """The running processes, by name."""
        found = {}
        for child in psutil.Process(self.pid).children():
            with contextlib.suppress(psutil.Error):  # it has just exited
                found[child.name()] = child.pid
        return {name: pid for name, pid in found.items() if _NAME.fullmatch(name)}

    def ask(self, name: str, path: str) -> dict[str, Any]:
        """Send GET to one of the processes at its own address; return JSON."""
        port = json.loads((self.data / "ports.json").read_text())[name]
        found: dict[str, Any] = httpx.get(f"http://127.0.0.1:{port}{path}", timeout=10).raise_for_status().json()
        return found


class ApiReader:
    """Reads partitions through the API of a cluster, where other tests read replicas from brokers."""

    id = "the API"

    def __init__(self, url: str) -> None:
        self._url = url

    def request(self, method: str, path: str) -> httpx.Response:
        return httpx.request(method, f"{self._url}{path.replace('&replica=any', '')}", timeout=30)


def wait_gone(pids: Sequence[int], timeout_s: float = 15.0) -> None:
    """Wait until none of these processes runs; a zombie counts as ended."""

    def is_gone(pid: int) -> bool:
        try:
            return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
        except psutil.NoSuchProcess:
            return True

    wait_until(f"the end of {pids}", lambda: all(map(is_gone, pids)), timeout_s)
