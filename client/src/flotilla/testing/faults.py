"""What a test wants to go wrong: rules about requests, each for as many as it says. They decide, and do nothing."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from flotilla.net.codes import CODES
from flotilla.serving.errors import Refusal


@dataclass(eq=False)
class Rule:
    """Something that happens to requests whose path begins in a way; `left` of them, or all if it is None."""

    path: str
    left: int | None

    def takes(self, path: str) -> bool:
        """Tell whether it is about a request, and count that."""
        if not path.startswith(self.path) or self.left == 0:
            return False
        if self.left is not None:
            self.left -= 1
        return True


@dataclass(eq=False)
class Refusing(Rule):
    """Requests are refused, and nothing is done."""

    make: Callable[[], Refusal]


@dataclass(eq=False)
class Losing(Rule):
    """Requests are carried out, and the connection is cut instead of an answer."""


@dataclass(eq=False)
class Delaying(Rule):
    """Requests are carried out, and the answer takes its time, but no longer than the rule is in force."""

    seconds: float
    over: asyncio.Event = field(default_factory=asyncio.Event)

    async def wait(self) -> None:
        """Take that time."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.over.wait(), self.seconds)


class Faults:
    """All rules that are in force; the oldest is asked first."""

    def __init__(self) -> None:
        self._rules: list[Rule] = []

    def add(self, rule: Rule) -> None:
        """Have a rule, and drop those that have been used up."""
        self._rules = [*(one for one in self._rules if one.left != 0), rule]

    def remove(self, rule: Rule) -> None:
        """Have a rule no longer."""
        if rule in self._rules:
            self._rules.remove(rule)
            if isinstance(rule, Delaying):
                rule.over.set()

    def clear(self) -> None:
        """Have no rules."""
        for rule in list(self._rules):
            self.remove(rule)

    def refusal(self, path: str) -> Refusal | None:
        """Tell with what a request is refused, if it is."""
        found = next((one for one in self._rules if isinstance(one, Refusing) and one.takes(path)), None)
        return None if found is None else found.make()

    def is_lost(self, path: str) -> bool:
        """Tell whether a request's answer is lost."""
        return any(isinstance(one, Losing) and one.takes(path) for one in self._rules)

    def delays(self, path: str) -> list[Delaying]:
        """Tell what a request's answer has to wait for."""
        return [one for one in self._rules if isinstance(one, Delaying) and one.takes(path)]


def refusing(path: str, code: str, times: int | None, message: str, details: dict[str, object]) -> Refusing:
    """Make a rule; raises ValueError if there is no such code."""
    if code not in CODES:
        raise ValueError(f"{code!r} is no code of a refusal; there are {', '.join(sorted(CODES))}")
    return Refusing(_path(path), _times(times), lambda: Refusal(code, message, **details))


def losing(path: str, times: int | None) -> Losing:
    """Make a rule; raises ValueError."""
    return Losing(_path(path), _times(times))


def delaying(path: str, seconds: float) -> Delaying:
    """Make a rule; raises ValueError."""
    if seconds < 0:
        raise ValueError(f"a delay of {seconds} s cannot be; give a number from 0 on")
    return Delaying(_path(path), None, seconds)


def _path(path: str) -> str:
    if not path.startswith("/"):
        raise ValueError(f"{path!r} is no beginning of a path; write it as in /v1/append, and / for everything")
    return path


def _times(times: int | None) -> int | None:
    if times is not None and times < 1:
        raise ValueError(f"{times} times cannot be; give a number from 1 on, or None for as long as it lasts")
    return times
