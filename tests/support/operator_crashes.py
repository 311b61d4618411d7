"""Run an operator that crashes after each change, and restart it each time."""

import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.cluster import free_port
from support.crashing_operator import CRASHED
from support.release import Release

_TESTS = Path(__file__).parent.parent
_DEPLOYMENT = "deployment/flotilla-operator"


class OperatorRuns:
    """Runs operator processes one after another, in a thread."""

    def __init__(self, environment: dict[str, str], log: Path) -> None:
        self.crashes: Counter[str] = Counter()  # by the kind of the last change
        self.errors: list[str] = []
        self._environment = environment
        self._log = log
        self._is_stopping = False
        self._process: subprocess.Popen[str] | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        command = [sys.executable, "-m", "support.crashing_operator"]
        with self._log.open("w", encoding="utf-8") as log:
            while not self._is_stopping:
                with subprocess.Popen(
                    command, env=self._environment, stdout=subprocess.PIPE, stderr=log, text=True
                ) as self._process:
                    assert self._process.stdout is not None
                    change = self._process.stdout.read().strip()
                if self._process.returncode == CRASHED:
                    self.crashes[change] += 1
                elif not self._is_stopping:
                    self.errors.append(f"the operator exited with code {self._process.returncode}")
                    return

    def stop(self) -> None:
        """Stop the operator, and do not restart it."""
        self._is_stopping = True
        while self._thread.is_alive():
            if self._process is not None:
                self._process.terminate()
            self._thread.join(1.0)


@contextmanager
def crashing_operators(release: Release, folder: Path) -> Iterator[OperatorRuns]:
    """Run crashing operators for a release whose own operator is stopped, with the settings of its Deployment."""
    (container,) = release.get(_DEPLOYMENT)["spec"]["template"]["spec"]["containers"]
    variables = {one["name"]: one["value"] for one in container["env"] if "value" in one}
    secret = folder / "secret"
    secret.write_bytes(release.secret())
    with release.keep_forwarding("service/flotilla-writer", 8080) as writer:
        own = {
            "FLOTILLA_NAMESPACE": release.namespace,
            "FLOTILLA_WRITER": writer,
            "FLOTILLA_SECRET_FILE": str(secret),
            "FLOTILLA_HOST": "127.0.0.1",
            "FLOTILLA_PORT": str(free_port()),
            "KUBECONFIG": str(release.cluster.kubeconfig),
            "PYTHONPATH": str(_TESTS),
        }
        runs = OperatorRuns({**os.environ, **variables, **own}, folder / "operators.txt")
        try:
            yield runs
        finally:
            runs.stop()
