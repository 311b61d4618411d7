"""`flotilla consume`: writes records to standard output. The work is in `printing`."""

import os
from typing import TYPE_CHECKING

import click

from flotilla.command import completing
from flotilla.command.options import COUNT, DURATION, Command, asks_servers, examples

if TYPE_CHECKING:
    from flotilla.command.asking import Server

_HELP = """\
Write records to standard output, as they come; from now on, unless something else is said.

Records of a partition are in order. A value is followed by a newline, and otherwise as it is, whatever its bytes mean.
With a group, it goes on where the group is, and what was written counts as done.

A template has fields, and \\n, \\t, \\r, \\0 and \\\\; it ends no line by itself:

\b
  %t  topic        %k  key      %h  headers, as in a=1,b=2
  %p  partition    %v  value    %T  time, in ms since 1970
  %o  offset                    %%  a percent sign
"""
_EXAMPLES = examples(
    "flotilla consume orders",
    "flotilla consume orders --from-beginning --until-end > orders.txt",
    "flotilla consume orders --from -1h --key-separator : --max 10",
    "flotilla consume orders clicks --group audit --format '%t %p %o %k %v\\n'",
    "flotilla consume orders --from 2026-01-31T12:00:00Z --timeout 5s --json | jq .value",
)


@click.command(cls=Command, help=_HELP, epilog=_EXAMPLES)
@click.argument(
    "topics",
    nargs=-1,
    required=True,
    metavar="TOPIC...",
    shell_complete=completing.topics,
    help="the topics' names",
)
@click.option("--from-beginning", is_flag=True, help="begin with the first record that is there")
@click.option("--from", "since", metavar="TIME", help="begin there: 2026-01-31T12:00:00Z, or -1h for an hour ago")
@click.option("--offset", type=click.IntRange(min=0), metavar="N", help="begin there; with --partition")
@click.option(
    "--partition",
    "partitions",
    type=click.IntRange(min=0),
    multiple=True,
    metavar="N",
    help="only this one; several are fine (all)",
)
@click.option(
    "--group",
    metavar="NAME",
    shell_complete=completing.groups,
    help="share the work with others of this group, and remember how far it is",
)
@click.option("--max", "most", type=COUNT, metavar="N", help="end after so many records")
@click.option("--until-end", is_flag=True, help="end with what is there now")
@click.option("--timeout", type=DURATION, metavar="TIME", help="end when nothing came for so long, as in 5s")
@click.option("--format", "shape", metavar="FORMAT", help="value, key-value, json, or a template (value)")
@click.option(
    "--key-separator", metavar="TEXT", help="what stands behind the key in key-value, which it asks for (tab)"
)
@click.option("--json", "as_json", is_flag=True, help="the same as --format json: an object per line, for scripts")
@asks_servers
def consume(
    server: "Server",
    topics: tuple[str, ...],
    from_beginning: bool,
    since: str | None,
    offset: int | None,
    partitions: tuple[int, ...],
    group: str | None,
    most: int | None,
    until_end: bool,
    timeout: int | None,
    shape: str | None,
    key_separator: str | None,
    as_json: bool,
) -> None:
    """Write records to standard output, as they come; from now on, unless something else is said."""
    from flotilla.command import printing  # noqa: PLC0415 - it loads the client, which help does not need

    wanted = printing.Wanted(
        topics=topics,
        partitions=partitions,
        is_from_beginning=from_beginning,
        since=since,
        offset=offset,
        group=group,
        records_max=most,
        is_until_end=until_end,
        timeout_s=timeout,
        shape=shape,
        separator=None if key_separator is None else os.fsencode(key_separator),
        is_json=as_json,
    )
    printing.run(server, wanted)
