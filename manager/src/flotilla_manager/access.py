"""Authentication of callers by the cached tokens, without a database query per request.

A token that was revoked through another manager is rejected after the next refresh, about a second later. Before an
unknown token is rejected, the cache is refreshed, because the token may be new. These refreshes are rate-limited, so
that unknown tokens cannot overload the database. While the database is unavailable, cached tokens stay valid until they
expire.
"""

import asyncio
from collections.abc import Callable

from flotilla.access import system_token
from flotilla.protocol.errors import Refusal
from flotilla_manager.metadata.errors import MetadataError
from flotilla_manager.metadata_cache import MetadataCache
from flotilla_manager.model import Snapshot
from flotilla_server.access_table import AccessTable
from flotilla_server.callers import Access, Caller, NotAuthenticated

Header = tuple[str, str]
_LOOK_S = 0.1  # shortest interval of refreshes for unknown tokens


class TokenCache:
    """Access table of the cached tokens. Created again only if a token has changed."""

    def __init__(self, metadata: MetadataCache) -> None:
        self._metadata = metadata
        self._seen: Snapshot | None = None
        self._table = AccessTable()
        self._written: tuple[AccessTable, bytes] | None = None

    @property
    def is_known(self) -> bool:
        """Whether the metadata is loaded."""
        return self._metadata.snapshot is not None

    async def refresh(self) -> bool:
        """Refresh the tokens; return whether the database responded."""
        loop = asyncio.get_running_loop()
        await asyncio.sleep(_LOOK_S - loop.time() % _LOOK_S)
        try:
            await self._metadata.refresh()
        except MetadataError:
            return False
        return True

    @property
    def table(self) -> AccessTable:
        """Current access table."""
        found = self._metadata.snapshot
        if found is not None and found is not self._seen:
            if self._seen is None or found.tokens != self._seen.tokens:
                self._table = AccessTable(found.tokens)
            self._seen = found
        return self._table

    @property
    def written(self) -> bytes:
        """Access table as JSON, for brokers; encoded once per change."""
        table = self.table
        if self._written is None or self._written[0] is not table:
            self._written = table, table.to_json()
        return self._written[1]


class ManagerAccess(Access):
    """Authenticates callers by cached tokens. Until they are loaded, only servers of the cluster."""

    def __init__(self, secret: bytes | None, tokens: TokenCache, now_ms: Callable[[], int]) -> None:
        super().__init__(secret, tokens.table, now_ms)
        self._tokens = tokens

    def identify(self, authorization: bytes | None) -> Caller:
        """Authenticate a caller. Raises NotAuthenticated, and Refusal while the tokens are not loaded."""
        self._follow()
        try:
            return super().identify(authorization)
        except NotAuthenticated:
            if authorization is not None and not self._tokens.is_known:
                text = "The tokens are not loaded yet; try again."
                raise Refusal("unavailable", text) from None  # the token may be valid
            raise

    async def refresh(self) -> bool:
        """Refresh the tokens; return whether that worked."""
        return await self._tokens.refresh()

    def is_valid(self, caller: Caller) -> bool:
        """Return whether an authenticated caller is still valid."""
        self._follow()
        return super().is_valid(caller)

    def _follow(self) -> None:
        table = self._tokens.table
        if table is not self.table:
            self.replace(table)


def system_headers(secret: bytes | None) -> tuple[Header, ...]:
    """Return the headers that authenticate a server to others; empty without a secret."""
    return () if secret is None else (("authorization", f"Bearer {system_token(secret)}"),)
