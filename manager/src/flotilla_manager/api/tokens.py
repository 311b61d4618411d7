"""`/v1/tokens`: create, list and revoke tokens. Handled by the writer; needs `admin` on all topics."""

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Body, Path, Response
from pydantic.config import JsonDict

from flotilla.access import Grant, GrantInvalid
from flotilla.protocol import tokens
from flotilla.protocol.errors import Refusal
from flotilla.protocol.responses import TokenResponse
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
        return TokenResponse.of(token).with_text(text)

    @router.get("")
    async def list_tokens() -> dict[str, Any]:
        """List tokens with grants and quotas, oldest first. Their texts are not stored."""
        return {"tokens": [TokenResponse.of(token).to_dict() for token in await manager.writer.tokens.list_all()]}

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
