"""`flotilla topics`: list, make, describe, change, grow and delete topics, and delete records."""

import argparse
from typing import Any, Literal

from msgspec import UNSET

from flotilla.client.admin import PartitionDescription
from flotilla.client.cluster import TopicInfo
from flotilla.command import asking
from flotilla.command.errors import InputInvalid
from flotilla.command.speaking import (
    Commands,
    add_common,
    add_parser,
    add_yes,
    confirm,
    count,
    say,
    say_json,
    table,
    tell,
    typed,
)
from flotilla.command.units import (
    parse_count,
    parse_duration_s,
    parse_size,
    write_duration,
    write_rough_size,
    write_size,
)

_FOREVER = "forever"
_SETTINGS = ("retention", "retention-bytes", "batch-bytes-max", "compression")
_ID_SHOWN = 8  # characters of a broker's id; `flotilla brokers describe` takes them, too
_CREATE_EXAMPLES = """\
examples:
  flotilla topics create orders --partitions 4
  flotilla topics create clicks --partitions 16 --retention 2d --retention-bytes 10GiB --compression zstd
"""
_CONFIG = """\
Show a topic's settings, or change some: what is not named stays. --unset takes one away, so that the default holds.
Brokers go by new settings within about a second.
"""
_CONFIG_EXAMPLES = """\
examples:
  flotilla topics config orders
  flotilla topics config orders --retention 30d --unset retention-bytes
"""
_GROW = """\
Add partitions to a topic, so that there are N. There cannot be fewer later. Producers that choose partitions by key
send a key to another partition from then on: its old records stay where they are.
"""
_DELETE_RECORDS = """\
Delete the records below an offset, for all readers and for good. All other records keep their offsets.
"""
_DELETE_RECORDS_EXAMPLES = """\
examples:
  flotilla topics delete-records orders 0=1000 1=latest
  flotilla topics delete-records orders --all
"""


def add_command(commands: Commands) -> None:
    """Declare the command."""
    description = f"List, make, describe, change, grow and delete topics, and delete records.\n\n{asking.WHO}"
    topics = add_parser(commands, "topics", "what records are kept in", description)
    tasks = topics.add_subparsers(title="tasks", metavar="TASK", required=True)
    add_common(add_parser(tasks, "list", "show all topics", f"Show all topics.\n\n{asking.WHO}"), _list)
    _add_create(tasks)
    describe = add_parser(tasks, "describe", "show a topic and its partitions", f"Show a topic.\n\n{asking.WHO}")
    _add_name(describe)
    add_common(describe, _describe)
    _add_config(tasks)
    _add_grow(tasks)
    _add_delete(tasks)
    _add_delete_records(tasks)


def _add_name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the topic's name")


def _add_create(tasks: Commands) -> None:
    create = add_parser(tasks, "create", "make a topic", f"Make a topic.\n\n{asking.WHO}", _CREATE_EXAMPLES)
    _add_name(create)
    add = create.add_argument
    add("--partitions", type=typed(parse_count), default=2, metavar="N", help="how many (2)")
    add("--replication", type=typed(parse_count), default=3, metavar="N", help="how many brokers hold each (3)")
    _add_settings(create)
    add("--exist-ok", action="store_true", help="let one that is there be")
    add_common(create, _create)


def _add_settings(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    text = "how long records stay, as in 12h or 30d, or `forever`"
    add("--retention", type=typed(_retention), default=UNSET, metavar="TIME", help=text)
    text = "how much of each partition stays, as in 10GiB"
    add("--retention-bytes", type=typed(parse_size), default=UNSET, metavar="SIZE", help=text)
    text = "how large a batch may be, as in 1MiB"
    add("--batch-bytes-max", type=typed(parse_size), default=UNSET, metavar="SIZE", help=text)
    add("--compression", choices=("none", "zstd"), default=UNSET, help="what producers should use")


def _add_config(tasks: Commands) -> None:
    config = add_parser(tasks, "config", "show or change settings", f"{_CONFIG}\n{asking.WHO}", _CONFIG_EXAMPLES)
    _add_name(config)
    _add_settings(config)
    text = f"take a setting away: {', '.join(_SETTINGS)}; several are fine"
    config.add_argument("--unset", action="append", choices=_SETTINGS, default=[], metavar="SETTING", help=text)
    add_common(config, _config)


def _add_grow(tasks: Commands) -> None:
    grow = add_parser(tasks, "grow", "add partitions", f"{_GROW}\n{asking.WHO}")
    _add_name(grow)
    grow.add_argument("partitions", type=typed(parse_count), metavar="N", help="how many there should be")
    add_common(grow, _grow)


def _add_delete(tasks: Commands) -> None:
    text = "Delete a topic and all of its records, for good."
    delete = add_parser(tasks, "delete", "delete a topic and its records", f"{text}\n\n{asking.WHO}")
    _add_name(delete)
    delete.add_argument("--missing-ok", action="store_true", help="be content if there is none")
    add_yes(delete)
    add_common(delete, _delete)


def _add_delete_records(tasks: Commands) -> None:
    description = f"{_DELETE_RECORDS}\n{asking.WHO}"
    parser = add_parser(tasks, "delete-records", "delete old records", description, _DELETE_RECORDS_EXAMPLES)
    _add_name(parser)
    text = "up to where, in which partition; `latest` is all that are there"
    parser.add_argument("before", nargs="*", type=typed(_cut), metavar="PARTITION=OFFSET", help=text)
    parser.add_argument("--all", action="store_true", help="all records of all partitions")
    add_yes(parser)
    add_common(parser, _delete_records)


# -- what is done -------------------------------------------------------------------------------------------------


def _list(found: argparse.Namespace, server: asking.Server) -> None:
    topics = asking.run(server, lambda admin: admin.topics.list())
    if found.json:
        say_json({"topics": topics})
    elif topics:
        heading = ("name", "partitions", "replication", "retention", "compression")
        rows = [
            (one.name, len(one.partitions), one.replication, _kept(one), one.compression or "none") for one in topics
        ]
        say(*table([heading, *rows], numbers=heading[1:3]))
    else:
        tell("there are no topics yet; `flotilla topics create --help` says how to make one")


def _create(found: argparse.Namespace, server: asking.Server) -> None:
    settings = {name: None if value is UNSET else value for name, value in _given(found).items()}
    settings["retention_ms"] = found.retention  # left out, it is a week; None is for ever
    made = asking.run(
        server,
        lambda admin: admin.topics.create(
            found.name,
            partitions=found.partitions,
            replication=found.replication,
            exist_ok=found.exist_ok,
            **settings,
        ),
    )
    if found.json:
        say_json(made)
    else:
        say(f"topic '{made.name}' has {_shape(made)}")


def _describe(found: argparse.Namespace, server: asking.Server) -> None:
    async def ask(admin: asking.Admin) -> tuple[TopicInfo, tuple[PartitionDescription, ...]]:
        return await admin.topics.describe(found.name), await admin.topics.partitions(found.name)

    topic, partitions = asking.run(server, ask)
    if found.json:
        say_json({"topic": topic, "partitions": [_for_json(one) for one in partitions]})
        return
    say(f"topic '{topic.name}' has {_shape(topic)}; its id is {topic.id}", *_settings(topic), "")
    heading = ("partition", "leader", "replicas", "first", "next", "records", "size")
    say(*table([heading, *map(_row, partitions)], numbers={"partition", *heading[3:]}))


def _config(found: argparse.Namespace, server: asking.Server) -> None:
    changes = {name: value for name, value in _given(found).items() if value is not UNSET}
    for setting in found.unset:
        name = "retention_ms" if setting == "retention" else setting.replace("-", "_")
        if name in changes:
            raise InputInvalid(f"--{setting} and --unset {setting} contradict each other; give one of them")
        changes[name] = None

    async def ask(admin: asking.Admin) -> TopicInfo:
        return await (admin.topics.configure(found.name, **changes) if changes else admin.topics.describe(found.name))

    topic = asking.run(server, ask)
    if found.json:
        say_json(topic)
    else:
        say(*_settings(topic))


def _grow(found: argparse.Namespace, server: asking.Server) -> None:
    topic = asking.run(server, lambda admin: admin.topics.grow(found.name, found.partitions))
    if found.json:
        say_json(topic)
    else:
        say(f"topic '{topic.name}' has {_shape(topic)}")


def _delete(found: argparse.Namespace, server: asking.Server) -> None:
    confirm(f"delete topic '{found.name}' and all of its records, for good?", found)
    asking.run(server, lambda admin: admin.topics.delete(found.name, missing_ok=found.missing_ok))
    if found.json:
        say_json({"status": "ok"})
    else:
        say(f"topic '{found.name}' is deleted")


def _delete_records(found: argparse.Namespace, server: asking.Server) -> None:
    before = dict(found.before)
    if bool(before) == found.all or len(before) != len(found.before):
        raise InputInvalid("give PARTITION=OFFSET once for each partition, as in 0=100 1=latest, or --all")
    what = "all records" if found.all else ", ".join(f"those below {to} of partition {at}" for at, to in before.items())
    confirm(f"delete records of topic '{found.name}', for good: {what}?", found)

    async def ask(admin: asking.Admin) -> Any:  # noqa: ANN401 - offsets of partitions
        cuts = before
        if found.all:
            topic = await admin.topics.describe(found.name)
            cuts = {one.index: "latest" for one in topic.partitions}
        return await admin.topics.delete_records(found.name, cuts)

    partitions = asking.run(server, ask)
    if found.json:
        say_json({"partitions": partitions})
    else:
        heading = ("partition", "first", "next")
        rows = [(one.index, one.first_offset, one.next_offset) for one in partitions]
        say(*table([heading, *rows], numbers=heading))


# -- how it is written --------------------------------------------------------------------------------------------


def _given(found: argparse.Namespace) -> dict[str, Any]:
    return {
        "retention_ms": found.retention,
        "retention_bytes": found.retention_bytes,
        "batch_bytes_max": found.batch_bytes_max,
        "compression": found.compression,
    }


def _retention(text: str) -> int | None:
    return None if text == _FOREVER else parse_duration_s(text) * 1000


def _cut(text: str) -> tuple[int, int | Literal["latest"]]:
    partition, _, offset = text.partition("=")
    if not partition.isdecimal() or not (offset == "latest" or offset.isdecimal()):
        raise ValueError(f"{text!r} is no partition and offset; write them as in 0=100 or 0=latest")
    return int(partition), "latest" if offset == "latest" else int(offset)


def _shape(topic: TopicInfo) -> str:
    return f"{count(len(topic.partitions), 'partition')} with {count(topic.replication, 'replica')} each"


def _kept(topic: TopicInfo) -> str:
    parts = [] if topic.retention_ms is None else [write_duration(topic.retention_ms)]
    parts += [] if topic.retention_bytes is None else [write_size(topic.retention_bytes)]
    return ", ".join(parts) or _FOREVER


def _settings(topic: TopicInfo) -> list[str]:
    retention = _FOREVER if topic.retention_ms is None else write_duration(topic.retention_ms)
    rows = [
        ("retention", retention),
        ("retention-bytes", "no limit" if topic.retention_bytes is None else write_size(topic.retention_bytes)),
        ("batch-bytes-max", "the default" if topic.batch_bytes_max is None else write_size(topic.batch_bytes_max)),
        ("compression", topic.compression or "none"),
        *([] if topic.owner is None else [("owner", topic.owner)]),
    ]
    return table(rows)


def _row(one: PartitionDescription) -> tuple[object, ...]:
    leader = None if one.leader is None else one.leader[:_ID_SHOWN]
    replicas = " ".join(id_[:_ID_SHOWN] for id_ in one.replicas)
    size = None if one.size_bytes is None else write_rough_size(one.size_bytes)
    return one.index, leader, replicas, one.first_offset, one.next_offset, one.records, size


def _for_json(one: PartitionDescription) -> dict[str, object]:
    return {name: getattr(one, name) for name in one.__struct_fields__}
