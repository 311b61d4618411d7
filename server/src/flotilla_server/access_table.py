"""The table of all tokens, as servers exchange and store it.

Managers read it from the database. Brokers get it with the response to a heartbeat, and store it in a file. Its version
is a digest of its content: servers with the same version have the same table.

A table with anything unknown or invalid, such as an unknown field, is rejected as a whole: it could be a restriction.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec

from flotilla.access.grants import Grant
from flotilla.access.tokens import GRANTS_MAX, Token

TOKENS_MAX = 10_000
TABLE_BYTES_MAX = 32 << 20  # as JSON; no table of valid tokens is larger
_FORMAT = 1
_VERSION_LENGTH = 16
_TEXTS = ("id", "name", "digest")
_NUMBERS = ("created_ms",)
_OPTIONAL_NUMBERS = ("bytes_per_s", "requests_per_s", "in_flight_bytes", "expires_ms")
_FIELDS = {*_TEXTS, *_NUMBERS, *_OPTIONAL_NUMBERS, "grants"}


class TableInvalid(ValueError):
    """The data is not an access table."""


@dataclass(frozen=True)
class AccessTable:
    """All tokens, sorted by id."""

    tokens: tuple[Token, ...] = ()

    def __post_init__(self) -> None:
        if len(self.tokens) > TOKENS_MAX:
            raise TableInvalid(f"{len(self.tokens)} tokens; the limit is {TOKENS_MAX}")
        object.__setattr__(self, "tokens", tuple(sorted(self.tokens, key=lambda token: token.id)))
        if len({token.id for token in self.tokens}) != len(self.tokens):
            raise TableInvalid("a token is in the table twice")

    @cached_property
    def version(self) -> str:
        """A digest of the content."""
        return hashlib.sha256(self.to_json()).hexdigest()[:_VERSION_LENGTH]

    def to_json(self) -> bytes:
        """Encode as canonical JSON."""
        return msgspec.json.encode(self.to_builtins(), order="sorted")

    def to_builtins(self) -> dict[str, Any]:
        """Convert to JSON types."""
        return {"format": _FORMAT, "tokens": [dict(token.builtins) for token in self.tokens]}

    @classmethod
    def from_builtins(cls, data: object, before: "AccessTable | None" = None) -> "AccessTable":
        """Parse untrusted data from a file or from the network. Raises ValueError.

        Unchanged tokens are taken from `before`, without checking them again: a table may have thousands.
        """
        found = _mapping(data, {"format", "tokens"}, "an access table")
        if found["format"] != _FORMAT or isinstance(found["format"], bool):
            raise TableInvalid(f"the access table has another format than {_FORMAT}, the one that this server reads")
        tokens = _list(found["tokens"], TOKENS_MAX, "tokens")
        known = {} if before is None else {token.id: token for token in before.tokens}
        return cls(tuple(_read(token, known) for token in tokens))


def _read(data: object, known: Mapping[str, Token]) -> Token:
    found = _mapping(data, _FIELDS, "a token in the access table")
    same = known.get(found["id"]) if isinstance(found["id"], str) else None
    if same is not None and same.builtins == found:
        return same
    for name in _TEXTS:
        _check(isinstance(found[name], str), name)
    for name in (*_NUMBERS, *_OPTIONAL_NUMBERS):
        is_left_out = found[name] is None and name in _OPTIONAL_NUMBERS
        _check(is_left_out or (isinstance(found[name], int) and not isinstance(found[name], bool)), name)
    grants = _list(found["grants"], GRANTS_MAX, "grants")
    for grant in grants:
        _check(isinstance(grant, str), "grants")
    return Token(**{**found, "grants": tuple(Grant.parse(grant) for grant in grants)})


def _mapping(data: object, fields: set[str], what: str) -> Mapping[str, Any]:
    if not isinstance(data, Mapping) or set(data) != fields:
        raise TableInvalid(f"{what} must be an object with exactly these fields: {', '.join(sorted(fields))}")
    return data


def _list(data: object, length_max: int, what: str) -> list[Any]:
    if not isinstance(data, list) or len(data) > length_max:
        raise TableInvalid(f"{what} of the access table must be a list of at most {length_max}")
    return data


def _check(holds: bool, name: str) -> None:
    """Raise TableInvalid without the value, which may be a secret by mistake."""
    if not holds:
        raise TableInvalid(f"{name} of a token in the access table has the wrong type")
