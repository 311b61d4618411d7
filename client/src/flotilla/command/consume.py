"""`flotilla consume`: the options. `consume_output` reads and prints the records."""

import os
from typing import TYPE_CHECKING

import click

from flotilla.command import completers
from flotilla.command.options import COUNT, DURATION, Command, connection_options, examples

if TYPE_CHECKING:
    from flotilla.command.connection import ConnectionTarget

_HELP = """\
Print records to standard output. By default, print new records until interrupted.

Records of a partition are in order. A value is followed by a newline; its bytes are printed unchanged. With --group,
the consumer starts at the committed offsets of the group, and commits the records that it has printed. --from and
--from-beginning apply only to partitions without a committed offset (default: new records).

A template for --format has fields and the escapes \\n, \\t, \\r, \\0 and \\\\. It adds no newline of its own:

\b
  %t  topic        %k  key      %h  headers, such as a=1,b=2
  %p  partition    %v  value    %%  percent sign
  %o  offset       %T  timestamp of the producer, or else of the append,
                       in ms since the Unix epoch
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
    shell_complete=completers.topics,
    help="Names of topics.",
)
@click.option("--from-beginning", is_flag=True, help="Start at the first record.")
@click.option(
    "--from",
    "since",
    metavar="TIME",
    help="Start at the first record appended at this time or later, e.g. 2026-01-31T12:00:00Z or -1h.",
)
@click.option(
    "--offset",
    type=click.IntRange(min=0),
    metavar="N",
    help="Start at this offset; requires --partition; not with --group.",
)
@click.option(
    "--partition",
    "partitions",
    type=click.IntRange(min=0),
    multiple=True,
    metavar="N",
    help="Read only this partition; requires a single topic; may be repeated.  [default: all]",
)
@click.option(
    "--group",
    metavar="NAME",
    shell_complete=completers.groups,
    help="Join this consumer group and commit offsets to it; with --partition, only store offsets in it.",
)
@click.option("--max", "most", type=COUNT, metavar="N", help="Stop after N records.")
@click.option(
    "--until-end",
    is_flag=True,
    help="Stop at the end offset that each partition has at startup; with --group, only if --partition is set.",
)
@click.option("--timeout", type=DURATION, metavar="TIME", help="Stop after this time without a record, e.g. 5s.")
@click.option(
    "--format",
    "format_name",
    metavar="FORMAT",
    help="Output format: value, key-value, json or a template.  [default: value]",
)
@click.option(
    "--key-separator",
    metavar="TEXT",
    help="Separator between key and value; implies --format key-value.  [default: tab]",
)
@click.option("--json", "as_json", is_flag=True, help="Same as --format json: one object per line.")
@connection_options
def consume(
    server: "ConnectionTarget",
    topics: tuple[str, ...],
    from_beginning: bool,
    since: str | None,
    offset: int | None,
    partitions: tuple[int, ...],
    group: str | None,
    most: int | None,
    until_end: bool,
    timeout: int | None,
    format_name: str | None,
    key_separator: str | None,
    as_json: bool,
) -> None:
    """Print records to standard output."""
    from flotilla.command import consume_output  # noqa: PLC0415 - imports the client, which help does not need

    spec = consume_output.ConsumeSpec(
        topics=topics,
        partitions=partitions,
        is_from_beginning=from_beginning,
        since=since,
        offset=offset,
        group=group,
        records_max=most,
        is_until_end=until_end,
        timeout_s=timeout,
        format_name=format_name,
        separator=None if key_separator is None else os.fsencode(key_separator),
        is_json=as_json,
    )
    consume_output.run(server, spec)
