"""Tokens: created and revoked by the writer. The text of a token is returned once and not stored.

Brokers get changed tokens with their next heartbeats.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from flotilla.access import Grant, Token, TokenInvalid, digest_of, generate_token
from flotilla.protocol.errors import Refusal, not_found
from flotilla_manager.metadata import AsyncMetadata
from flotilla_manager.metadata.errors import TooManyTokens
from flotilla_manager.metadata_cache import MetadataCache
from flotilla_manager.writer.election import WriterElection

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class TokenSpec:
    """Settings of a new token. None: no limit."""

    name: str
    grants: tuple[Grant, ...]
    expires_in_s: int | None = None
    bytes_per_s: int | None = None
    requests_per_s: int | None = None
    in_flight_bytes: int | None = None


class TokenService:
    """Creates and revokes tokens. Raises Refusal if this manager is not the writer."""

    def __init__(
        self,
        election: WriterElection,
        database: AsyncMetadata,
        metadata: MetadataCache,
        *,
        random_bytes: Callable[[int], bytes],
        now_ms: Callable[[], int],
    ) -> None:
        self._election = election
        self._database = database
        self._metadata = metadata
        self._random_bytes = random_bytes
        self._now_ms = now_ms

    async def create(self, spec: TokenSpec) -> tuple[Token, str]:
        """Create a token; return it and its text. Raises Refusal, MetadataError."""
        epoch = self._election.require_epoch()
        id_, text = generate_token(self._random_bytes)
        token = make_token(spec, id_, text, self._now_ms())
        try:
            await self._database.call(self._database.store.create_token, epoch, token)
        except TooManyTokens as error:
            raise Refusal("conflict", f"{error}; revoke unused tokens") from error
        logger.info("token created token=%s name=%r grants=%s", token.id, token.name, ",".join(map(str, token.grants)))
        await self._metadata.refresh_after_change()
        return token, text

    async def revoke(self, id_: str) -> None:
        """Revoke a token. Raises Refusal, MetadataError."""
        if not await self._database.call(self._database.store.delete_token, self._election.require_epoch(), id_):
            raise not_found("token", f"there is no token {id_}")
        logger.info("token revoked token=%s", id_)
        await self._metadata.refresh_after_change()

    async def list_all(self) -> tuple[Token, ...]:
        """List all tokens, the oldest first. Raises Refusal, MetadataError."""
        self._election.require_epoch()
        await self._metadata.refresh()
        return () if self._metadata.snapshot is None else self._metadata.snapshot.tokens


def make_token(spec: TokenSpec, id_: str, text: str, now_ms: int) -> Token:
    """Create a token from its settings and text. Raises Refusal."""
    try:
        return Token(
            id=id_,
            name=spec.name,
            digest=digest_of(text),
            grants=tuple(dict.fromkeys(spec.grants)),
            bytes_per_s=spec.bytes_per_s,
            requests_per_s=spec.requests_per_s,
            in_flight_bytes=spec.in_flight_bytes,
            created_ms=now_ms,
            expires_ms=None if spec.expires_in_s is None else now_ms + spec.expires_in_s * 1000,
        )
    except TokenInvalid as error:
        raise Refusal("bad_request", str(error)) from error
