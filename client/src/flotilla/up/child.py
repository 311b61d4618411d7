"""Start of a child process: bind it to its parent, then run the server.

On Linux the kernel kills the process (PR_SET_PDEATHSIG) when the thread that started it ends, even if the process hangs
or is stopped. A parent that ended before this call is detected by the changed parent id. On other systems a thread
reads from a pipe whose other end only the parent holds, and ends the process when the pipe closes.

A child that was not forked starts with:

    python -m flotilla.up.child PARENT_PID LIFE_FD NAME MODULE ARGUMENT ...
"""

import ctypes
import os
import runpy
import signal
import sys
import threading
from collections.abc import Sequence

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_EXIT_ORPHAN = 1
_FIXED_ARGUMENTS = 4


def main(arguments: Sequence[str]) -> None:
    """Bind this process to its parent, and run the module."""
    parent, life = int(arguments[0]), int(arguments[1])
    name, module, *rest = arguments[2:]
    bind(parent, life, name)
    become(module, rest)


def bind(parent: int, life: int, name: str) -> None:
    """Bind this process to its parent, and set its name where the system supports it."""
    if not die_with_parent(parent):
        watch(life)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)


def become(module: str, arguments: Sequence[str]) -> None:
    """Run a module as `python -m` would."""
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def die_with_parent(parent: int) -> bool:
    """Let the kernel kill this process when its parent dies; return whether that is supported."""
    if sys.platform != "linux":
        return False
    if ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        return False
    if os.getppid() != parent:
        sys.exit(_EXIT_ORPHAN)
    return True


def watch(life: int) -> threading.Thread:
    """Start a thread that kills this process when the parent's end of the pipe closes."""

    def wait() -> None:
        os.read(life, 1)
        os.kill(os.getpid(), signal.SIGKILL)

    thread = threading.Thread(target=wait, name="parent", daemon=True)
    thread.start()
    return thread


if __name__ == "__main__":
    if len(sys.argv) <= _FIXED_ARGUMENTS:
        sys.exit("flotilla.up.child is started by `flotilla up`, not by hand")
    main(sys.argv[1:])
