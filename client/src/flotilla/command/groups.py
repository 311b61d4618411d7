"""`flotilla groups`: list and describe consumer groups, have them go on elsewhere, delete them."""

import argparse
from datetime import datetime
from typing import Any, Literal

from flotilla.client.admin import GroupDescription, GroupReset
from flotilla.command import asking
from flotilla.command.speaking import (
    Commands,
    add_common,
    add_parser,
    add_yes,
    confirm,
    count,
    is_to_confirm,
    say,
    say_json,
    table,
    tell,
    typed,
)
from flotilla.command.units import parse_time, write_duration

_RESET = """\
Have a group go on elsewhere, in some topics or partitions, or everywhere. What lies outside of a partition is brought
to its nearest end. A group with members refuses: stop them first, or use --force, which takes them out; they join
again, and begin where they are told.
"""
_RESET_EXAMPLES = """\
examples:
  flotilla groups reset billing --to earliest --dry-run
  flotilla groups reset billing --to 2026-01-31T12:00:00Z --topic orders
  flotilla groups reset billing --shift -100 --partition orders:0
"""


def add_command(commands: Commands) -> None:
    """Declare the command."""
    description = f"List and describe consumer groups, have them go on elsewhere, delete them.\n\n{asking.WHO}"
    groups = add_parser(commands, "groups", "who reads together, and how far they are", description)
    tasks = groups.add_subparsers(title="tasks", metavar="TASK", required=True)
    add_common(add_parser(tasks, "list", "show all groups", f"Show all groups.\n\n{asking.WHO}"), _list)
    text = "Show a group: its members, how far it has come, and what is left to read."
    describe = add_parser(tasks, "describe", "show a group, and its lag", f"{text}\n\n{asking.WHO}")
    _add_name(describe)
    add_common(describe, _describe)
    _add_reset(tasks)
    text = "Delete a group and what it has committed. Records stay."
    delete = add_parser(tasks, "delete", "delete a group", f"{text}\n\n{asking.WHO}")
    _add_name(delete)
    delete.add_argument("--force", action="store_true", help="also if it has members, which are taken out")
    delete.add_argument("--missing-ok", action="store_true", help="be content if there is none")
    add_yes(delete)
    add_common(delete, _delete)


def _add_name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the group's name")


def _add_reset(tasks: Commands) -> None:
    reset = add_parser(tasks, "reset", "have a group go on elsewhere", f"{_RESET}\n{asking.WHO}", _RESET_EXAMPLES)
    _add_name(reset)
    where = reset.add_mutually_exclusive_group(required=True)
    text = "earliest, latest, or a moment, which is UTC unless it says otherwise"
    where.add_argument("--to", type=typed(_moment), metavar="WHERE", help=text)
    where.add_argument("--offset", type=int, metavar="OFFSET", help="this offset, in each partition")
    where.add_argument("--shift", type=int, metavar="N", help="so many records further, or back if it is below 0")
    which = reset.add_mutually_exclusive_group()
    which.add_argument("--topic", action="append", metavar="TOPIC", help="only this topic; several are fine")
    text = "only this partition, as in orders:0; several are fine"
    which.add_argument("--partition", action="append", type=typed(_place), metavar="TOPIC:N", help=text)
    reset.add_argument("--force", action="store_true", help="also if it has members, which are taken out")
    reset.add_argument("--dry-run", action="store_true", help="only show what would become of it")
    add_yes(reset)
    add_common(reset, _reset)


def _list(found: argparse.Namespace, server: asking.Server) -> None:
    groups = asking.run(server, lambda admin: admin.groups.list())
    if found.json:
        say_json({"groups": groups})
    elif groups:
        heading = ("name", "state", "members", "strategy", "topics")
        rows = [(one.name, one.state, one.members, one.strategy, " ".join(one.topics)) for one in groups]
        say(*table([heading, *rows], numbers={"members"}))
    else:
        tell("there are no groups yet; one begins when a consumer joins it, or commits to it")


def _describe(found: argparse.Namespace, server: asking.Server) -> None:
    group = asking.run(server, lambda admin: admin.groups.describe(found.name))
    if found.json:
        say_json({**{name: getattr(group, name) for name in group.__struct_fields__}, "lag": group.lag})
    else:
        say(*describe(group))


def describe(group: GroupDescription) -> list[str]:
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


def _reset(found: argparse.Namespace, server: asking.Server) -> None:
    def act(*, dry_run: bool) -> tuple[GroupReset, ...]:
        return asking.run(server, lambda admin: admin.groups.reset(found.name, dry_run=dry_run, **_target(found)))

    def show(partitions: tuple[GroupReset, ...]) -> list[str]:
        rows = [(one.topic, one.partition, one.old_offset, one.new_offset) for one in partitions]
        return table([("topic", "partition", "old", "new"), *rows], numbers={"partition", "old", "new"})

    if not found.dry_run and is_to_confirm(found):
        tell("\n".join(show(act(dry_run=True))))
        confirm(f"have group '{found.name}' go on there?", found)
    done = act(dry_run=found.dry_run)
    if found.json:
        say_json({"dry_run": found.dry_run, "partitions": done})
    else:
        say(*show(done))


def _delete(found: argparse.Namespace, server: asking.Server) -> None:
    confirm(f"delete group '{found.name}' and what it has committed?", found)
    asking.run(server, lambda admin: admin.groups.delete(found.name, force=found.force, missing_ok=found.missing_ok))
    if found.json:
        say_json({"status": "ok"})
    else:
        say(f"group '{found.name}' is deleted")


def _target(found: argparse.Namespace) -> dict[str, Any]:
    return {
        "to": found.to,
        "offset": found.offset,
        "shift": found.shift,
        "topics": found.topic,
        "partitions": found.partition,
        "force": found.force,
    }


def _moment(text: str) -> datetime | Literal["earliest", "latest"]:
    ends: dict[str, Literal["earliest", "latest"]] = {"earliest": "earliest", "latest": "latest"}
    return ends.get(text) or parse_time(text)


def _place(text: str) -> tuple[str, int]:
    topic, _, index = text.rpartition(":")
    if not topic or not index.isdecimal():
        raise ValueError(f"{text!r} is no partition of a topic; write it as in orders:0")
    return topic, int(index)
