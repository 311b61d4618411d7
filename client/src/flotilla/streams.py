"""Internal: standard output whose reader closes it early, as in `flotilla topics list | head -1`."""

import contextlib
import os
from typing import TextIO


def discard_buffered(stream: TextIO) -> None:
    """Redirect a stream to the null device, with everything it has buffered.

    Python flushes standard output when it exits. On a closed pipe that flush would fail and change the exit code.
    """
    with contextlib.suppress(OSError, ValueError):  # a stream without a file descriptor is not flushed at exit
        descriptor = stream.fileno()
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, descriptor)
        os.close(null)
