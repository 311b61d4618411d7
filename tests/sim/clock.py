"""Virtual time: events happen in the order of their times, and nothing waits."""

import heapq
from collections.abc import Callable
from itertools import count


class Clock:
    """What happens when. Two events at the same time happen in the order in which they were planned."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = count()

    def after(self, delay_s: float, event: Callable[[], None]) -> None:
        """Plan an event."""
        heapq.heappush(self._events, (self.now + delay_s, next(self._count), event))

    def step(self) -> bool:
        """Let the next event happen; return False if there is none."""
        if not self._events:
            return False
        self.now, _, event = heapq.heappop(self._events)
        event()
        return True
