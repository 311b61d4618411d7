"""Tokens: made and revoked by the writer. The text of a new one is told once, and kept nowhere."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from flotilla.access import Grant, Token, TokenInvalid, digest_of, make_text
from flotilla.serving.errors import Refusal
from flotilla_manager.metadata import AsyncMetadata
from flotilla_manager.metadata.errors import MetadataError, TooManyTokens
from flotilla_manager.view import View
from flotilla_manager.writer.leadership import Leadership

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class TokenSpec:
    """What a token should be. A limit of None is none."""

    name: str
    grants: tuple[Grant, ...]
    expires_in_s: int | None = None
    bytes_per_s: int | None = None
    requests_per_s: int | None = None
    in_flight_bytes: int | None = None


class TokenKeeper:
    """The writer's hand on tokens. Each call raises Refusal if this manager is not the writer now."""

    def __init__(
        self,
        leadership: Leadership,
        database: AsyncMetadata,
        view: View,
        *,
        random_bytes: Callable[[int], bytes],
        now_ms: Callable[[], int],
    ) -> None:
        self._leadership = leadership
        self._database = database
        self._view = view
        self._random_bytes = random_bytes
        self._now_ms = now_ms

    def _epoch(self) -> int:
        if self._leadership.epoch is None:
            raise Refusal("unavailable", "There is no writer at the moment; try again.")
        return self._leadership.epoch

    async def create(self, spec: TokenSpec) -> tuple[Token, str]:
        """Make a token; return what is kept of it, and its text. Raises Refusal, MetadataError."""
        epoch = self._epoch()
        id_, text = make_text(self._random_bytes)
        token = make_token(spec, id_, text, self._now_ms())
        try:
            await self._database.call(self._database.store.create_token, epoch, token)
        except TooManyTokens as error:
            raise Refusal("conflict", f"{error}; revoke some that nobody uses") from error
        logger.info("token %s '%s' was made: %s", token.id, token.name, " ".join(map(str, token.grants)))
        await self._show()
        return token, text

    async def revoke(self, id_: str) -> None:
        """Take a token back. Raises Refusal, MetadataError."""
        if not await self._database.call(self._database.store.delete_token, self._epoch(), id_):
            raise Refusal("not_found", f"there is no token {id_}")
        logger.info("token %s was revoked", id_)
        await self._show()

    async def list_all(self) -> tuple[Token, ...]:
        """List all tokens, the oldest first. Raises Refusal, MetadataError."""
        self._epoch()
        await self._view.refresh()
        return () if self._view.snapshot is None else self._view.snapshot.tokens

    async def _show(self) -> None:
        """Have this manager know what was done, and brokers with their next heartbeats. It is done in any case."""
        try:
            await self._view.refresh()
        except MetadataError as error:
            logger.info("what was done is not seen here yet: %s", error)


def make_token(spec: TokenSpec, id_: str, text: str, now_ms: int) -> Token:
    """Make what is kept of a token. Raises Refusal."""
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
