"""Callers: authentication by the `authorization` header, and their permissions.

Authentication uses the table in memory, without requests to other servers. A rejected client learns only whether a
token was missing or invalid. All comparisons take constant time, and an unknown token id costs the same as a known one.
Header values never appear in a message, a `repr` or a log.
"""

import hashlib
import hmac
from collections.abc import Callable

from flotilla.access.grants import Grant, Scope
from flotilla.access.tokens import PREFIX, Token, system_token
from flotilla_server.access_table import AccessTable

MISSING = "a token is missing: send Authorization: Bearer …"
INVALID = "token rejected: it is unknown, revoked or expired"
_SCHEME = b"bearer"
_TEXT_BYTES_MAX = 200
_ID = slice(len(PREFIX), len(PREFIX) + 16)
_NO_DIGEST = b"-" * 64  # compared with the digest of an unknown token: never equal


class NotAuthenticated(Exception):
    """The token is missing or invalid."""


class Caller:
    """An authenticated caller: a token holder, another server, or any client if authentication is off."""

    __slots__ = ("_grants", "_is_unrestricted", "is_metered", "is_system", "name", "token")

    def __init__(
        self, name: str, token: Token | None = None, *, is_system: bool = False, is_unrestricted: bool = False
    ) -> None:
        self.name = name
        self.token = token
        self.is_system = is_system
        self._grants: tuple[Grant, ...] = () if token is None else token.grants
        self._is_unrestricted = is_unrestricted or is_system
        self.is_metered = token is not None and token.is_limited

    def __repr__(self) -> str:
        return f"Caller({self.name!r}, id={None if self.token is None else self.token.id})"

    @property
    def is_unrestricted(self) -> bool:
        """Whether all requests are allowed: another server, or any client if authentication is off."""
        return self._is_unrestricted

    def allows(self, scope: Scope, topic: str) -> bool:
        """Return whether the caller has a scope on a topic."""
        return self._is_unrestricted or any(grant.scope is scope and grant.matches(topic) for grant in self._grants)

    def allows_all(self, scope: Scope) -> bool:
        """Return whether the caller has a scope on all current and future topics."""
        return self._is_unrestricted or any(grant.scope is scope and grant.is_on_all for grant in self._grants)

    def sees(self, topic: str) -> bool:
        """Return whether the caller has any scope on a topic."""
        return self._is_unrestricted or any(grant.matches(topic) for grant in self._grants)


UNRESTRICTED = Caller("unrestricted", is_unrestricted=True)
ANONYMOUS = Caller("anonymous")  # for paths that need no token
SYSTEM = Caller("system", is_system=True)


class Access:
    """Authenticates callers by their tokens. Without a secret, there is no system caller."""

    def __init__(self, secret: bytes | None, table: AccessTable, now_ms: Callable[[], int]) -> None:
        self._has_system = secret is not None
        self._system = system_token(secret or b"").encode()
        self._now_ms = now_ms
        self.replace(table)

    def __repr__(self) -> str:
        return f"Access({len(self.table.tokens)} tokens, version {self.table.version})"

    @property
    def table(self) -> AccessTable:
        """The current tokens."""
        return self._table

    def replace(self, table: AccessTable) -> None:
        """Replace all tokens."""
        self._table = table
        self._holders = {
            token.id.encode(): (token.digest.encode(), Caller(token.name, token)) for token in table.tokens
        }

    def is_valid(self, caller: Caller) -> bool:
        """Return whether a caller would still be authenticated; long-running requests check this repeatedly."""
        token = caller.token
        if token is None:
            return caller.is_unrestricted
        _, holder = self._holders.get(token.id.encode(), (b"", None))
        return holder is not None and holder.token == token and not token.is_expired(self._now_ms())

    async def refresh(self) -> bool:
        """Load tokens that are not known here yet; return whether to authenticate again."""
        return False

    def identify(self, authorization: bytes | None) -> Caller:
        """Authenticate a caller by the value of the `authorization` header. Raises NotAuthenticated."""
        if authorization is None:
            raise NotAuthenticated(MISSING)
        scheme, _, text = authorization.strip().partition(b" ")
        text = text.strip()
        if scheme.lower() != _SCHEME or not 1 <= len(text) <= _TEXT_BYTES_MAX:
            raise NotAuthenticated(MISSING if not text else INVALID)
        digest, caller = self._holders.get(text[_ID], (_NO_DIGEST, None))
        is_holder = hmac.compare_digest(hashlib.sha256(text).hexdigest().encode(), digest)
        if hmac.compare_digest(text, self._system) and self._has_system:
            return SYSTEM
        if not is_holder or caller is None or caller.token is None or caller.token.is_expired(self._now_ms()):
            raise NotAuthenticated(INVALID)
        return caller
