"""Backoff, log throttling and idle timeout. Pure: time and random numbers are arguments."""

from collections.abc import Callable
from enum import Enum, auto

_JITTER = 0.5  # maximum random reduction of a delay, so that brokers do not dial at the same time


class Backoff:
    """Exponential backoff up to a limit, with jitter from `draw` (0 to 1)."""

    def __init__(self, s_min: float, s_max: float, draw: Callable[[], float]) -> None:
        self._s_min = s_min
        self._s_max = s_max
        self._draw = draw
        self._next_s = s_min

    def next_s(self) -> float:
        """Return the delay before the next attempt."""
        delay_s = self._next_s
        self._next_s = min(self._s_max, 2 * delay_s)
        return delay_s * (1 - _JITTER * self._draw())

    def reset(self) -> None:
        """Start again with the shortest delay."""
        self._next_s = self._s_min


class Throttle:
    """Limits the rate of log lines, and counts suppressed ones: unauthenticated clients must not fill the log."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._next_at = float("-inf")
        self._held = 0

    def pass_at(self, now: float) -> int | None:
        """Return the number of events suppressed since the last one; None if this one is suppressed too."""
        if now < self._next_at:
            self._held += 1
            return None
        self._next_at = now + self._every_s
        held, self._held = self._held, 0
        return held


class Due(Enum):
    """Action of a tick."""

    PING = auto()
    CLOSE = auto()


class Silence:
    """Idle timeout of a connection.

    It counts ticks, not time: if this process was blocked, data of the peer is waiting to be read, and the clock would
    count the delay as silence of the peer.
    """

    def __init__(self, ping_s: float, silence_s: float) -> None:
        self._ping_s = ping_s
        self._silence_s = silence_s
        self._silent_s = 0.0
        self.heard = True  # set when data arrives

    def tick(self) -> Due:
        """Record that `ping_s` have passed; return what to do."""
        self._silent_s = 0.0 if self.heard else self._silent_s + self._ping_s
        self.heard = False
        return Due.CLOSE if self._silent_s >= self._silence_s else Due.PING
