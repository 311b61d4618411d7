"""A simulated network: connections break; messages are delayed, reordered, lost or duplicated.

TCP is better within a connection. Guards that hold here also hold there.
"""

import random
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from sim.clock import Clock

_PAST_MESSAGES = 300


@dataclass(slots=True)
class Weather:
    """Severity of network faults."""

    loss: float = 0.0
    duplicates: float = 0.0
    disorder: float = 0.0  # share of messages with a much longer delay
    delay_s: float = 0.001
    replays: float = 0.0  # share of old messages that arrive again

    @classmethod
    def random(cls, rng: random.Random) -> "Weather":
        """Choose: mostly good, sometimes bad."""
        if rng.random() < 0.4:
            return cls(delay_s=rng.choice((0.0002, 0.001, 0.02)))
        return cls(
            loss=rng.choice((0, 0, 0.01, 0.1)),
            duplicates=rng.choice((0, 0.05, 0.3)),
            disorder=rng.choice((0, 0.1, 0.5)),
            delay_s=rng.choice((0.0002, 0.001, 0.02, 0.2)),
            replays=rng.choice((0, 0, 0.02)),
        )


class Network:
    """Connections between brokers. `deliver(to, sender, message)` is called when a message arrives."""

    def __init__(
        self,
        clock: Clock,
        rng: random.Random,
        names: list[str],
        *,
        deliver: Callable[[str, str, Any], None],
        connected: Callable[[str, str], None],
        disconnected: Callable[[str, str], None],
    ) -> None:
        self.weather = Weather()
        self.sent = 0
        self._clock = clock
        self._rng = rng
        self._deliver = deliver
        self._connected = connected
        self._disconnected = disconnected
        self._pairs = list(combinations(sorted(names), 2))
        self._links: dict[tuple[str, str], int] = {}  # pair: number of the current connection
        self._made = 0
        self._last_at: dict[tuple[str, str], float] = {}
        self._past: dict[tuple[str, str], deque[Any]] = defaultdict(lambda: deque(maxlen=_PAST_MESSAGES))

    def is_connected(self, one: str, other: str) -> bool:
        """Return whether two brokers are connected."""
        return _pair(one, other) in self._links

    def connect(self, one: str, other: str) -> None:
        """Connect two brokers; each side is notified at its own time."""
        if not self.is_connected(one, other):
            self._made += 1
            self._links[_pair(one, other)] = self._made
            for here, there in ((one, other), (other, one)):
                self._last_at[here, there] = 0
                self._connected(here, there)

    def disconnect(self, one: str, other: str) -> None:
        """Break a connection; messages in flight are lost."""
        if self._links.pop(_pair(one, other), None) is not None:
            self._disconnected(one, other)
            self._disconnected(other, one)

    def isolate(self, name: str) -> None:
        """Break all connections of one broker."""
        for pair in self._pairs:
            if name in pair:
                self.disconnect(*pair)

    def random_pair(self) -> tuple[str, str]:
        """Choose two brokers."""
        return self._rng.choice(self._pairs)

    def send(self, sender: str, to: str, message: Any) -> None:  # noqa: ANN401 - any message of a broker
        """Deliver a message after a delay, or drop it."""
        link = self._links.get(_pair(sender, to))
        if link is None or self._rng.random() < self.weather.loss:
            return
        past = self._past[sender, to]
        past.append(message)
        if self._rng.random() < self.weather.replays:
            self._travel(sender, to, link, self._rng.choice(past))
        for _ in range(2 if self._rng.random() < self.weather.duplicates else 1):
            self._travel(sender, to, link, message)

    def greet(self, sender: str, to: str, greeting: Any) -> None:  # noqa: ANN401
        """Deliver the first message of a connection, which nothing delays or loses while the connection lasts."""
        link = self._links.get(_pair(sender, to))

        def arrive() -> None:
            if self._links.get(_pair(sender, to)) == link:
                self._deliver(to, sender, greeting)

        if link is not None:
            self._clock.after(0.0001, arrive)

    def _travel(self, sender: str, to: str, link: int, message: Any) -> None:  # noqa: ANN401
        self.sent += 1
        arrives = self._clock.now + self.weather.delay_s * (0.5 + self._rng.random())
        if self._rng.random() < self.weather.disorder:
            arrives += self._rng.expovariate(1 / (20 * self.weather.delay_s))
        else:
            arrives = max(arrives, self._last_at.get((sender, to), 0))
            self._last_at[sender, to] = arrives

        def arrive() -> None:
            if self._links.get(_pair(sender, to)) == link:
                self._deliver(to, sender, message)

        self._clock.after(arrives - self._clock.now, arrive)


def _pair(one: str, other: str) -> tuple[str, str]:
    return (one, other) if one < other else (other, one)
