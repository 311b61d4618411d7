"""Makes the child processes, in one of two ways.

Most of a server's start is importing what all of them need. On Linux this process imports it once and forks: a whole
system is up in a fraction of the time, what died is back at once, and the memory of it is shared. That is safe because
this process has one thread. Elsewhere each child is a new interpreter.

A child is bound to the life of this process (`child`), has a session of its own (Ctrl-C is for this process alone,
which then ends the others in order), writes to its log, and has two files open: the lock of the data folder, so that
this is in use for as long as any child lives, and the end of a pipe that closes with this process.
"""

import gc
import importlib
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn, Protocol

from flotilla.up import child as children
from flotilla.up.plan import Child

_NOT_FOR_CHILDREN = {
    "FLOTILLA_SECRET_FILE",  # it would win over the secret that brokers are given
    *("FLOTILLA_TLS_CERT", "FLOTILLA_TLS_KEY", "FLOTILLA_TLS_CA"),  # these processes speak plain HTTP with each other
    *("PORT", "MANAGER_ADDRESS", "CURRENT_ADDRESS", "READ_ONLY"),  # servers heed them, and a shell may have them
}
_HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)
_LOG_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC


class Process(Protocol):
    """A child process."""

    @property
    def pid(self) -> int:
        """Its id."""

    def poll(self) -> int | None:
        """Tell how it ended, if it did; a negative code is a signal."""

    def terminate(self) -> None:
        """Ask it to end."""

    def kill(self) -> None:
        """End it."""


@dataclass(frozen=True)
class Surroundings:
    """What all children get: where logs are, the environment, the lock of the folder, the end of the pipe."""

    logs: Path
    environment: Mapping[str, str]
    lock_fd: int
    life_fd: int

    def open_log(self, child: Child) -> int:
        """Open a child's log for append."""
        return os.open(self.logs / f"{child.name}.log", _LOG_FLAGS, 0o600)

    def environment_of(self, child: Child) -> dict[str, str]:
        """Make the environment of a child."""
        kept = {name: value for name, value in self.environment.items() if name not in _NOT_FOR_CHILDREN}
        return {**kept, **child.variables}


class Launcher(Protocol):
    """Makes processes."""

    def __call__(self, child: Child, around: Surroundings) -> Process:
        """Make a process; raises OSError."""


def execute(child: Child, around: Surroundings) -> Process:
    """Make a process as a new interpreter."""
    command = [sys.executable, "-P", "-m", children.__name__, str(os.getpid()), str(around.life_fd)]
    log = around.open_log(child)
    try:
        return subprocess.Popen(  # noqa: S603 - our own program
            [*command, child.name, child.module, *child.arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=around.environment_of(child),
            pass_fds=(around.life_fd, around.lock_fd),
            start_new_session=True,
        )
    finally:
        os.close(log)


def preload(modules: Iterable[str]) -> None:
    """Import what the children will need. What cannot be imported says so in the log of the child that needs it."""
    for module in modules:
        try:
            spec = find_spec(module)
            name = f"{module}.__main__" if spec and spec.submodule_search_locations else module
            importlib.import_module(name)
            sys.modules.pop(name)  # it is run again, as the main module
        except Exception:  # noqa: BLE001, S112 - whatever it is, the child will meet it too
            continue
    gc.collect()
    gc.freeze()  # what the collector does not touch stays shared with the children


class Forked:
    """A child process that was forked."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None

    def poll(self) -> int | None:
        """Tell how it ended, if it did; a negative code is a signal."""
        if self._code is None:
            found, status = os.waitpid(self.pid, os.WNOHANG)
            if found == self.pid:
                self._code = os.waitstatus_to_exitcode(status)
        return self._code

    def terminate(self) -> None:
        """Ask it to end."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if self.poll() is None:  # its id cannot be somebody else's before it was collected
            os.kill(self.pid, number)


def fork(child: Child, around: Surroundings) -> Process:
    """Make a process as a copy of this one."""
    parent, log = os.getpid(), around.open_log(child)
    # No signal may come before the child has handlers of its own: with ours, it would wake the loop of this process.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)
    try:
        pid = os.fork()
        if pid == 0:
            _run(child, around, parent, log, before)
        return Forked(pid)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(log)


def _run(child: Child, around: Surroundings, parent: int, log: int, mask: Iterable[int]) -> NoReturn:
    """Be the child. Nothing of the parent's stack may run on in it, so this never returns and never raises."""
    code = 1
    try:
        _settle(child, around, log)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        children.bind(parent, around.life_fd, child.name)
        children.become(child.module, child.arguments)
        code = 0
    except SystemExit as end:
        code = _exit_code(end)
    except BaseException:  # noqa: BLE001 - it goes to the log, as it would from a program of its own
        traceback.print_exc()
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _exit_code(end: SystemExit) -> int:
    if end.code is None or isinstance(end.code, int):
        return end.code or 0
    sys.stderr.write(f"{end.code}\n")
    return 1


def _settle(child: Child, around: Surroundings, log: int) -> None:
    """Let go of everything that is the parent's."""
    os.setsid()
    signal.set_wakeup_fd(-1)
    for number in _HANDLED:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - they are numbers, not paths
        if int(name) > 2 and int(name) not in {around.lock_fd, around.life_fd}:  # noqa: PLR2004 - standard error
            with suppress(OSError):  # the one that the listing itself used
                os.close(int(name))
    sys.stdout = open(1, "w", buffering=1, encoding="utf-8", closefd=False)  # noqa: SIM115 - a descriptor
    sys.stderr = open(2, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(around.environment_of(child))
