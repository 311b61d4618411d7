"""Request bodies of the v1 API about tokens, with their limits.

Managers and the fake of `flotilla.testing` decode these structs.
"""

from typing import Annotated

from msgspec import Meta

from flotilla.access.tokens import GRANTS_MAX
from flotilla.limits import INT64_MAX
from flotilla.protocol.topics import Body

_EXPIRES_S_MAX = 100 * 366 * 24 * 3600
_GRANT_LENGTH_MAX = 220

Quota = Annotated[int, Meta(ge=1, le=INT64_MAX)]


class NewToken(Body, frozen=True, kw_only=True):
    """Settings of a new token."""

    name: Annotated[str, Meta(min_length=1, max_length=100, description="Name of the token, shown in lists and logs")]
    grants: Annotated[
        list[Annotated[str, Meta(max_length=_GRANT_LENGTH_MAX)]],
        Meta(min_length=1, max_length=GRANTS_MAX, description="Scope and topic: `consume:orders`, `produce:logs.*`"),
    ]
    expires_in_s: Annotated[int, Meta(ge=1, le=_EXPIRES_S_MAX, description="Lifetime in seconds")] | None = None
    bytes_per_s: Annotated[Quota, Meta(description="Quota in bytes per second")] | None = None
    requests_per_s: Annotated[Quota, Meta(description="Quota in requests per second")] | None = None
    in_flight_bytes: Annotated[Quota, Meta(description="Quota of bytes in flight")] | None = None
