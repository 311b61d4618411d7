"""Internal: tokens and their grants.

Pure: randomness is an argument. Only its holder knows the text of a token; servers store its digest. The command checks
grants, and the fake of `flotilla.testing` creates tokens; authentication is in `flotilla_server.callers`.
"""

from flotilla.access.grants import GRANT_RULE, Grant, GrantInvalid, Scope
from flotilla.access.tokens import (
    NAME_RULE,
    Token,
    TokenInvalid,
    digest_of,
    generate_token,
    is_token_name,
    system_token,
)

__all__ = [
    "GRANT_RULE",
    "NAME_RULE",
    "Grant",
    "GrantInvalid",
    "Scope",
    "Token",
    "TokenInvalid",
    "digest_of",
    "generate_token",
    "is_token_name",
    "system_token",
]
