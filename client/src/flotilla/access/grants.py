"""Grants: what a token lets its holder do, and on which topics.

A grant is a scope and a pattern of topic names, as in `produce:orders.*`. In a pattern `*` stands for any text, also
none, and nothing else is special. Scopes are independent of each other: admin includes neither produce nor consume.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

GRANT_RULE = (
    "produce, consume or admin, then a colon and a pattern of topic names: letters, digits, '.', '_', '-', and '*' for "
    "anything; up to 200 characters"
)
_EVERY = "*"
_PATTERN = re.compile(r"[A-Za-z0-9._*-]{1,200}", re.ASCII)
_TOPIC = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}", re.ASCII)
_LENGTH_MAX = 200
_SHOWN_MAX = 60


class GrantInvalid(ValueError):
    """A text that is no grant."""


class Scope(StrEnum):
    """What can be allowed."""

    PRODUCE = "produce"
    CONSUME = "consume"
    ADMIN = "admin"


@dataclass(frozen=True)
class Grant:
    """One scope on the topics that a pattern matches."""

    scope: Scope
    topics: str = _EVERY

    def __post_init__(self) -> None:
        if _PATTERN.fullmatch(self.topics) is None:
            raise GrantInvalid(f"the pattern {self.topics[:_SHOWN_MAX]!r} is invalid; a grant is {GRANT_RULE}")
        if "**" in self.topics:
            raise GrantInvalid(f"the pattern {self.topics[:_SHOWN_MAX]!r} has two stars in a row; one means the same")

    @classmethod
    def parse(cls, text: str) -> "Grant":
        """Read a grant; raises GrantInvalid. A scope alone is on all topics."""
        scope, colon, topics = text.partition(":")
        try:
            return cls(Scope(scope), topics if colon else _EVERY)
        except GrantInvalid:
            raise
        except ValueError:
            raise GrantInvalid(f"{text[:_SHOWN_MAX]!r} is no grant; a grant is {GRANT_RULE}") from None

    def __str__(self) -> str:
        return f"{self.scope}:{self.topics}"

    @property
    def is_on_all(self) -> bool:
        """Whether it is on all topics, also on those that are yet to come."""
        return self.topics == _EVERY

    def matches(self, topic: str) -> bool:
        """Tell whether it is on a topic. What cannot be a topic's name is matched by `*` alone.

        So another way to name a topic, as by its id, is never taken for a name that looks like it. The time that it
        takes grows with the product of both lengths at most, whatever the pattern: there is no backtracking.
        """
        if self.topics == _EVERY:
            return True
        return len(topic) <= _LENGTH_MAX and _matches(self.topics, topic)


@lru_cache(maxsize=4096)
def _matches(pattern: str, topic: str) -> bool:
    """Decide it, once for what is asked again and again."""
    if _TOPIC.fullmatch(topic) is None:
        return False
    first, *rest = pattern.split("*")
    return topic == first if not rest else _fits(topic, first, rest)


def _fits(topic: str, first: str, rest: list[str]) -> bool:
    """Find the pieces between the stars one behind the other, each as early as it goes: later ones lose nothing."""
    last = rest.pop()
    end = len(topic) - len(last)
    at = len(first)
    if at > end or not topic.startswith(first) or not topic.endswith(last):
        return False
    for piece in rest:
        found = topic.find(piece, at, end)
        if found < 0:
            return False
        at = found + len(piece)
    return True
