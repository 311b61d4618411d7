"""Access tokens. Only the writer creates and deletes them; all managers read them with the snapshot.

A change increments the version of the topology, so that managers reload the tokens. Only the digest of a token's text
is stored. A rebuild of the metadata does not change tokens.
"""

import logging
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, delete, func, select

from flotilla.access import Grant, Token
from flotilla_manager.metadata import tables
from flotilla_manager.metadata.database import Database
from flotilla_manager.metadata.errors import IdTaken, TooManyTokens
from flotilla_manager.metadata.upsert import insert_missing
from flotilla_server.access_table import TOKENS_MAX

logger = logging.getLogger(__name__)

EXPIRED_KEPT_MS = 7 * 24 * 3600 * 1000  # so that an expired token can still be explained

_tokens = tables.tokens
_COLUMNS = tuple(_tokens.c.keys())
_ALL = select(_tokens).order_by(_tokens.c.created_ms, _tokens.c.id)


class Tokens(Database):
    """Access tokens."""

    def create_token(self, epoch: int, token: Token) -> None:
        """Insert a token. Idempotent. Raises TooManyTokens, IdTaken.

        Also deletes tokens that expired more than `EXPIRED_KEPT_MS` ago.
        """
        expired = _tokens.c.expires_ms < token.created_ms - EXPIRED_KEPT_MS
        with self.topology_transaction(epoch) as connection:
            connection.execute(delete(_tokens).where(expired))
            if connection.execute(insert_missing(self._dialect, _tokens, "id").values(**_values(token))).rowcount == 0:
                _require_same(connection, token)
            count = connection.execute(select(func.count()).select_from(_tokens)).scalar_one()
            if count > TOKENS_MAX:
                raise TooManyTokens(f"the number of tokens is {count - 1}; the limit is {TOKENS_MAX}")

    def delete_token(self, epoch: int, token_id: str) -> bool:
        """Delete a token; return whether it existed."""
        with self.topology_transaction(epoch) as connection:
            return connection.execute(delete(_tokens).where(_tokens.c.id == token_id)).rowcount > 0

    def list_tokens(self) -> tuple[Token, ...]:
        """List all tokens, oldest first."""
        with self.read_statement() as connection:
            return read_tokens(connection)


def read_tokens(connection: Connection) -> tuple[Token, ...]:
    """Load all tokens, oldest first. Invalid tokens are left out: they grant nothing, and the others stay valid."""
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
def _token(*row: Any) -> Token | None:  # noqa: ANN401 - values of the columns
    """Parse a row. Cached, because every new snapshot loads all tokens, and rows never change."""
    values = dict(zip(_COLUMNS, row, strict=True))
    try:
        grants = tuple(Grant.parse(text) for text in values.pop("grants").split())
        return Token(**values, grants=grants)
    except ValueError as error:
        logger.error("invalid token ignored token=%s error=%r", values["id"], str(error))  # noqa: TRY400 - not a bug
        return None
