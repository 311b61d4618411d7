"""Tokens: what somebody shows to be let in, and what servers keep of it.

A token's text is `flt_<id>_<secret>`: the id finds it, and the secret is 32 random bytes, so its SHA-256 digest can be
kept without salt or stretching: nobody guesses 256 bits. The text itself is shown once, when it is made, and kept
nowhere; a digest is not secret in that sense, but nobody needs to see it, so it is in no `repr`.

Servers show each other a token that they derive from the secret they share: the secret itself is never sent.
"""

import base64
import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

from flotilla.access.grants import Grant

PREFIX = "flt_"
SYSTEM_PREFIX = "flt_system_"
GRANTS_MAX = 100
GRANTS_LENGTH_MAX = 2000  # of all grants of a token, written with spaces between them
NAME_RULE = "from 1 to 100 printable characters, without a space at either end"
_NAME_LENGTH_MAX = 100
_ID_BYTES = 8
_SECRET_BYTES = 32
_NUMBER_MAX = (1 << 63) - 1
_ID = re.compile("[0-9a-f]{16}", re.ASCII)
_DIGEST = re.compile("[0-9a-f]{64}", re.ASCII)
_PURPOSE = b"flotilla system token 1"
_LIMITS = ("bytes_per_s", "requests_per_s", "in_flight_bytes")


class TokenInvalid(ValueError):
    """What somebody says of a token cannot be true of one."""


@dataclass(frozen=True, kw_only=True)
class Token:
    """What servers know of a token. A limit of None is none; one without `expires_ms` is good until it is revoked."""

    id: str
    name: str
    digest: str = field(repr=False)
    grants: tuple[Grant, ...]
    bytes_per_s: int | None = None
    requests_per_s: int | None = None
    in_flight_bytes: int | None = None
    created_ms: int
    expires_ms: int | None = None

    @property
    def is_limited(self) -> bool:
        """Whether it has a quota of any kind."""
        return any(getattr(self, name) is not None for name in _LIMITS)

    def __post_init__(self) -> None:
        _require(_ID.fullmatch(self.id) is not None, "id", "16 hexadecimal digits")
        _require(is_name(self.name), "name", NAME_RULE)
        _require(_DIGEST.fullmatch(self.digest) is not None, "digest", "64 hexadecimal digits")
        _require(1 <= len(self.grants) <= GRANTS_MAX, "grants", f"from 1 to {GRANTS_MAX}")
        length = sum(len(str(grant)) + 1 for grant in self.grants)
        _require(length <= GRANTS_LENGTH_MAX, "grants", f"{GRANTS_LENGTH_MAX} characters together at most")
        for name in _LIMITS:
            value = getattr(self, name)
            _require(value is None or 1 <= value <= _NUMBER_MAX, name, f"from 1 to {_NUMBER_MAX}")
        _require(0 <= self.created_ms <= _NUMBER_MAX, "created_ms", f"from 0 to {_NUMBER_MAX}")
        _require(self.expires_ms is None or 0 <= self.expires_ms <= _NUMBER_MAX, "expires_ms", "a time")

    @cached_property
    def builtins(self) -> Mapping[str, Any]:
        """What JSON has of it: written once, because a table is passed on whenever one of its tokens changes."""
        plain = {one.name: getattr(self, one.name) for one in fields(self)}
        return {**plain, "grants": [str(grant) for grant in self.grants]}

    def is_expired(self, now_ms: int) -> bool:
        """Tell whether its time is over."""
        return self.expires_ms is not None and now_ms >= self.expires_ms


def is_name(text: str) -> bool:
    """Tell whether a text can be a token's name."""
    return 1 <= len(text) <= _NAME_LENGTH_MAX and text.isprintable() and text == text.strip()


def make_text(random_bytes: Callable[[int], bytes]) -> tuple[str, str]:
    """Draw a new token: its id, and the text for its holder."""
    token_id = random_bytes(_ID_BYTES).hex()
    secret = base64.urlsafe_b64encode(random_bytes(_SECRET_BYTES)).rstrip(b"=").decode()
    return token_id, f"{PREFIX}{token_id}_{secret}"


def digest_of(text: str) -> str:
    """Return what servers keep of a token's text."""
    return hashlib.sha256(text.encode()).hexdigest()


def system_text(secret: bytes) -> str:
    """Return the token that servers with this secret show each other."""
    return SYSTEM_PREFIX + hmac.new(secret, _PURPOSE, hashlib.sha256).hexdigest()


def _require(holds: bool, name: str, rule: str) -> None:
    """Never show the value: by mistake it may be a secret."""
    if not holds:
        raise TokenInvalid(f"{name} of a token must be: {rule}")
