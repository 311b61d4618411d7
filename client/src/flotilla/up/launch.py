"""Creates child processes, by fork or as new interpreters.

Most of the start time of a server is spent on imports that all servers share. On Linux this process imports them once
and forks: the system starts and restarts much faster, and the memory is shared. That is safe because this process has
one thread. On other systems each child is a new interpreter.

A child ends with this process (`child`), has a session of its own (Ctrl-C reaches only this process, which then stops
the children in order), and writes to its log. It inherits two descriptors: the lock of the data folder, which is in use
while any child lives, and the end of a pipe that closes with this process.
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
    "FLOTILLA_SECRET_FILE",  # it takes precedence over the secret that brokers get
    *("FLOTILLA_TLS_CERT", "FLOTILLA_TLS_KEY", "FLOTILLA_TLS_CA"),  # these processes use plain HTTP
    *("PORT", "MANAGER_ADDRESS", "CURRENT_ADDRESS", "READ_ONLY"),  # servers read them, and a shell may have set them
}
_HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)
_LOG_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC


class Process(Protocol):
    """A child process."""

    @property
    def pid(self) -> int:
        """The process id."""

    def poll(self) -> int | None:
        """Return the exit code, if it has ended; a negative code is a signal."""

    def terminate(self) -> None:
        """Send SIGTERM."""

    def kill(self) -> None:
        """Send SIGKILL."""


@dataclass(frozen=True)
class ChildContext:
    """What all children share: log folder, environment, lock of the data folder, end of the pipe."""

    logs: Path
    environment: Mapping[str, str]
    lock_fd: int
    life_fd: int

    def open_log(self, child: Child) -> int:
        """Open the log of a child for append."""
        return os.open(self.logs / f"{child.name}.log", _LOG_FLAGS, 0o600)

    def child_environment(self, child: Child) -> dict[str, str]:
        """Return the environment of a child."""
        kept = {name: value for name, value in self.environment.items() if name not in _NOT_FOR_CHILDREN}
        return {**kept, **child.variables}


class Launcher(Protocol):
    """Starts a child process."""

    def __call__(self, child: Child, context: ChildContext) -> Process:
        """Start a process; raises OSError."""


def spawn(child: Child, context: ChildContext) -> Process:
    """Start a process as a new interpreter."""
    command = [sys.executable, "-P", "-m", children.__name__, str(os.getpid()), str(context.life_fd)]
    log = context.open_log(child)
    try:
        return subprocess.Popen(  # noqa: S603 - a module of this project
            [*command, child.name, child.module, *child.arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=context.child_environment(child),
            pass_fds=(context.life_fd, context.lock_fd),
            start_new_session=True,
        )
    finally:
        os.close(log)


def preload(modules: Iterable[str]) -> None:
    """Import the modules that children need. Errors are ignored: the child meets them again, and logs them."""
    for module in modules:
        try:
            spec = find_spec(module)
            name = f"{module}.__main__" if spec and spec.submodule_search_locations else module
            importlib.import_module(name)
            sys.modules.pop(name)  # the child runs it as the main module
        except Exception:  # noqa: BLE001, S112 - the child raises it again
            continue
    gc.collect()
    gc.freeze()  # keeps the memory shared: the collector does not write to frozen objects


class ForkedProcess:
    """A forked child process."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, if it has ended; a negative code is a signal."""
        if self._code is None:
            found, status = os.waitpid(self.pid, os.WNOHANG)
            if found == self.pid:
                self._code = os.waitstatus_to_exitcode(status)
        return self._code

    def terminate(self) -> None:
        """Send SIGTERM."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if self.poll() is None:  # the id is not reused before waitpid
            os.kill(self.pid, number)


def fork(child: Child, context: ChildContext) -> Process:
    """Start a process as a fork of this one."""
    parent, log = os.getpid(), context.open_log(child)
    # Signals are blocked until the child has its own handlers: the inherited ones would wake the loop of the parent.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)
    try:
        pid = os.fork()
        if pid == 0:
            _run(child, context, parent, log, before)
        return ForkedProcess(pid)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(log)


def _run(child: Child, context: ChildContext, parent: int, log: int, mask: Iterable[int]) -> NoReturn:
    """Run the child. It never returns and never raises, so that the stack of the parent does not continue in it."""
    code = 1
    try:
        _reset_inherited_state(child, context, log)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        children.bind(parent, context.life_fd, child.name)
        children.become(child.module, child.arguments)
        code = 0
    except SystemExit as end:
        code = _exit_code(end)
    except BaseException:  # noqa: BLE001 - the traceback goes to the log
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


def _reset_inherited_state(child: Child, context: ChildContext, log: int) -> None:
    """Reset inherited state: session, signal handlers, descriptors, standard streams and environment."""
    os.setsid()
    signal.set_wakeup_fd(-1)
    for number in _HANDLED:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - descriptors, not paths
        if int(name) > 2 and int(name) not in {context.lock_fd, context.life_fd}:  # noqa: PLR2004 - standard error
            with suppress(OSError):  # the descriptor of the listing itself
                os.close(int(name))
    sys.stdout = open(1, "w", buffering=1, encoding="utf-8", closefd=False)  # noqa: SIM115 - a descriptor
    sys.stderr = open(2, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(context.child_environment(child))
