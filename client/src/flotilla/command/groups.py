"""`flotilla groups`: list and describe consumer groups, have them go on elsewhere, delete them."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

import click

from flotilla.client.admin import GroupDescription, GroupReset
from flotilla.command import asking, completing
from flotilla.command.options import Group, Parsed, answers_json, asks_servers, confirms, examples, group_argument
from flotilla.command.speaking import confirm, count, is_to_confirm, say, say_json, table, tell
from flotilla.command.units import parse_time, write_duration


def _moment(text: str) -> datetime | Literal["earliest", "latest"]:
    ends: dict[str, Literal["earliest", "latest"]] = {"earliest": "earliest", "latest": "latest"}
    return ends.get(text) or parse_time(text)


def _place(text: str) -> tuple[str, int]:
    topic, _, index = text.rpartition(":")
    if not topic or not index.isdecimal():
        raise ValueError(f"{text!r} is no partition of a topic; write it as in orders:0")
    return topic, int(index)


@click.group(cls=Group)
def groups() -> None:
    """List and describe consumer groups, have them go on elsewhere, delete them."""


@groups.command("list")
@answers_json
@asks_servers
def list_(server: asking.Server, as_json: bool) -> None:
    """Show all groups."""
    found = asking.run(server, lambda admin: admin.groups.list())
    if as_json:
        say_json({"groups": found})
    elif found:
        heading = ("name", "state", "members", "strategy", "topics")
        rows = [(one.name, one.state, one.members, one.strategy, " ".join(one.topics)) for one in found]
        say(*table([heading, *rows], numbers={"members"}))
    else:
        tell("there are no groups yet; one begins when a consumer joins it, or commits to it")


@groups.command()
@group_argument
@answers_json
@asks_servers
def describe(server: asking.Server, group: str, as_json: bool) -> None:
    """Show a group: its members, how far it has come, and what is left to read."""
    found = asking.run(server, lambda admin: admin.groups.describe(group))
    if as_json:
        say_json({**{name: getattr(found, name) for name in found.__struct_fields__}, "lag": found.lag})
    else:
        say(*_describe(found))


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
    type=Parsed("where", _moment),
    metavar="WHERE",
    help="earliest, latest, or a moment, which is UTC unless it says otherwise",
)
@click.option("--offset", type=int, metavar="OFFSET", help="this offset, in each partition")
@click.option("--shift", type=int, metavar="N", help="so many records further, or back if it is below 0")
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC",
    shell_complete=completing.topics,
    help="only this topic; several are fine",
)
@click.option(
    "--partition",
    "partitions",
    multiple=True,
    type=Parsed("topic:n", _place),
    metavar="TOPIC:N",
    help="only this partition, as in orders:0; several are fine",
)
@click.option("--force", is_flag=True, help="also if it has members, which are taken out")
@click.option("--dry-run", is_flag=True, help="only show what would become of it")
@confirms
@answers_json
@asks_servers
def reset(
    server: asking.Server,
    group: str,
    dry_run: bool,
    is_sure: bool,
    as_json: bool,
    **where: Any,  # noqa: ANN401 - as `groups.reset` has it
) -> None:
    """Have a group go on elsewhere, in some topics or partitions, or everywhere.

    What lies outside of a partition is brought to its nearest end. A group with members refuses: stop them first, or
    use --force, which takes them out; they join again, and begin where they are told.
    """
    _check_where(where)

    def act(*, dry_run: bool) -> tuple[GroupReset, ...]:
        return asking.run(server, lambda admin: admin.groups.reset(group, dry_run=dry_run, **_target(where)))

    if not dry_run and is_to_confirm(is_sure):
        tell("\n".join(_moves(act(dry_run=True))))
        confirm(f"have group '{group}' go on there?", is_sure)
    done = act(dry_run=dry_run)
    if as_json:
        say_json({"dry_run": dry_run, "partitions": done})
    else:
        say(*_moves(done))


@groups.command()
@group_argument
@click.option("--force", is_flag=True, help="also if it has members, which are taken out")
@click.option("--missing-ok", is_flag=True, help="be content if there is none")
@confirms
@answers_json
@asks_servers
def delete(server: asking.Server, group: str, force: bool, missing_ok: bool, is_sure: bool, as_json: bool) -> None:
    """Delete a group and what it has committed. Records stay."""
    confirm(f"delete group '{group}' and what it has committed?", is_sure)
    asking.run(server, lambda admin: admin.groups.delete(group, force=force, missing_ok=missing_ok))
    if as_json:
        say_json({"status": "ok"})
    else:
        say(f"group '{group}' is deleted")


def _check_where(where: Mapping[str, Any]) -> None:
    """Check that one place is said, and topics or partitions; raises click.UsageError."""
    ways = [f"--{name}" for name in ("to", "offset", "shift") if where[name] is not None]
    if not ways:
        raise click.UsageError("One of --to, --offset and --shift is required.")
    if len(ways) > 1:
        raise click.UsageError(f"{' and '.join(ways)} are not allowed together.")
    if where["topics"] and where["partitions"]:
        raise click.UsageError("--topic and --partition are not allowed together.")


def _target(where: Mapping[str, Any]) -> dict[str, Any]:
    return {**where, "topics": where["topics"] or None, "partitions": where["partitions"] or None}


# -- how it is written --------------------------------------------------------------------------------------------


def _moves(partitions: Sequence[GroupReset]) -> list[str]:
    rows = [(one.topic, one.partition, one.old_offset, one.new_offset) for one in partitions]
    return table([("topic", "partition", "old", "new"), *rows], numbers={"partition", "old", "new"})


def _describe(group: GroupDescription) -> list[str]:
    """Write down a group for people."""
    members = count(len(group.members), "member")
    lag = "lag not known" if group.lag is None else f"lag {group.lag}"
    lines = [f"group '{group.name}' is {group.state}, with {members}, generation {group.generation}, {lag}"]
    if group.members:
        rows = [
            (one.id, len(one.assigned), " ".join(one.topics), write_duration(one.timeout_ms)) for one in group.members
        ]
        lines += ["", *table([("member", "partitions", "topics", "timeout"), *rows], numbers={"partitions"})]
    if group.partitions:
        heading = ("topic", "partition", "owner", "committed", "first", "next", "lag", "note")
        places = [
            (one.topic, one.partition, one.owner, one.committed, one.first_offset, one.next_offset, one.lag, one.note)
            for one in group.partitions
        ]
        lines += ["", *table([heading, *places], numbers=("partition", "committed", "first", "next", "lag"))]
    return lines
