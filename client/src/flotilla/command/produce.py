"""`flotilla produce`: a record per line, from files or from standard input. The work is in `feeding`."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flotilla.command.errors import InputInvalid
from flotilla.command.options import (
    DURATION,
    Command,
    Parsed,
    answers_json,
    asks_servers,
    examples,
    topic_argument,
)

if TYPE_CHECKING:
    from flotilla.command.asking import Server

_FILE = click.Path(exists=True, dir_okay=False, readable=True, allow_dash=True, path_type=Path)
_EXAMPLES = examples(
    "flotilla produce orders orders.txt",
    "printf '7:coffee\\n8:tea\\n' | flotilla produce orders --key-separator :",
    "tail -F access.log | flotilla produce clicks --compression zstd --header host=web-1",
)


def _parse_header(text: str) -> tuple[str, bytes]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise ValueError(f"{text!r} is no header; write it as in source=web")
    return name, os.fsencode(value)


@click.command(cls=Command, epilog=_EXAMPLES)
@topic_argument
@click.argument("files", nargs=-1, type=_FILE, metavar="[FILE]...", help="what is read; - is standard input")
@click.option("--key-separator", metavar="TEXT", help="what stands before it in a line is the record's key")
@click.option("--key-optional", is_flag=True, help="a line without the separator is a record without a key")
@click.option("--partition", type=click.IntRange(min=0), metavar="N", help="where all records go (keys choose)")
@click.option(
    "--header",
    "headers",
    multiple=True,
    type=Parsed("header", _parse_header),
    metavar="NAME=VALUE",
    help="a header for each record; several are fine",
)
@click.option(
    "--compression",
    type=click.Choice(["auto", "none", "zstd"]),
    default="auto",
    help="of batches on their way and on disk (auto: as the topic is set)",
)
@click.option(
    "--timeout", type=DURATION, default=60, metavar="TIME", help="how long to try while servers are away (60s)"
)
@answers_json
@asks_servers
def produce(
    server: "Server",
    topic: str,
    files: tuple[Path, ...],
    key_separator: str | None,
    key_optional: bool,
    partition: int | None,
    headers: tuple[tuple[str, bytes], ...],
    compression: str,
    timeout: int,
    as_json: bool,
) -> None:
    """Send lines, a record each, from files or from standard input.

    A record is a line without its newline, and otherwise as it is, whatever its bytes mean. An empty line is an empty
    record. What comes slowly, or is typed, is sent line by line.

    At a line that is refused, because it has no key or is too long, and when a record cannot be stored, it ends: what
    came before was sent. How many were stored, and how fast, is told on standard error; with --json, on standard
    output. The exit code is 0 if everything was stored.
    """
    from flotilla.command import feeding  # noqa: PLC0415 - it loads the client, which help does not need

    if key_separator == "":
        raise InputInvalid("--key-separator must have at least one character")
    if key_optional and key_separator is None:
        raise InputInvalid("--key-optional is for --key-separator, which is not given")
    feed = feeding.Feed(
        topic=topic,
        files=files or (feeding.STDIN,),
        separator=None if key_separator is None else os.fsencode(key_separator),
        is_key_optional=key_optional,
        headers=headers,
        partition=partition,
        compression=compression,
        delivery_s=timeout,
    )
    feeding.run(server, feed, as_json=as_json)
