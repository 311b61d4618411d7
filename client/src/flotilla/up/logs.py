"""Logs of the children, of bounded size.

A child appends to its file directly, independent of `flotilla up`. A file that is too large is copied and truncated in
place (copytruncate of logrotate); the child is not involved. A line written between copy and truncation is lost. A pipe
through this process would not lose it, but could block the child.
"""

import os
import shutil
from pathlib import Path

LOG_BYTES_MAX = 8 << 20  # per file; there are two per child
TAIL_LINES = 10
_TAIL_BYTES = 16 << 10
_LINE_CHARS_MAX = 400


def rotate(path: Path, bytes_max: int = LOG_BYTES_MAX) -> bool:
    """Rotate a log that is too large; return whether it was."""
    try:
        if path.stat().st_size <= bytes_max:
            return False
    except FileNotFoundError:
        return False
    aside = path.with_name(path.name + ".1")
    part = path.with_name(path.name + ".part")
    shutil.copyfile(path, part)
    part.replace(aside)
    os.truncate(path, 0)
    return True


def tail(path: Path, start: int = 0, lines: int = TAIL_LINES) -> list[str]:
    """Return the last lines of a log that were written after `start` bytes."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            first = start if start <= size else 0  # it was truncated since
            at = file.seek(max(first, size - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return []
    found = text.splitlines()
    if at > first:
        found = found[1:]  # the first line is incomplete
    return [line[:_LINE_CHARS_MAX] for line in found if line.strip()][-lines:]


def size_of(path: Path) -> int:
    """Return the size of a log; 0 if it does not exist."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
