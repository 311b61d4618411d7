"""Many short lives of an operator: each ends when it has changed something, and the next begins."""

import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.cluster import free_port
from support.mortal import DIED
from support.release import Release

_TESTS = Path(__file__).parent.parent
_DEPLOYMENT = "deployment/flotilla-operator"


class Lives:
    """One after the other, in a thread."""

    def __init__(self, environment: dict[str, str], log: Path) -> None:
        self.ended: Counter[str] = Counter()  # what they had changed when they did
        self.trouble: list[str] = []
        self._environment = environment
        self._log = log
        self._is_over = False
        self._process: subprocess.Popen[str] | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        command = [sys.executable, "-m", "support.mortal"]
        with self._log.open("w", encoding="utf-8") as log:
            while not self._is_over:
                with subprocess.Popen(
                    command, env=self._environment, stdout=subprocess.PIPE, stderr=log, text=True
                ) as self._process:
                    assert self._process.stdout is not None
                    said = self._process.stdout.read().strip()
                if self._process.returncode == DIED:
                    self.ended[said] += 1
                elif not self._is_over:
                    self.trouble.append(f"it ended with {self._process.returncode}")
                    return

    def stop(self) -> None:
        """Have no more of them."""
        self._is_over = True
        while self._thread.is_alive():
            if self._process is not None:
                self._process.terminate()
            self._thread.join(1.0)


@contextmanager
def short_lives(release: Release, folder: Path) -> Iterator[Lives]:
    """Have them look after a system whose own operator is away, with the same settings."""
    (container,) = release.get(_DEPLOYMENT)["spec"]["template"]["spec"]["containers"]
    told = {one["name"]: one["value"] for one in container["env"] if "value" in one}
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
        lives = Lives({**os.environ, **told, **own}, folder / "lives.txt")
        try:
            yield lives
        finally:
            lives.stop()
