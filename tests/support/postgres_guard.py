"""Run one PostgreSQL as its parent, and stop it when its user is gone.

Usage: postgres_guard.py BINARY FOLDER UID ARGUMENT ...

The user of the server holds the other end of standard input. When that is closed, the server is stopped. If it was
closed without a message, its user was killed, and the folder is deleted.
"""

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys

_STOP_S = 20.0


def main(binary: str, folder: str, uid: int, arguments: list[str]) -> int:
    """Start the server, wait for its exit or for a message; return its exit code."""
    for number in (signal.SIGINT, signal.SIGTERM):  # Ctrl-C is for the user, who closes the input
        signal.signal(number, signal.SIG_IGN)
    server = start(binary, uid, arguments)
    word = wait_for_word(server)
    if server.poll() is None:
        stop(server, signal.SIGINT if word else signal.SIGQUIT)
    if word == b"":
        shutil.rmtree(folder, ignore_errors=True)
    return server.wait()


def start(binary: str, uid: int, arguments: list[str]) -> "subprocess.Popen[bytes]":
    """Start it as a user other than root, since PostgreSQL refuses to run as root."""
    command = [binary, *arguments]
    if uid == os.geteuid():
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, start_new_session=True, user=uid, group=uid, extra_groups=[]
    )


def wait_for_word(server: "subprocess.Popen[bytes]") -> bytes | None:
    """Wait for a message or the end of input; None if the server exits first."""
    while server.poll() is None:
        ready, _, _ = select.select([sys.stdin.buffer], [], [], 0.05)
        if ready:
            return os.read(sys.stdin.fileno(), 100)
    return None


def stop(server: "subprocess.Popen[bytes]", how: signal.Signals) -> None:
    """Stop the server: with SIGINT (fast), then SIGQUIT (immediate)."""
    with contextlib.suppress(ProcessLookupError):
        server.send_signal(signal.SIGCONT)
        server.send_signal(how)
    try:
        server.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        server.send_signal(signal.SIGQUIT)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:]))
