"""`flotilla produce`: the options. `produce_input` reads and sends the lines."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flotilla.command.errors import InputInvalid
from flotilla.command.options import (
    DURATION,
    Command,
    ParsedType,
    connection_options,
    examples,
    json_option,
    topic_argument,
)
from flotilla.limits import COMPRESSIONS

if TYPE_CHECKING:
    from flotilla.command.connection import ConnectionTarget

_FILE = click.Path(exists=True, dir_okay=False, readable=True, allow_dash=True, path_type=Path)
_EXAMPLES = examples(
    "flotilla produce orders orders.txt",
    "printf '7:coffee\\n8:tea\\n' | flotilla produce orders --key-separator :",
    "tail -F access.log | flotilla produce clicks --compression zstd --header host=web-1",
)


def _parse_header(text: str) -> tuple[str, bytes]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise ValueError(f"{text!r} is not NAME=VALUE, such as source=web")
    return name, os.fsencode(value)


@click.command(cls=Command, epilog=_EXAMPLES)
@topic_argument
@click.argument("files", nargs=-1, type=_FILE, metavar="[FILE]...", help="Input files; - or none for standard input.")
@click.option(
    "--key-separator", metavar="TEXT", help="Separator between key and value of a line.  [default: lines have no key]"
)
@click.option("--key-optional", is_flag=True, help="Accept lines without the separator, as records without a key.")
@click.option(
    "--partition",
    type=click.IntRange(min=0),
    metavar="N",
    help="Send all records to this partition.  [default: by key; without a key, one partition per batch]",
)
@click.option(
    "--header",
    "headers",
    multiple=True,
    type=ParsedType("header", _parse_header),
    metavar="NAME=VALUE",
    help="Header of every record; may be repeated.",
)
@click.option(
    "--compression",
    type=click.Choice(("auto", *COMPRESSIONS)),
    default="auto",
    help="Compression of batches; auto is the topic's setting.",
)
@click.option(
    "--timeout", type=DURATION, default="60s", metavar="TIME", help="Delivery timeout of a record, including retries."
)
@json_option
@connection_options
def produce(
    server: "ConnectionTarget",
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
    """Send lines of files or standard input as records.

    A record is a line without its newline; all other bytes are kept. An empty line is an empty record. Typed or slow
    input is sent line by line.

    With --key-separator, the command stops at the first line without the separator, unless --key-optional is set. It
    also stops at the first line that is too long and at the first record that cannot be stored. Earlier lines have been
    sent.

    At the end, the command prints a summary to standard error, or, with --json, to standard output. The exit code is 0
    if all records were stored.
    """
    from flotilla.command import produce_input  # noqa: PLC0415 - imports the client, which help does not need

    if key_separator == "":
        raise InputInvalid("--key-separator must not be empty")
    if key_optional and key_separator is None:
        raise InputInvalid("--key-optional requires --key-separator")
    spec = produce_input.InputSpec(
        topic=topic,
        files=files or (produce_input.STDIN,),
        separator=None if key_separator is None else os.fsencode(key_separator),
        is_key_optional=key_optional,
        headers=headers,
        partition=partition,
        compression=compression,
        delivery_s=timeout,
    )
    produce_input.run(server, spec, as_json=as_json)
