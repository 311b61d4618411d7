"""Virtual time: events run in the order of their times, without waiting."""

import heapq
from collections.abc import Callable
from itertools import count


class Clock:
    """Queue of timed events. Events at the same time run in the order in which they were scheduled."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = count()

    def after(self, delay_s: float, event: Callable[[], None]) -> None:
        """Schedule an event."""
        heapq.heappush(self._events, (self.now + delay_s, next(self._count), event))

    def step(self) -> bool:
        """Run the next event; return False if there is none."""
        if not self._events:
            return False
        self.now, _, event = heapq.heappop(self._events)
        event()
        return True
