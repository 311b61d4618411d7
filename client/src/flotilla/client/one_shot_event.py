"""An event that is set once and that threads can wait for. Setting it never blocks.

`threading.Event` and the futures of `concurrent.futures` have a lock that both sides acquire. A KeyboardInterrupt may
hit the waiting thread after it acquired this lock and before the interpreter knows that it has to release it. Then the
setting side blocks forever; here that is the event loop of a client. Therefore each waiting thread has a lock of its
own, which the setting side only releases.
"""

import threading
from contextlib import suppress


class OneShotEvent:
    """An event that any thread sets once, and any number of threads wait for."""

    __slots__ = ("_is_set", "_waiting")

    def __init__(self) -> None:
        self._is_set = False
        self._waiting: list[threading.Lock] = []

    def set(self) -> None:
        """Set the event, and wake all waiting threads."""
        self._is_set = True  # before the list is read: a thread that registers later sees it
        with suppress(IndexError):  # the list is empty; a thread may have removed itself meanwhile
            while True:
                self._waiting.pop().release()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the event is set; return whether it is."""
        if self._is_set:
            return True
        lock = threading.Lock()
        lock.acquire()
        self._waiting.append(lock)
        if not self._is_set:
            lock.acquire(timeout=-1.0 if timeout_s is None else max(0.0, timeout_s))
        with suppress(ValueError):  # `set` has removed it
            self._waiting.remove(lock)
        return self._is_set
