"""Grants: scopes of a token on topics.

A grant is a scope and a pattern of topic names, as in `produce:orders.*`. In a pattern, `*` matches any text, also the
empty one; no other character is special. Scopes are independent of each other: admin includes neither produce nor
consume.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from flotilla.limits import TOPIC_NAME_RULE

GRANT_RULE = (
    "produce, consume or admin, then a colon and a pattern of topic names: letters, digits, '.', '_', '-', and '*' for "
    "anything; up to 200 characters"
)
_EVERY = "*"
_PATTERN = re.compile(r"[A-Za-z0-9._*-]{1,200}", re.ASCII)
_TOPIC = re.compile(TOPIC_NAME_RULE, re.ASCII)
_LENGTH_MAX = 200
_SHOWN_MAX = 60


class GrantInvalid(ValueError):
    """The text is not a grant."""


class Scope(StrEnum):
    """Permission on topics."""

    PRODUCE = "produce"
    CONSUME = "consume"
    ADMIN = "admin"


@dataclass(frozen=True)
class Grant:
    """A scope on the topics that match a pattern."""

    scope: Scope
    topics: str = _EVERY

    def __post_init__(self) -> None:
        if _PATTERN.fullmatch(self.topics) is None:
            raise GrantInvalid(f"the pattern {self.topics[:_SHOWN_MAX]!r} is invalid; a grant is {GRANT_RULE}")
        if "**" in self.topics:
            raise GrantInvalid(f"the pattern {self.topics[:_SHOWN_MAX]!r} has two stars in a row; use one")

    @classmethod
    def parse(cls, text: str) -> "Grant":
        """Parse a grant; a scope without a pattern applies to all topics. Raises GrantInvalid."""
        scope, colon, topics = text.partition(":")
        try:
            return cls(Scope(scope), topics if colon else _EVERY)
        except GrantInvalid:
            raise
        except ValueError:
            raise GrantInvalid(f"{text[:_SHOWN_MAX]!r} is not a grant; a grant is {GRANT_RULE}") from None

    def __str__(self) -> str:
        return f"{self.scope}:{self.topics}"

    @property
    def is_on_all(self) -> bool:
        """Whether the grant applies to all current and future topics."""
        return self.topics == _EVERY

    def matches(self, topic: str) -> bool:
        """Return whether the grant applies to a topic. Only `*` matches a text that is not a valid topic name.

        So another reference to a topic, such as its id, is never mistaken for a name. There is no backtracking: the
        time is at most proportional to the product of both lengths.
        """
        if self.topics == _EVERY:
            return True
        return len(topic) <= _LENGTH_MAX and _matches(self.topics, topic)


@lru_cache(maxsize=4096)
def _matches(pattern: str, topic: str) -> bool:
    """Match a pattern; the results are cached."""
    if _TOPIC.fullmatch(topic) is None:
        return False
    first, *rest = pattern.split("*")
    return topic == first if not rest else _fits(topic, first, rest)


def _fits(topic: str, first: str, rest: list[str]) -> bool:
    """Match the texts between the stars in order, each at its first position: a later one is never needed."""
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
