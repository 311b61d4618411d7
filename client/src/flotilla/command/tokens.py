"""`flotilla tokens`: make, list and revoke the tokens that callers of the API show.

A new token's text goes to standard output alone on its line, and what is to be said about it to standard error, so that
`TOKEN=$(flotilla tokens create ...)` works.
"""

import argparse
import time
from collections.abc import Sequence
from datetime import timedelta

import msgspec

from flotilla.access import Grant, GrantInvalid
from flotilla.client.admin import TokenInfo
from flotilla.command import asking
from flotilla.command.speaking import Commands, add_common, add_parser, say, say_json, tell, typed
from flotilla.command.speaking import table as lay_out
from flotilla.command.units import parse_count, parse_duration_s, parse_size, write_size, write_time

_ID_LENGTH = 16
_DESCRIPTION = f"""\
Make, list and revoke the tokens that callers of the API show when the servers check callers (auth on).

{asking.WHO}"""
_CREATE = """\
Make a token. Its text is shown this once: nobody can look it up later. What is said about it goes to standard error.

A grant is a scope and a pattern of topic names: produce:orders, consume:orders.*, admin:*. The scopes are produce,
consume, and admin: make, change and delete topics. They do not include each other. A scope alone is on all topics;
admin on all topics is also needed for brokers and tokens.
"""
_CREATE_EXAMPLES = """\
examples:
  flotilla tokens create me --grant admin --grant produce --grant consume --secret-file .flotilla/secret
  flotilla tokens create billing --grant produce:orders.* --grant consume:invoices --expires 30d
  export FLOTILLA_TOKEN=$(flotilla tokens create batch --grant consume --bytes-per-s 10MiB)
"""
_REVOKE = """\
Take a token back, by its id: 16 hexadecimal digits, as `flotilla tokens list` shows it, and as they stand behind flt_
in the token. Managers and brokers that can be reached refuse it within about two seconds.
"""


def add_command(commands: Commands) -> None:
    """Declare the command."""
    tokens = add_parser(commands, "tokens", "who may call: make, list and revoke tokens", _DESCRIPTION)
    tasks = tokens.add_subparsers(title="tasks", metavar="TASK", required=True)
    _add_create(tasks)
    listing = add_parser(tasks, "list", "show all tokens, but not their texts", f"Show all tokens.\n\n{asking.WHO}")
    add_common(listing, _list)
    revoke = add_parser(tasks, "revoke", "take a token back", f"{_REVOKE}\n{asking.WHO}")
    revoke.add_argument("id", type=_token_id, metavar="ID", help="the token's id")
    add_common(revoke, _revoke)


def _add_create(tasks: Commands) -> None:
    create = add_parser(tasks, "create", "make a token", f"{_CREATE}\n{asking.WHO}", _CREATE_EXAMPLES)
    add = create.add_argument
    add("name", metavar="NAME", help="for people, to know it again; names may be the same")
    add(
        "--grant", action="append", required=True, type=_grant, metavar="GRANT", help="what it may do; several are fine"
    )
    add("--expires", type=typed(parse_duration_s), metavar="TIME", help="for how long it is good, as in 12h or 30d")
    add("--bytes-per-s", type=typed(parse_size), metavar="SIZE", help="how much it may send and read at each server")
    add("--requests-per-s", type=typed(parse_count), metavar="N", help="how often it may ask each server")
    add("--in-flight-bytes", type=typed(parse_size), metavar="SIZE", help="how much may be under way at a time")
    add_common(create, _create)


def _create(found: argparse.Namespace, server: asking.Server) -> None:
    made = asking.run(
        server,
        lambda admin: admin.tokens.create(
            found.name,
            found.grant,
            expires_in=None if found.expires is None else timedelta(seconds=found.expires),
            bytes_per_s=found.bytes_per_s,
            requests_per_s=found.requests_per_s,
            in_flight_bytes=found.in_flight_bytes,
        ),
    )
    if found.json:
        say_json({"token": made.token, **msgspec.to_builtins(made)})
        return
    tell(f"token {made.id} '{made.name}' may {' '.join(made.grants)}; {_until(made)}")
    tell("It is shown this once. All servers know it within about two seconds.")
    say(made.token)


def _list(found: argparse.Namespace, server: asking.Server) -> None:
    tokens = asking.run(server, lambda admin: admin.tokens.list())
    if found.json:
        say_json({"tokens": tokens})
    elif tokens:
        say(*table(tokens, now_ms=int(time.time() * 1000)))
    else:
        tell("there are no tokens yet; `flotilla tokens create --help` says how to make one")


def _revoke(found: argparse.Namespace, server: asking.Server) -> None:
    asking.run(server, lambda admin: admin.tokens.revoke(found.id))
    if found.json:
        say_json({"status": "ok"})
    else:
        say(f"token {found.id} is revoked: servers that can be reached refuse it within about two seconds")


def table(tokens: Sequence[TokenInfo], *, now_ms: int) -> list[str]:
    """Lay tokens out in columns."""
    rows = [("id", "name", "grants", "limits", "created", "expires")]
    for token in tokens:
        expires = "never" if token.expires_ms is None else write_time(token.expires_ms)
        if token.expires_ms is not None and token.expires_ms <= now_ms:
            expires += " (over)"
        grants = " ".join(token.grants)
        rows.append((token.id, token.name, grants, _limits(token), write_time(token.created_ms), expires))
    return lay_out(rows)


def _limits(token: TokenInfo) -> str:
    parts = []
    if token.bytes_per_s is not None:
        parts.append(f"{write_size(token.bytes_per_s)}/s")
    if token.requests_per_s is not None:
        parts.append(f"{token.requests_per_s} requests/s")
    if token.in_flight_bytes is not None:
        parts.append(f"{write_size(token.in_flight_bytes)} in flight")
    return ", ".join(parts) or "none"


def _until(token: TokenInfo) -> str:
    expires = token.expires_ms
    return "it is good until it is revoked" if expires is None else f"it is good until {write_time(expires)} UTC"


def _grant(text: str) -> str:
    try:
        return str(Grant.parse(text))
    except GrantInvalid as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _token_id(text: str) -> str:
    if len(text) != _ID_LENGTH or not set(text) <= set("0123456789abcdef"):
        # It is not shown: by mistake it may be the token itself.
        raise argparse.ArgumentTypeError("an id has 16 hexadecimal digits; `flotilla tokens list` shows them")
    return text
