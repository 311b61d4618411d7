"""Callers: who makes a request, found out from the `authorization` header, and what they may do.

Nothing is asked of anybody on the way: the table is in memory. Whoever is not let in learns nothing about why, but
for whether a token was there at all; all comparisons take the same time whether they hold or not, and an unknown id
costs what a known one does. Header values are never in a message, a `repr` or a log.
"""

import hashlib
import hmac
from collections.abc import Callable

from flotilla.access.grants import Grant, Scope
from flotilla.access.table import AccessTable
from flotilla.access.tokens import PREFIX, Token, system_text

MISSING = "a token is missing: send Authorization: Bearer …"
INVALID = "the token is not valid"
_SCHEME = b"bearer"
_TEXT_BYTES_MAX = 200
_ID = slice(len(PREFIX), len(PREFIX) + 16)
_NO_DIGEST = b"-" * 64  # what an unknown token is compared with: it equals no digest


class NotAuthenticated(Exception):
    """Nobody that this server knows."""


class Caller:
    """Somebody whom a server knows: the holder of a token, another server, or anybody where callers are not checked."""

    __slots__ = ("_grants", "_may_all", "is_metered", "is_system", "name", "token")

    def __init__(
        self, name: str, token: Token | None = None, *, is_system: bool = False, may_all: bool = False
    ) -> None:
        self.name = name
        self.token = token
        self.is_system = is_system
        self._grants: tuple[Grant, ...] = () if token is None else token.grants
        self._may_all = may_all or is_system
        self.is_metered = token is not None and token.is_limited

    def __repr__(self) -> str:
        return f"Caller({self.name!r}, id={None if self.token is None else self.token.id})"

    @property
    def may_all(self) -> bool:
        """Whether nothing is refused to them: another server, or anybody where callers are not checked."""
        return self._may_all

    def allows(self, scope: Scope, topic: str) -> bool:
        """Tell whether they hold a scope on a topic."""
        return self._may_all or any(grant.scope is scope and grant.matches(topic) for grant in self._grants)

    def allows_all(self, scope: Scope) -> bool:
        """Tell whether they hold a scope on all topics that there are or will be."""
        return self._may_all or any(grant.scope is scope and grant.is_on_all for grant in self._grants)

    def sees(self, topic: str) -> bool:
        """Tell whether they hold any scope on a topic."""
        return self._may_all or any(grant.matches(topic) for grant in self._grants)


ANYBODY = Caller("anybody", may_all=True)
NOBODY = Caller("nobody")  # who asks for what is open to all, and was not asked who they are
SYSTEM = Caller("system", is_system=True)


class Access:
    """Knows callers by what they show. Without a secret there is no system caller; without tokens, nobody else."""

    def __init__(self, secret: bytes | None, table: AccessTable, now_ms: Callable[[], int]) -> None:
        self._has_system = secret is not None
        self._system = system_text(secret or b"").encode()
        self._now_ms = now_ms
        self.replace(table)

    def __repr__(self) -> str:
        return f"Access({len(self.table.tokens)} tokens, version {self.table.version})"

    @property
    def table(self) -> AccessTable:
        """The tokens that are known."""
        return self._table

    def replace(self, table: AccessTable) -> None:
        """Know these tokens from now on, and no others."""
        self._table = table
        self._holders = {
            token.id.encode(): (token.digest.encode(), Caller(token.name, token)) for token in table.tokens
        }

    def knows(self, caller: Caller) -> bool:
        """Tell whether somebody who was let in would still be: what goes on for long asks again."""
        token = caller.token
        if token is None:
            return caller.may_all
        _, holder = self._holders.get(token.id.encode(), (b"", None))
        return holder is not None and holder.token == token and not token.is_expired(self._now_ms())

    async def look_again(self) -> bool:
        """Look whether there are tokens that are not known here yet; return whether that was worth a second look."""
        return False

    def identify(self, authorization: bytes | None) -> Caller:
        """Tell who shows this; raises NotAuthenticated."""
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
