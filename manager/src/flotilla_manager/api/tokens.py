"""`/v1/tokens`: create, list and revoke tokens. Handled by the writer; needs `admin` on all topics."""

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Body, Path, Response
from pydantic.config import JsonDict

from flotilla.access import Grant, GrantInvalid, Token
from flotilla.protocol import tokens
from flotilla.protocol.errors import Refusal
from flotilla_manager.api.bodies import AsStruct
from flotilla_manager.manager import Manager
from flotilla_manager.writer.tokens import TokenSpec

TOKENS = "/v1/tokens"
_EXAMPLE: JsonDict = {
    "name": "billing",
    "grants": ["produce:orders.*", "consume:invoices"],
    "expires_in_s": 2_592_000,
}
NewToken = Annotated[tokens.NewToken, Body(), AsStruct(tokens.NewToken, _EXAMPLE)]
TokenId = Annotated[
    str, Path(pattern="^[0-9a-f]{16}$", description="Id of the token, from its creation or from the list")
]


def make_tokens(manager: Manager) -> APIRouter:
    """Create the routes."""
    router = APIRouter(prefix=TOKENS, tags=["tokens"])

    @router.post("")
    async def create_token(body: NewToken, response: Response) -> dict[str, Any]:
        """Create a token. The response has its text in `token`, which cannot be retrieved later."""
        spec = TokenSpec(**{**msgspec.structs.asdict(body), "grants": read_grants(body.grants)})
        token, text = await manager.writer.tokens.create(spec)
        response.headers["cache-control"] = "no-store"
        return {"token": text, **describe_token(token)}

    @router.get("")
    async def list_tokens() -> dict[str, Any]:
        """List tokens with grants and quotas, oldest first. Their texts are not stored."""
        return {"tokens": [describe_token(token) for token in await manager.writer.tokens.list_all()]}

    @router.delete("/{token_id}")
    async def revoke_token(token_id: TokenId) -> dict[str, str]:
        """Revoke a token. Reachable managers and brokers reject it within about 2 seconds."""
        await manager.writer.tokens.revoke(token_id)
        return {"status": "ok"}

    return router


def read_grants(texts: Sequence[str]) -> tuple[Grant, ...]:
    """Parse grants. Raises Refusal."""
    try:
        return tuple(map(Grant.parse, texts))
    except GrantInvalid as error:
        raise Refusal("bad_request", str(error)) from error


def describe_token(token: Token) -> dict[str, Any]:
    """Describe a token without its text and digest."""
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
