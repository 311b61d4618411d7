"""Something that happens once, and that threads may wait for. Whoever says that it has happened never waits.

`threading.Event`, and the futures of `concurrent.futures`, have a lock that both sides take. Ctrl-C may come just when
whoever waits has taken it, and before the interpreter knows that it has to be given back: then the other side waits for
it for ever, and here that is the loop of a client, on which everything depends. So each who waits has a lock of its
own, which the other side only opens.
"""

import threading
from contextlib import suppress


class Once:
    """Set once, by anybody; waited for by any number of threads."""

    __slots__ = ("_is_set", "_waiting")

    def __init__(self) -> None:
        self._is_set = False
        self._waiting: list[threading.Lock] = []

    def set(self) -> None:
        """Say that it has happened."""
        self._is_set = True  # before the look at who waits: who comes later sees it
        with suppress(IndexError):  # nobody is left; who was may have gone between a look and a grasp
            while True:
                self._waiting.pop().release()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it has happened, and tell whether it has."""
        if self._is_set:
            return True
        closed = threading.Lock()
        closed.acquire()
        self._waiting.append(closed)
        if not self._is_set:
            closed.acquire(timeout=-1.0 if timeout_s is None else max(0.0, timeout_s))
        with suppress(ValueError):  # it is not there any more, if it was opened
            self._waiting.remove(closed)
        return self._is_set
