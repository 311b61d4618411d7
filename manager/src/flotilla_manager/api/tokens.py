"""Tokens over HTTP: made, listed, revoked. Only the writer answers, and only to who may administer everything."""

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Path, Response
from pydantic import BaseModel, ConfigDict, Field

from flotilla.access import Grant, GrantInvalid, Token
from flotilla.access.tokens import GRANTS_MAX
from flotilla.serving.errors import Refusal
from flotilla_manager.manager import Manager
from flotilla_manager.writer.tokens import TokenSpec

TOKENS = "/v1/tokens"
_NUMBER_MAX = (1 << 63) - 1
_EXPIRES_S_MAX = 100 * 366 * 24 * 3600
_GRANT_LENGTH_MAX = 220
_EXAMPLE: dict[str, Any] = {
    "name": "billing",
    "grants": ["produce:orders.*", "consume:invoices"],
    "expires_in_s": 2_592_000,
}
Limit = Annotated[int, Field(ge=1, le=_NUMBER_MAX)]
TokenId = Annotated[str, Path(pattern="^[0-9a-f]{16}$", description="As it was told when the token was made")]


class NewToken(BaseModel):
    """A token to make."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": _EXAMPLE})

    name: Annotated[str, Field(min_length=1, max_length=100, description="For people, to know it again")]
    grants: Annotated[
        list[Annotated[str, Field(max_length=_GRANT_LENGTH_MAX)]], Field(min_length=1, max_length=GRANTS_MAX)
    ]
    expires_in_s: Annotated[int, Field(ge=1, le=_EXPIRES_S_MAX)] | None = None
    bytes_per_s: Limit | None = None
    requests_per_s: Limit | None = None
    in_flight_bytes: Limit | None = None


def make_tokens(manager: Manager) -> APIRouter:
    """Make the routes."""
    router = APIRouter(prefix=TOKENS, tags=["tokens"])

    @router.post("")
    async def create_token(body: NewToken, response: Response) -> dict[str, Any]:
        """Make a token. Its text, under `token`, is told this once: nobody can look it up later."""
        spec = TokenSpec(**{**body.model_dump(), "grants": read_grants(body.grants)})
        token, text = await manager.tokens.create(spec)
        response.headers["cache-control"] = "no-store"
        return {"token": text, **describe_token(token)}

    @router.get("")
    async def list_tokens() -> dict[str, Any]:
        """All tokens, the oldest first: what they may do, but not what they are."""
        return {"tokens": [describe_token(token) for token in await manager.tokens.list_all()]}

    @router.delete("/{token_id}")
    async def revoke_token(token_id: TokenId) -> dict[str, str]:
        """Take a token back. Managers and brokers that can be reached refuse it within about two seconds."""
        await manager.tokens.revoke(token_id)
        return {"status": "ok"}

    return router


def read_grants(texts: Sequence[str]) -> tuple[Grant, ...]:
    """Read grants. Raises Refusal."""
    try:
        return tuple(map(Grant.parse, texts))
    except GrantInvalid as error:
        raise Refusal("bad_request", str(error)) from error


def describe_token(token: Token) -> dict[str, Any]:
    """Tell about a token everything but what would let somebody use it."""
    return {
        "id": token.id,
        "name": token.name,
        "grants": [str(grant) for grant in token.grants],
        "bytes_per_s": token.bytes_per_s,
        "requests_per_s": token.requests_per_s,
        "in_flight_bytes": token.in_flight_bytes,
        "created_ms": token.created_ms,
        "expires_ms": token.expires_ms,
    }
