"""Tokens of callers: only the writer makes and removes them; everybody reads them with the snapshot.

To make or remove one raises the version of the topology, so that every manager sees it as soon as it sees anything.
What is kept of a token's text is its digest. A rebuild of the metadata leaves tokens as they are: brokers do not know
who made them.
"""

import logging
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, delete, func, select

from flotilla.access import TOKENS_MAX, Grant, Token
from flotilla_manager.metadata import tables
from flotilla_manager.metadata.database import Database
from flotilla_manager.metadata.errors import IdTaken, TooManyTokens
from flotilla_manager.metadata.upsert import insert_missing

logger = logging.getLogger(__name__)

EXPIRED_KEPT_MS = 7 * 24 * 3600 * 1000  # for whoever wonders why a token is refused

_tokens = tables.tokens
_COLUMNS = tuple(_tokens.c.keys())
_ALL = select(_tokens).order_by(_tokens.c.created_ms, _tokens.c.id)


class Tokens(Database):
    """Who may call, and what for."""

    def create_token(self, epoch: int, token: Token) -> None:
        """Make a token; to make the same one again changes nothing. Raises TooManyTokens, IdTaken.

        Tokens whose time was over long before are forgotten on this occasion.
        """
        forgotten = _tokens.c.expires_ms < token.created_ms - EXPIRED_KEPT_MS
        with self.deciding(epoch) as connection:
            connection.execute(delete(_tokens).where(forgotten))
            if connection.execute(insert_missing(self._dialect, _tokens, "id").values(**_values(token))).rowcount == 0:
                _require_same(connection, token)
            count = connection.execute(select(func.count()).select_from(_tokens)).scalar_one()
            if count > TOKENS_MAX:
                raise TooManyTokens(f"there are {count - 1} tokens; {TOKENS_MAX} is the limit")

    def delete_token(self, epoch: int, token_id: str) -> bool:
        """Remove a token; tell whether it was there."""
        with self.deciding(epoch) as connection:
            return connection.execute(delete(_tokens).where(_tokens.c.id == token_id)).rowcount > 0

    def list_tokens(self) -> tuple[Token, ...]:
        """List all tokens, the oldest first."""
        with self.asking() as connection:
            return read_tokens(connection)


def read_tokens(connection: Connection) -> tuple[Token, ...]:
    """Read all tokens, the oldest first.

    One that is not understood is left out: it opens nothing, and the others go on.
    """
    found = (_token(*row) for row in connection.execute(_ALL))
    return tuple(token for token in found if token is not None)


def _require_same(connection: Connection, token: Token) -> None:
    digest = connection.execute(select(_tokens.c.digest).where(_tokens.c.id == token.id)).scalar_one()
    if digest != token.digest:
        raise IdTaken(f"id {token.id} belongs to another token")


def _values(token: Token) -> dict[str, Any]:
    return {
        "id": token.id,
        "name": token.name,
        "digest": token.digest,
        "grants": " ".join(map(str, token.grants)),
        "bytes_per_s": token.bytes_per_s,
        "requests_per_s": token.requests_per_s,
        "in_flight_bytes": token.in_flight_bytes,
        "created_ms": token.created_ms,
        "expires_ms": token.expires_ms,
    }


@lru_cache(maxsize=TOKENS_MAX)
def _token(*row: Any) -> Token | None:  # noqa: ANN401 - as the columns are
    """Read a row, once: every change of the topology brings all of them, and rows never change."""
    values = dict(zip(_COLUMNS, row, strict=True))
    try:
        grants = tuple(Grant.parse(text) for text in values.pop("grants").split())
        return Token(**values, grants=grants)
    except ValueError as error:
        logger.error("token %s is not used, because it is not understood: %s", values["id"], error)  # noqa: TRY400 - no defect
        return None
