"""Who may call this manager: the tokens of the last snapshot, so that no request asks the database.

A token that was revoked through another manager is known here as soon as the view has seen it, about a second later.
One that is not known is looked for in the database before its holder is refused, since it may have been made a moment
ago; those who show such tokens at about the same time share the question, so that they cannot keep the database busy.
While the database is away, what is known stays in use; a token that expires does so all the same.
"""

import asyncio
from collections.abc import Callable

from flotilla.access import Access, AccessTable, Caller, NotAuthenticated, system_text
from flotilla.serving.errors import Refusal
from flotilla_manager.metadata.errors import MetadataError
from flotilla_manager.model import Snapshot
from flotilla_manager.view import View

Header = tuple[str, str]
_LOOK_S = 0.1  # the database is asked about tokens that nobody knows at most so often


class KnownTokens:
    """The table of tokens as the view has them. It is made anew only when one of them has changed."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._seen: Snapshot | None = None
        self._table = AccessTable()
        self._written: tuple[AccessTable, bytes] | None = None

    @property
    def is_known(self) -> bool:
        """Whether anything is known yet."""
        return self._view.snapshot is not None

    async def look_again(self) -> bool:
        """Look for tokens that are not known here yet; return whether the database could be asked."""
        loop = asyncio.get_running_loop()
        await asyncio.sleep(_LOOK_S - loop.time() % _LOOK_S)
        try:
            await self._view.refresh()
        except MetadataError:
            return False
        return True

    @property
    def table(self) -> AccessTable:
        """The table as of now."""
        found = self._view.snapshot
        if found is not None and found is not self._seen:
            if self._seen is None or found.tokens != self._seen.tokens:
                self._table = AccessTable(found.tokens)
            self._seen = found
        return self._table

    @property
    def written(self) -> bytes:
        """The table as JSON, for brokers: written once, however many ask for it at the same time."""
        table = self.table
        if self._written is None or self._written[0] is not table:
            self._written = table, table.to_json()
        return self._written[1]


class ManagerAccess(Access):
    """Knows callers by the tokens that are known now. Before any are, it knows the system alone."""

    def __init__(self, secret: bytes | None, tokens: KnownTokens, now_ms: Callable[[], int]) -> None:
        super().__init__(secret, tokens.table, now_ms)
        self._tokens = tokens

    def identify(self, authorization: bytes | None) -> Caller:
        """Tell who shows this; raises NotAuthenticated, and Refusal while nobody can know."""
        self._follow()
        try:
            return super().identify(authorization)
        except NotAuthenticated:
            if authorization is not None and not self._tokens.is_known:
                text = "Which tokens are valid is not known yet; try again."
                raise Refusal("unavailable", text) from None  # it may be a valid one
            raise

    async def look_again(self) -> bool:
        """Look for tokens that are not known here yet; return whether there may be any."""
        return await self._tokens.look_again()

    def knows(self, caller: Caller) -> bool:
        """Tell whether a caller who was let in would be let in now."""
        self._follow()
        return super().knows(caller)

    def _follow(self) -> None:
        table = self._tokens.table
        if table is not self.table:
            self.replace(table)


def system_headers(secret: bytes | None) -> tuple[Header, ...]:
    """Return what a server shows to others of its cluster; nothing if they share no secret."""
    return () if secret is None else (("authorization", f"Bearer {system_text(secret)}"),)
