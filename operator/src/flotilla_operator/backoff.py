"""Exponential backoff of failed actions: the delay doubles after each failure, up to a minute."""

from collections.abc import Callable
from dataclasses import dataclass

INITIAL_DELAY_S = 1.0
MAX_DELAY_S = 60.0
REPEATED_FAILURES = 3  # failures in a row before a condition shows the error
REJECTED_S = 60.0  # delay before a rejected Topic is sent again, if the topology does not change


@dataclass(frozen=True)
class _Delay:
    until: float
    seconds: float
    failures: int  # in a row


class Backoff:
    """Delays by key."""

    def __init__(self) -> None:
        self._delays: dict[str, _Delay] = {}

    def may_try(self, key: str, now: float) -> bool:
        """Whether the delay of a key is over."""
        delay = self._delays.get(key)
        return delay is None or now >= delay.until

    def failed(self, key: str, now: float) -> float:
        """Record a failure; return the delay before the next attempt."""
        before = self._delays.get(key)
        if before is None:
            delay = _Delay(now + INITIAL_DELAY_S, INITIAL_DELAY_S, 1)
        else:
            seconds = min(before.seconds * 2, MAX_DELAY_S)
            delay = _Delay(now + seconds, seconds, before.failures + 1)
        self._delays[key] = delay
        return delay.seconds

    def is_failing_repeatedly(self, key: str) -> bool:
        """Whether a key failed at least `REPEATED_FAILURES` times in a row."""
        delay = self._delays.get(key)
        return delay is not None and delay.failures >= REPEATED_FAILURES

    def succeeded(self, key: str) -> None:
        """Reset the delay of a key."""
        self._delays.pop(key, None)

    def keep_only(self, keys: set[str]) -> None:
        """Drop all other keys."""
        for key in self._delays.keys() - keys:
            del self._delays[key]


@dataclass(frozen=True)
class _Rejection:
    topology_version: int | None
    until: float
    text: str


class RetryTracker:
    """Failed actions by resource: when to try again, and the errors that conditions show.

    Losing this memory is harmless: a restarted operator retries every action immediately.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._backoff = Backoff()
        self._errors: dict[str, str] = {}
        self._rejections: dict[str, _Rejection] = {}

    def is_backoff_over(self, key: str) -> bool:
        """Whether no delay applies."""
        return self._backoff.may_try(key, self._clock())

    def may_resend_rejected(self, key: str, topology_version: int | None) -> bool:
        """Whether to send a rejected Topic again: after a change of the topology, or after a minute."""
        found = self._rejections.get(key)
        if found is None or self._clock() >= found.until:
            return True
        return topology_version is not None and found.topology_version not in {None, topology_version}

    def rejection(self, key: str) -> str | None:
        """Return the last rejection since the last success."""
        found = self._rejections.get(key)
        return None if found is None else found.text

    def last_error(self, key: str) -> str | None:
        """Return the last error of an unavailable service since the last success."""
        return self._errors.get(key)

    def repeated_error(self, key: str) -> str | None:
        """Return the error of an action that has failed repeatedly."""
        return self.last_error(key) if self._backoff.is_failing_repeatedly(key) else None

    def record_success(self, key: str) -> None:
        """Record a success."""
        self._backoff.succeeded(key)
        self._errors.pop(key, None)
        self._rejections.pop(key, None)

    def record_failure(self, key: str, error: str) -> float:
        """Record that a service was unavailable; return the delay before the next attempt."""
        self._errors[key] = error
        return self._backoff.failed(key, self._clock())

    def record_rejection(self, key: str, error: str, topology_version: int | None) -> None:
        """Record a rejection at a version of the topology; conditions show it until the action succeeds."""
        self._rejections[key] = _Rejection(topology_version, self._clock() + REJECTED_S, error)
        self._backoff.failed(key, self._clock())

    def keep_only(self, resource_keys: set[str], action_keys: set[str]) -> None:
        """Keep the state of these resources, and the delays of these actions."""
        self._backoff.keep_only(resource_keys | action_keys)
        self._errors = {key: one for key, one in self._errors.items() if key in resource_keys}
        self._rejections = {key: one for key, one in self._rejections.items() if key in resource_keys}
