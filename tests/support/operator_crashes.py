"""Run an operator that crashes after each change and is restarted each time."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.cluster import free_port
from support.crashing_operator import CRASHED_AFTER, EXITED
from support.release import Release

_TESTS = Path(__file__).parent.parent
_DEPLOYMENT = "deployment/flotilla-operator"


class OperatorRuns:
    """Starts crashing operators, and counts their crashes in a thread."""

    def __init__(self, environment: dict[str, str], log: Path) -> None:
        self.crashes: Counter[str] = Counter()  # by the kind of the last change
        self.errors: list[str] = []
        self._is_stopping = False
        command = [sys.executable, "-m", "support.crashing_operator"]
        with log.open("w", encoding="utf-8") as errors:
            self._process = subprocess.Popen(
                command,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,  # so that `stop` reaches all of its processes
            )
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        """Read results until all processes have ended."""
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                result, _, detail = line.strip().partition(" ")
                if result == CRASHED_AFTER:
                    self.crashes[detail] += 1
                elif result == EXITED and not self._is_stopping:
                    self.errors.append(f"the operator exited with code {detail}")

    def stop(self) -> None:
        """Stop the operator, and do not restart it."""
        self._is_stopping = True
        while self._thread.is_alive():
            with contextlib.suppress(ProcessLookupError):  # all of them have ended meanwhile
                os.killpg(self._process.pid, signal.SIGTERM)
            self._thread.join(1.0)
        self._process.wait()


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
