"""Access control: tokens, their grants, and authenticated callers.

Pure: the clock, randomness and tables are arguments. Only its holder knows the text of a token; servers store its
digest. `flotilla_server.authorization` checks HTTP requests, and managers store the tokens.
"""

from flotilla.access.callers import ANONYMOUS, SYSTEM, UNRESTRICTED, Access, Caller, NotAuthenticated
from flotilla.access.grants import GRANT_RULE, Grant, GrantInvalid, Scope
from flotilla.access.table import TABLE_BYTES_MAX, TOKENS_MAX, AccessTable, TableInvalid
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
    "ANONYMOUS",
    "GRANT_RULE",
    "NAME_RULE",
    "SYSTEM",
    "TABLE_BYTES_MAX",
    "TOKENS_MAX",
    "UNRESTRICTED",
    "Access",
    "AccessTable",
    "Caller",
    "Grant",
    "GrantInvalid",
    "NotAuthenticated",
    "Scope",
    "TableInvalid",
    "Token",
    "TokenInvalid",
    "digest_of",
    "generate_token",
    "is_token_name",
    "system_token",
]
