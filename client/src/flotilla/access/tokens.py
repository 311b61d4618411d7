"""Tokens: their texts, and what servers store of them.

The text of a token is `flt_<id>_<secret>`. The secret is 32 random bytes, so its SHA-256 digest can be stored without
salt or stretching: 256 bits cannot be guessed. The text is returned once, when the token is created, and not stored. A
digest does not reveal the secret, but it is not needed in output, so it is in no `repr`.

Servers authenticate to each other with a token derived from their shared secret: the secret itself is never sent.
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
from flotilla.limits import INT64_MAX

PREFIX = "flt_"
SYSTEM_PREFIX = "flt_system_"
GRANTS_MAX = 100
GRANTS_LENGTH_MAX = 2000  # total length of the grants of a token, separated by spaces
NAME_RULE = "from 1 to 100 printable characters, without a space at either end"
_NAME_LENGTH_MAX = 100
_ID_BYTES = 8
_SECRET_BYTES = 32
_ID = re.compile("[0-9a-f]{16}", re.ASCII)
_DIGEST = re.compile("[0-9a-f]{64}", re.ASCII)
_PURPOSE = b"flotilla system token 1"
_LIMITS = ("bytes_per_s", "requests_per_s", "in_flight_bytes")


class TokenInvalid(ValueError):
    """A field of a token is invalid."""


@dataclass(frozen=True, kw_only=True)
class Token:
    """A token as servers store it. A quota of None is unlimited; without `expires_ms`, it is valid until revoked."""

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
        """Whether the token has a quota."""
        return any(getattr(self, name) is not None for name in _LIMITS)

    def __post_init__(self) -> None:
        _require(_ID.fullmatch(self.id) is not None, "id", "16 hexadecimal digits")
        _require(is_token_name(self.name), "name", NAME_RULE)
        _require(_DIGEST.fullmatch(self.digest) is not None, "digest", "64 hexadecimal digits")
        _require(1 <= len(self.grants) <= GRANTS_MAX, "grants", f"from 1 to {GRANTS_MAX}")
        length = sum(len(str(grant)) + 1 for grant in self.grants)
        _require(length <= GRANTS_LENGTH_MAX, "grants", f"{GRANTS_LENGTH_MAX} characters together at most")
        for name in _LIMITS:
            value = getattr(self, name)
            _require(value is None or 1 <= value <= INT64_MAX, name, f"from 1 to {INT64_MAX}")
        _require(0 <= self.created_ms <= INT64_MAX, "created_ms", f"from 0 to {INT64_MAX}")
        _require(self.expires_ms is None or 0 <= self.expires_ms <= INT64_MAX, "expires_ms", "a time")

    @cached_property
    def builtins(self) -> Mapping[str, Any]:
        """The fields as JSON types; cached, because the whole table is sent whenever one of its tokens changes."""
        plain = {one.name: getattr(self, one.name) for one in fields(self)}
        return {**plain, "grants": [str(grant) for grant in self.grants]}

    def is_expired(self, now_ms: int) -> bool:
        """Return whether the token has expired."""
        return self.expires_ms is not None and now_ms >= self.expires_ms


def is_token_name(text: str) -> bool:
    """Return whether a text is a valid name of a token."""
    return 1 <= len(text) <= _NAME_LENGTH_MAX and text.isprintable() and text == text.strip()


def generate_token(random_bytes: Callable[[int], bytes]) -> tuple[str, str]:
    """Generate a token; return its id and its text."""
    token_id = random_bytes(_ID_BYTES).hex()
    secret = base64.urlsafe_b64encode(random_bytes(_SECRET_BYTES)).rstrip(b"=").decode()
    return token_id, f"{PREFIX}{token_id}_{secret}"


def digest_of(text: str) -> str:
    """Return the digest of the text of a token, for storage."""
    return hashlib.sha256(text.encode()).hexdigest()


def system_token(secret: bytes) -> str:
    """Derive the token with which servers authenticate to each other from their shared secret."""
    return SYSTEM_PREFIX + hmac.new(secret, _PURPOSE, hashlib.sha256).hexdigest()


def _require(holds: bool, name: str, rule: str) -> None:
    """Raise TokenInvalid without the value, which may be a secret by mistake."""
    if not holds:
        raise TokenInvalid(f"{name} of a token must be: {rule}")
