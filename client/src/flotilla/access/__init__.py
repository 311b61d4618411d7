"""Who may do what: tokens, the grants that they carry, and callers.

Pure: the clock, randomness and tables are passed in. A token's text is known to its holder alone; servers keep its
digest. Checking HTTP requests against this is `flotilla.serving.gate`; where tokens are kept is the managers'
business.
"""

from flotilla.access.callers import ANYBODY, NOBODY, SYSTEM, Access, Caller, NotAuthenticated
from flotilla.access.grants import GRANT_RULE, Grant, GrantInvalid, Scope
from flotilla.access.table import TABLE_BYTES_MAX, TOKENS_MAX, AccessTable, TableInvalid
from flotilla.access.tokens import NAME_RULE, Token, TokenInvalid, digest_of, is_name, make_text, system_text

__all__ = [
    "ANYBODY",
    "GRANT_RULE",
    "NAME_RULE",
    "NOBODY",
    "SYSTEM",
    "TABLE_BYTES_MAX",
    "TOKENS_MAX",
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
    "is_name",
    "make_text",
    "system_text",
]
