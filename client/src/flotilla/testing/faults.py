"""Injected faults: rules for the next requests. They only decide; `flotilla.testing.system` applies them."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from flotilla.net.codes import CODES
from flotilla.protocol.errors import Refusal


@dataclass(eq=False)
class FaultRule:
    """A fault of requests whose path starts with `path`: of the next `left` ones, or of all if it is None."""

    path: str
    left: int | None

    def applies(self, path: str) -> bool:
        """Return whether the rule applies to a request, and count it."""
        if not path.startswith(self.path) or self.left == 0:
            return False
        if self.left is not None:
            self.left -= 1
        return True


@dataclass(eq=False)
class RefuseRule(FaultRule):
    """Reject requests without processing them."""

    make: Callable[[], Refusal]


@dataclass(eq=False)
class DropResponseRule(FaultRule):
    """Process requests, and cut the connection instead of responding."""


@dataclass(eq=False)
class DelayRule(FaultRule):
    """Process requests, and delay the response, at most until the rule is removed."""

    seconds: float
    removed: asyncio.Event = field(default_factory=asyncio.Event)

    async def wait(self) -> None:
        """Wait for the delay, or until the rule is removed."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.removed.wait(), self.seconds)


class Faults:
    """Active rules, oldest first."""

    def __init__(self) -> None:
        self._rules: list[FaultRule] = []

    def add(self, rule: FaultRule) -> None:
        """Add a rule, and drop exhausted ones."""
        self._rules = [*(one for one in self._rules if one.left != 0), rule]

    def remove(self, rule: FaultRule) -> None:
        """Remove a rule."""
        if rule in self._rules:
            self._rules.remove(rule)
            if isinstance(rule, DelayRule):
                rule.removed.set()

    def clear(self) -> None:
        """Remove all rules."""
        for rule in list(self._rules):
            self.remove(rule)

    def refusal(self, path: str) -> Refusal | None:
        """Return the refusal of a request, or None."""
        found = next((one for one in self._rules if isinstance(one, RefuseRule) and one.applies(path)), None)
        return None if found is None else found.make()

    def is_lost(self, path: str) -> bool:
        """Return whether the response to a request is lost."""
        return any(isinstance(one, DropResponseRule) and one.applies(path) for one in self._rules)

    def delays(self, path: str) -> list[DelayRule]:
        """Return the delays of the response to a request."""
        return [one for one in self._rules if isinstance(one, DelayRule) and one.applies(path)]


def refuse_rule(path: str, code: str, times: int | None, message: str, details: dict[str, object]) -> RefuseRule:
    """Make a rule. Raises ValueError if the code is unknown."""
    if code not in CODES:
        raise ValueError(f"unknown error code {code!r}; use one of {', '.join(sorted(CODES))}")
    return RefuseRule(_path(path), _times(times), lambda: Refusal(code, message, **details))


def drop_response_rule(path: str, times: int | None) -> DropResponseRule:
    """Make a rule. Raises ValueError."""
    return DropResponseRule(_path(path), _times(times))


def delay_rule(path: str, seconds: float) -> DelayRule:
    """Make a rule. Raises ValueError."""
    if seconds < 0:
        raise ValueError(f"delay is {seconds} s; it must be at least 0")
    return DelayRule(_path(path), None, seconds)


def _path(path: str) -> str:
    if not path.startswith("/"):
        raise ValueError(f"path is {path!r}; it must start with a slash, as in /v1/append, or / for all paths")
    return path


def _times(times: int | None) -> int | None:
    if times is not None and times < 1:
        raise ValueError(f"times is {times}; it must be at least 1, or None for no limit")
    return times
