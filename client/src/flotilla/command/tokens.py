"""`flotilla tokens`: make, list and revoke the tokens that callers of the API show.

A new token's text goes to standard output alone on its line, and what is to be said about it to standard error, so that
`TOKEN=$(flotilla tokens create ...)` works.
"""

import time
from collections.abc import Sequence
from datetime import timedelta

import click
import msgspec

from flotilla.access import Grant, GrantInvalid
from flotilla.client.admin import TokenInfo
from flotilla.command import asking
from flotilla.command.options import COUNT, DURATION, SIZE, Group, Parsed, answers_json, asks_servers, examples
from flotilla.command.speaking import say, say_json, tell
from flotilla.command.speaking import table as lay_out
from flotilla.command.units import write_size, write_time

_ID_LENGTH = 16


def _grant(text: str) -> str:
    try:
        return str(Grant.parse(text))
    except GrantInvalid as error:
        raise ValueError(str(error)) from error


def _token_id(text: str) -> str:
    if len(text) != _ID_LENGTH or not set(text) <= set("0123456789abcdef"):
        # It is not shown: by mistake it may be the token itself.
        raise ValueError("an id has 16 hexadecimal digits; `flotilla tokens list` shows them")
    return text


@click.group(cls=Group)
def tokens() -> None:
    """Make, list and revoke the tokens that callers of the API show when the servers check callers (auth on)."""


@tokens.command(
    epilog=examples(
        "flotilla tokens create me --grant admin --grant produce --grant consume --secret-file .flotilla/secret",
        "flotilla tokens create billing --grant produce:orders.* --grant consume:invoices --expires 30d",
        "export FLOTILLA_TOKEN=$(flotilla tokens create batch --grant consume --bytes-per-s 10MiB)",
    )
)
@click.argument("name", metavar="NAME", help="for people, to know it again; names may be the same")
@click.option(
    "--grant",
    "grants",
    multiple=True,
    required=True,
    type=Parsed("grant", _grant),
    metavar="GRANT",
    help="what it may do; several are fine",
)
@click.option("--expires", "expires_s", type=DURATION, metavar="TIME", help="for how long it is good, as in 12h or 30d")
@click.option("--bytes-per-s", type=SIZE, metavar="SIZE", help="how much it may send and read at each server")
@click.option("--requests-per-s", type=COUNT, metavar="N", help="how often it may ask each server")
@click.option("--in-flight-bytes", type=SIZE, metavar="SIZE", help="how much may be under way at a time")
@answers_json
@asks_servers
def create(
    server: asking.Server,
    name: str,
    grants: Sequence[str],
    expires_s: int | None,
    as_json: bool,
    **limits: int | None,
) -> None:
    """Make a token.

    Its text is shown this once: nobody can look it up later. What is said about it goes to standard error.

    A grant is a scope and a pattern of topic names: produce:orders, consume:orders.*, admin:*. The scopes are produce,
    consume, and admin: make, change and delete topics. They do not include each other. A scope alone is on all topics;
    admin on all topics is also needed for brokers and tokens.
    """
    expires_in = None if expires_s is None else timedelta(seconds=expires_s)
    made = asking.run(server, lambda admin: admin.tokens.create(name, list(grants), expires_in=expires_in, **limits))
    if as_json:
        say_json({"token": made.token, **msgspec.to_builtins(made)})
        return
    tell(f"token {made.id} '{made.name}' may {' '.join(made.grants)}; {_until(made)}")
    tell("It is shown this once. All servers know it within about two seconds.")
    say(made.token)


@tokens.command("list")
@answers_json
@asks_servers
def list_(server: asking.Server, as_json: bool) -> None:
    """Show all tokens, but not their texts."""
    found = asking.run(server, lambda admin: admin.tokens.list())
    if as_json:
        say_json({"tokens": found})
    elif found:
        say(*table(found, now_ms=int(time.time() * 1000)))
    else:
        tell("there are no tokens yet; `flotilla tokens create --help` says how to make one")


@tokens.command()
@click.argument("id_", type=Parsed("id", _token_id), metavar="ID", help="the token's id")
@answers_json
@asks_servers
def revoke(server: asking.Server, id_: str, as_json: bool) -> None:
    """Take a token back, by its id.

    It has 16 hexadecimal digits, as `flotilla tokens list` shows it, and as they stand behind flt_ in the token.
    Managers and brokers that can be reached refuse it within about two seconds.
    """
    asking.run(server, lambda admin: admin.tokens.revoke(id_))
    if as_json:
        say_json({"status": "ok"})
    else:
        say(f"token {id_} is revoked: servers that can be reached refuse it within about two seconds")


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
