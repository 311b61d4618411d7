"""The cache folder: what takes long to make is made once, by one process at a time, and found again by every clone."""

import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

_LINES = 40  # of a command's output that are shown when it fails
_ALONE = ("setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
_SHOWN_S = 60  # how often one hears that something is still being made


class CommandFailed(RuntimeError):
    """A command ended in error; the text has its last lines."""


def folder() -> Path:
    """Tell where things are kept."""
    found = Path(os.environ.get("FLOTILLA_CACHE") or Path.home() / ".cache" / "flotilla") / "cluster"
    found.mkdir(parents=True, exist_ok=True)
    return found.resolve()


def say(text: str) -> None:
    """Show progress, also where pytest keeps what is printed to itself."""
    print(f"cluster: {text}", file=sys.__stderr__, flush=True)


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Be the only process that makes `name`."""
    with (folder() / f"{name}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waits for another process that makes {name}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def made(name: str, key: str, make: Callable[[Path], None], kept_s: float = 24 * 3600) -> Path:
    """Have a folder `name`-`key`: find it, or make it as a whole or not at all.

    Others of that name go when nobody has asked for them for `kept_s`: until then, another clone may be using them.
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
        say(f"makes {name} (once; it is kept in the cache folder)")
        half = folder() / f".{name}"
        if half.exists():
            shutil.rmtree(half)  # of a run that was killed: what was mounted there is gone with its namespaces
        half.mkdir()
        make(half)
        os.utime(half)
        half.rename(place)
        say(f"made {name} in {time.monotonic() - began:.0f} s")
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
    """Run a command; return what it printed. Raises CommandFailed. With `log`, its output goes there, too.

    With `alone`, it runs in mount and process namespaces of its own, and dies with us: nothing that it mounted or
    started is left, however this ends.
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
                say(f"still at it after {passed:.0f} s: {' '.join(map(str, command[:2]))}")
    if log is not None:
        log.write_text(output)
    if process.returncode != 0:
        last = "\n".join(output.splitlines()[-_LINES:])
        raise CommandFailed(f"{' '.join(words)} ended with {process.returncode}:\n{last}")
    return output
