"""What the children write, in files of bounded size.

A child has its file open for append, and goes on writing to it whatever happens to this command. A file that grew too
large is copied aside and emptied in place; the child does not notice. A line that is written in the moment between is
lost, which a log can bear; a pipe through this command could make a child wait for it, which a child cannot.
"""

import os
import shutil
from pathlib import Path

LOG_BYTES_MAX = 8 << 20  # per file; there are two per child
TAIL_LINES = 10
_TAIL_BYTES = 16 << 10
_LINE_CHARS_MAX = 400


def rotate(path: Path, bytes_max: int = LOG_BYTES_MAX) -> bool:
    """Put what a log holds aside if that is too much; return whether it was."""
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
    """Read the last lines of a log, of those that were written after `start` bytes."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            first = start if start <= size else 0  # it was emptied since
            at = file.seek(max(first, size - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return []
    found = text.splitlines()
    if at > first:
        found = found[1:]  # the first is only the end of a line
    return [line[:_LINE_CHARS_MAX] for line in found if line.strip()][-lines:]


def size_of(path: Path) -> int:
    """Tell how long a log is; one that is not there is empty."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
