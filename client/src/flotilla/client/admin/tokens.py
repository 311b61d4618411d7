"""Tokens: create, list and revoke."""

from collections.abc import Iterable
from datetime import timedelta
from urllib.parse import quote

import msgspec

from flotilla.client.admin.results import NewToken, TokenInfo
from flotilla.client.cluster import ManagerClient, read_as
from flotilla.client.config import require
from flotilla.client.errors import NotFound, TopicMissing

TOKENS = "/v1/tokens"


class AsyncTokens:
    """Manages tokens: `client.tokens`. Needs `admin` on all topics.

    ```python
    made = await client.tokens.create("shop", ["produce:orders*"], expires_in=timedelta(days=30))
    print(made.token)       # cannot be read again later
    await client.tokens.revoke(made.id)
    ```

    Every method raises Refused (also as NotFound, NotAllowed) or ServerUnreachable.
    """

    def __init__(self, managers: ManagerClient) -> None:
        self._managers = managers

    async def create(
        self,
        name: str,
        grants: Iterable[str],
        *,
        expires_in: timedelta | None = None,
        bytes_per_s: int | None = None,
        requests_per_s: int | None = None,
        in_flight_bytes: int | None = None,
    ) -> NewToken:
        """Create a token. All servers accept it within about two seconds."""
        require(not isinstance(grants, str), "grants", "a list, as in ['produce:orders']", grants)
        body = {
            "name": name,
            "grants": [*grants],
            "expires_in_s": None if expires_in is None else int(expires_in.total_seconds()),
            "bytes_per_s": bytes_per_s,
            "requests_per_s": requests_per_s,
            "in_flight_bytes": in_flight_bytes,
        }
        return read_as(NewToken, await self._managers.call("POST", TOKENS, body, repeatable=False))

    async def list(self) -> tuple[TokenInfo, ...]:
        """List all tokens, the oldest first, without their secret texts."""
        return read_as(_Listed, await self._managers.call("GET", TOKENS)).tokens

    async def revoke(self, token_id: str) -> None:
        """Revoke a token. Servers reject it within about two seconds, if they are reachable."""
        require(bool(token_id.strip("./")), "token_id", "the id of a token", token_id)
        try:
            await self._managers.call("DELETE", f"{TOKENS}/{quote(token_id, safe='')}", repeatable=False)
        except TopicMissing as error:
            raise NotFound(str(error), error.code, error.details) from error


class _Listed(msgspec.Struct, frozen=True):
    tokens: tuple[TokenInfo, ...]
