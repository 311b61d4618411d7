"""`flotilla tokens`: create, list and revoke access tokens.

`create` prints only the token to standard output, and messages to standard error, so that
`TOKEN=$(flotilla tokens create ...)` works.
"""

import time
from collections.abc import Sequence
from datetime import timedelta

import click
import msgspec

from flotilla.access import Grant, GrantInvalid
from flotilla.client.admin import TokenInfo
from flotilla.command import connection
from flotilla.command.options import COUNT, DURATION, SIZE, Group, ParsedType, connection_options, examples, json_option
from flotilla.command.output import format_table, print_json, print_lines, print_message
from flotilla.units import write_size, write_time

_ID_LENGTH = 16


def _grant(text: str) -> str:
    try:
        return str(Grant.parse(text))
    except GrantInvalid as error:
        raise ValueError(str(error)) from error


def _token_id(text: str) -> str:
    if len(text) != _ID_LENGTH or not set(text) <= set("0123456789abcdef"):
        # The value is not shown: it may be a token, given by mistake.
        raise ValueError("a token id has 16 hexadecimal digits; see `flotilla tokens list`")
    return text


@click.group(cls=Group)
def tokens() -> None:
    """Manage access tokens: create, list, revoke.

    Callers need a token if the servers run with authentication (auth on).
    """


@tokens.command(
    epilog=examples(
        "flotilla tokens create me --grant admin --grant produce --grant consume --secret-file .flotilla/secret",
        "flotilla tokens create billing --grant 'produce:orders.*' --grant consume:invoices --expires 30d",
        "export FLOTILLA_TOKEN=$(flotilla tokens create batch --grant consume --bytes-per-s 10MiB)",
    )
)
@click.argument("name", metavar="NAME", help="Display name; need not be unique.")
@click.option(
    "--grant",
    "grants",
    multiple=True,
    required=True,
    type=ParsedType("grant", _grant),
    metavar="GRANT",
    help="Scope and topic pattern, e.g. 'produce:orders.*'; may be repeated.",
)
@click.option(
    "--expires", "expires_s", type=DURATION, metavar="TIME", help="Lifetime, e.g. 12h or 30d.  [default: no limit]"
)
@click.option(
    "--bytes-per-s", type=SIZE, metavar="SIZE", help="Quota of bytes sent and read per second, per server, e.g. 10MiB."
)
@click.option("--requests-per-s", type=COUNT, metavar="N", help="Quota of requests per second, per server.")
@click.option("--in-flight-bytes", type=SIZE, metavar="SIZE", help="Quota of bytes in flight, per server, e.g. 64MiB.")
@json_option
@connection_options
def create(
    server: connection.ConnectionTarget,
    name: str,
    grants: Sequence[str],
    expires_s: int | None,
    as_json: bool,
    **limits: int | None,
) -> None:
    """Create a token and print it.

    The token is shown only once. It goes to standard output, and messages go to standard error.

    A grant is a scope with a pattern of topic names: produce:orders, consume:orders.*, admin:*. Scopes are produce,
    consume and admin (create, change and delete topics); none includes another. In a pattern, * matches any text. A
    scope without a pattern covers all topics. To administer brokers and tokens, admin on all topics is required.
    """
    expires_in = None if expires_s is None else timedelta(seconds=expires_s)
    made = connection.run(
        server, lambda admin: admin.tokens.create(name, list(grants), expires_in=expires_in, **limits)
    )
    if as_json:
        print_json({"token": made.token, **msgspec.to_builtins(made)})
        return
    print_message(f"created token {made.id} '{made.name}': grants {' '.join(made.grants)}; {_until(made)}")
    print_message("The token is shown only once. Servers accept it within about 2 s.")
    print_lines(made.token)


@tokens.command("list")
@json_option
@connection_options
def list_(server: connection.ConnectionTarget, as_json: bool) -> None:
    """List tokens: ids, grants and limits, not the tokens themselves."""
    found = connection.run(server, lambda admin: admin.tokens.list())
    if as_json:
        print_json({"tokens": found})
    elif found:
        print_lines(*format_tokens(found, now_ms=int(time.time() * 1000)))
    else:
        print_message("no tokens found; create one with `flotilla tokens create NAME --grant GRANT`")


@tokens.command()
@click.argument("id_", type=ParsedType("id", _token_id), metavar="ID", help="Id of the token.")
@json_option
@connection_options
def revoke(server: connection.ConnectionTarget, id_: str, as_json: bool) -> None:
    """Revoke a token.

    The id has 16 hexadecimal digits. `flotilla tokens list` shows it, and it follows flt_ in the token. Reachable
    managers and brokers reject the token within about 2 s.
    """
    connection.run(server, lambda admin: admin.tokens.revoke(id_))
    if as_json:
        print_json({"status": "ok"})
    else:
        print_lines(f"token {id_} revoked; reachable servers reject it within about 2 s")


def format_tokens(tokens: Sequence[TokenInfo], *, now_ms: int) -> list[str]:
    """Format tokens as a table."""
    rows = [("id", "name", "grants", "limits", "created", "expires")]
    for token in tokens:
        expires = "never" if token.expires_ms is None else write_time(token.expires_ms)
        if token.expires_ms is not None and token.expires_ms <= now_ms:
            expires += " (expired)"
        grants = " ".join(token.grants)
        rows.append((token.id, token.name, grants, _limits(token), write_time(token.created_ms), expires))
    return format_table(rows)


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
    return "no expiry" if expires is None else f"expires {write_time(expires)} UTC"
