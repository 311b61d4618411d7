"""The cache folder: builds that take long are made once, by one process at a time, and shared by all clones."""

import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

_LINES = 40  # lines of output that are shown when a command fails
_ALONE = ("setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
_SHOWN_S = 60  # interval of messages about a running build


class CommandFailed(RuntimeError):
    """A command failed; the message has its last lines."""


def folder() -> Path:
    """Return the cache folder."""
    found = Path(os.environ.get("FLOTILLA_CACHE") or Path.home() / ".cache" / "flotilla") / "cluster"
    found.mkdir(parents=True, exist_ok=True)
    return found.resolve()


def report(text: str) -> None:
    """Print progress, also if pytest captures output."""
    print(f"cluster: {text}", file=sys.__stderr__, flush=True)


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold the lock for making `name`."""
    with (folder() / f"{name}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(f"waiting for another process that builds {name}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def made(name: str, key: str, make: Callable[[Path], None], kept_s: float = 24 * 3600) -> Path:
    """Return the folder `name`-`key`; make it, atomically, if it does not exist.

    Other folders of that name are deleted if they were not used for `kept_s`, because another clone may use them.
    """
    place = folder() / f"{name}-{key}"
    with locked(name):
        if place.exists():
            os.utime(place)
            return place
        for old in folder().glob(f"{name}-*"):
            if old.stat().st_mtime < time.time() - kept_s:
                shutil.rmtree(old)
        began = time.monotonic()
        report(f"building {name} (once, for the cache folder)")
        half = folder() / f".{name}"
        if half.exists():
            shutil.rmtree(half)  # of a killed run, whose mounts ended with its namespaces
        half.mkdir()
        make(half)
        os.utime(half)
        half.rename(place)
        report(f"built {name} in {time.monotonic() - began:.0f} s")
    return place


def run(
    command: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    log: Path | None = None,
    seconds: float = 3600,
    alone: bool = False,
) -> str:
    """Run a command; return its output. Raises CommandFailed. With `log`, the output is also written to a file.

    With `alone`, it runs in its own mount and process namespaces and dies with this process, so that no mounts or
    processes are left.
    """
    words = [*(_ALONE if alone else ()), *(str(word) for word in command)]
    began = time.monotonic()
    with subprocess.Popen(
        words,
        cwd=cwd,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        while True:
            try:
                output, _ = process.communicate(timeout=_SHOWN_S)
                break
            except subprocess.TimeoutExpired:
                passed = time.monotonic() - began
                if passed > seconds:
                    process.kill()
                    raise CommandFailed(f"{' '.join(words)} took longer than {seconds:.0f} s") from None
                report(f"still running after {passed:.0f} s: {' '.join(map(str, command[:2]))}")
    if log is not None:
        log.write_text(output)
    if process.returncode != 0:
        last = "\n".join(output.splitlines()[-_LINES:])
        raise CommandFailed(f"{' '.join(words)} ended with {process.returncode}:\n{last}")
    return output
