"""How long to wait before something that failed is tried again: longer each time, up to a minute."""

from dataclasses import dataclass

FIRST_S = 1.0
LAST_S = 60.0
THIN_S = 2.0


@dataclass(frozen=True)
class _Wait:
    until: float
    seconds: float


class Patience:
    """Remembers what failed, by key."""

    def __init__(self) -> None:
        self._waits: dict[str, _Wait] = {}

    def may_try(self, key: str, now: float) -> bool:
        """Tell whether it is time."""
        wait = self._waits.get(key)
        return wait is None or now >= wait.until

    def failed(self, key: str, now: float) -> float:
        """Remember a failure; return for how long it is left alone."""
        before = self._waits.get(key)
        seconds = FIRST_S if before is None else min(before.seconds * 2, LAST_S)
        self._waits[key] = _Wait(now + seconds, seconds)
        return seconds

    def is_thin(self, key: str) -> bool:
        """Tell whether something has failed again and again, and not just now."""
        wait = self._waits.get(key)
        return wait is not None and wait.seconds > THIN_S

    def succeeded(self, key: str) -> None:
        """Forget failures."""
        self._waits.pop(key, None)

    def keep_only(self, keys: set[str]) -> None:
        """Forget what is gone."""
        for key in self._waits.keys() - keys:
            del self._waits[key]
