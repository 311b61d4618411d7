"""`flotilla groups`: list, describe, reset and delete consumer groups."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import click

from flotilla.client.admin import GroupDescription, GroupReset
from flotilla.client.errors import NotFound, OutcomeUnknown
from flotilla.command import completers, connection
from flotilla.command.options import (
    Group,
    ParsedType,
    connection_options,
    examples,
    group_argument,
    json_option,
    yes_option,
)
from flotilla.command.output import (
    confirm,
    format_table,
    needs_confirmation,
    pluralize,
    print_json,
    print_lines,
    print_message,
)
from flotilla.units import parse_timestamp, write_duration


def _reset_target(text: str) -> datetime | Literal["earliest", "latest"]:
    ends: dict[str, Literal["earliest", "latest"]] = {"earliest": "earliest", "latest": "latest"}
    try:
        return ends.get(text) or parse_timestamp(text, datetime.now(UTC))
    except ValueError as error:
        rule = "use earliest, latest, an ISO 8601 time, or a time ago, as in -1h"
        raise ValueError(f"{text!r} is not valid: {rule}") from error


def _topic_partition(text: str) -> tuple[str, int]:
    topic, _, index = text.rpartition(":")
    if not topic or not index.isdecimal():
        raise ValueError(f"{text!r} is not TOPIC:PARTITION, such as orders:0")
    return topic, int(index)


@click.group(cls=Group)
def groups() -> None:
    """Manage consumer groups: list, describe, reset offsets, delete."""


@groups.command("list")
@json_option
@connection_options
def list_(server: connection.ConnectionTarget, as_json: bool) -> None:
    """List consumer groups."""
    found = connection.run(server, lambda admin: admin.groups.list())
    if as_json:
        print_json({"groups": found})
    elif found:
        heading = ("name", "state", "members", "strategy", "topics")
        rows = [(one.name, one.state, one.members, one.strategy, " ".join(one.topics)) for one in found]
        print_lines(*format_table([heading, *rows], numbers={"members"}))
    else:
        print_message("no consumer groups found; a group is created when a consumer joins it or commits offsets")


@groups.command()
@group_argument
@json_option
@connection_options
def describe(server: connection.ConnectionTarget, group: str, as_json: bool) -> None:
    """Show members, committed offsets and lag of a group."""
    found = connection.run(server, lambda admin: admin.groups.describe(group))
    if as_json:
        print_json({**{name: getattr(found, name) for name in found.__struct_fields__}, "lag": found.lag})
    else:
        print_lines(*_describe(found))


@groups.command(
    epilog=examples(
        "flotilla groups reset billing --to earliest --dry-run",
        "flotilla groups reset billing --to 2026-01-31T12:00:00Z --topic orders",
        "flotilla groups reset billing --shift -100 --partition orders:0",
    )
)
@group_argument
@click.option(
    "--to",
    type=ParsedType("where", _reset_target),
    metavar="WHERE",
    help="Move to `earliest`, `latest`, or the first record appended at this time or later, e.g. 2026-01-31T12:00:00Z "
    "(without time zone: UTC) or -1h.",
)
@click.option("--offset", type=int, metavar="OFFSET", help="Move to this offset in every partition.")
@click.option("--shift", type=int, metavar="N", help="Move by N records; a negative N moves back.")
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC",
    shell_complete=completers.topics,
    help="Limit to this topic; may be repeated.",
)
@click.option(
    "--partition",
    "partitions",
    multiple=True,
    type=ParsedType("topic:n", _topic_partition),
    metavar="TOPIC:N",
    help="Limit to this partition, e.g. orders:0; may be repeated.",
)
@click.option("--force", is_flag=True, help="Also reset a group with members; they are removed and join again.")
@click.option("--dry-run", is_flag=True, help="Show the new offsets without changing them.")
@yes_option
@json_option
@connection_options
def reset(
    server: connection.ConnectionTarget,
    group: str,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    **where: Any,  # noqa: ANN401 - as `groups.reset` has it
) -> None:
    """Reset the committed offsets of a group.

    Exactly one of --to, --offset and --shift is required. By default, this resets every partition with a committed
    offset, and every partition of the topics that members read. Limit it with --topic or --partition, not both. An
    offset out of range is set to the first or the next offset. If the group has members, the command fails: stop them
    first, or use --force. Removed members join again and continue at the new offsets.
    """
    _check_where(where)

    def act(*, dry_run: bool) -> tuple[GroupReset, ...]:
        return connection.run(server, lambda admin: admin.groups.reset(group, dry_run=dry_run, **_target(where)))

    if not dry_run and needs_confirmation(yes):
        print_message("\n".join(_moves(act(dry_run=True))))
        confirm(f"Reset the offsets of group '{group}' as shown?", yes)
    done = act(dry_run=dry_run)
    if as_json:
        print_json({"dry_run": dry_run, "partitions": done})
    else:
        print_lines(*_moves(done))


@groups.command()
@group_argument
@click.option("--force", is_flag=True, help="Also delete a group with members; they are removed.")
@click.option("--missing-ok", is_flag=True, help="Succeed if the group does not exist.")
@yes_option
@json_option
@connection_options
def delete(
    server: connection.ConnectionTarget, group: str, force: bool, missing_ok: bool, yes: bool, as_json: bool
) -> None:
    """Delete a group and its committed offsets. Records are kept."""
    confirm(f"Delete group '{group}' and its committed offsets?", yes)
    existed = connection.run(server, lambda admin: _delete(admin, group, force=force, missing_ok=missing_ok))
    if as_json:
        print_json({"status": "ok"})
    else:
        print_lines(f"group '{group}' deleted" if existed else f"group '{group}' does not exist")


async def _delete(admin: connection.Admin, group: str, *, force: bool, missing_ok: bool) -> bool:
    """Delete a group; return whether it existed. After an unknown outcome, `missing_ok` allows a retry."""
    try:
        await admin.groups.delete(group, force=force)
    except NotFound:
        if not missing_ok:
            raise
        return False
    except OutcomeUnknown:
        if not missing_ok:
            raise
        await admin.groups.delete(group, force=force, missing_ok=True)
    return True


def _check_where(where: Mapping[str, Any]) -> None:
    """Check that there is one target, and topics or partitions; raises click.UsageError."""
    ways = [f"--{name}" for name in ("to", "offset", "shift") if where[name] is not None]
    if not ways:
        raise click.UsageError("One of --to, --offset and --shift is required.")
    if len(ways) > 1:
        raise click.UsageError(f"{' and '.join(ways)} are mutually exclusive.")
    if where["topics"] and where["partitions"]:
        raise click.UsageError("--topic and --partition are mutually exclusive.")


def _target(where: Mapping[str, Any]) -> dict[str, Any]:
    return {**where, "topics": where["topics"] or None, "partitions": where["partitions"] or None}


# -- formatting --------------------------------------------------------------------------------------------


def _moves(partitions: Sequence[GroupReset]) -> list[str]:
    rows = [(one.topic, one.partition, one.old_offset, one.new_offset) for one in partitions]
    return format_table([("topic", "partition", "old", "new"), *rows], numbers={"partition", "old", "new"})


def _describe(group: GroupDescription) -> list[str]:
    """Format a group."""
    members = pluralize(len(group.members), "member")
    lag = "lag unknown" if group.lag is None else f"lag {group.lag}"
    lines = [f"group '{group.name}': {group.state}, {members}, generation {group.generation}, {lag}"]
    if group.members:
        rows = [
            (one.id, len(one.assigned), " ".join(one.topics), write_duration(one.timeout_ms)) for one in group.members
        ]
        lines += ["", *format_table([("member", "partitions", "topics", "timeout"), *rows], numbers={"partitions"})]
    if group.partitions:
        heading = ("topic", "partition", "owner", "committed", "first", "next", "lag", "note")
        partition_rows = [
            (one.topic, one.partition, one.owner, one.committed, one.first_offset, one.next_offset, one.lag, one.note)
            for one in group.partitions
        ]
        lines += [
            "",
            *format_table([heading, *partition_rows], numbers=("partition", "committed", "first", "next", "lag")),
        ]
    return lines
