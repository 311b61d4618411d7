"""When to try again, when to say something, when to give up. Decisions only: time and chance are passed in."""

from collections.abc import Callable
from enum import Enum, auto

_JITTER = 0.5  # at most this part of a delay is taken off, so that brokers that lost one peer do not dial in step


class Backoff:
    """The delays between attempts: each twice the one before up to a limit, less a part that `draw` (0 to 1) gives."""

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
        """Begin again with the shortest delay."""
        self._next_s = self._s_min


class Throttle:
    """Lets one event through in a while and counts the others: strangers must not be able to fill the log."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._next_at = float("-inf")
        self._held = 0

    def pass_at(self, now: float) -> int | None:
        """Return how many events were held back since the last that passed; None if this one is held back too."""
        if now < self._next_at:
            self._held += 1
            return None
        self._next_at = now + self._every_s
        held, self._held = self._held, 0
        return held


class Due(Enum):
    """What a tick of a connection calls for."""

    PING = auto()
    CLOSE = auto()


class Silence:
    """Tells when a peer has been silent for too long.

    It counts ticks, not time: when this process was held up, whatever the peer sent meanwhile is waiting to be read,
    and the clock would blame the peer for it.
    """

    def __init__(self, ping_s: float, silence_s: float) -> None:
        self._ping_s = ping_s
        self._silence_s = silence_s
        self._silent_s = 0.0
        self.heard = True  # set by whoever reads

    def tick(self) -> Due:
        """Take note that `ping_s` have passed."""
        self._silent_s = 0.0 if self.heard else self._silent_s + self._ping_s
        self.heard = False
        return Due.CLOSE if self._silent_s >= self._silence_s else Due.PING
