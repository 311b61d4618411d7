"""`flotilla topics`: create, list, describe, configure, grow and delete topics, and delete records."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import click
from msgspec import UNSET

from flotilla.client.admin import PartitionDescription, label_brokers
from flotilla.client.admin.brokers import shorten_id
from flotilla.client.cluster import TopicInfo
from flotilla.client.errors import OutcomeUnknown, TopicExists, TopicMissing
from flotilla.command import connection
from flotilla.command.errors import InputInvalid, RequestRejected
from flotilla.command.options import (
    COUNT,
    SIZE,
    Function,
    Group,
    ParsedType,
    connection_options,
    examples,
    json_option,
    topic_argument,
    yes_option,
)
from flotilla.command.output import confirm, format_table, pluralize, print_json, print_lines, print_message
from flotilla.limits import (
    COMPRESSIONS,
    DAY_MS,
    PARTITIONS_DEFAULT,
    REPLICATION_DEFAULT,
    RETENTION_MS_DEFAULT,
    TOPIC_BATCH_BYTES_MIN,
    TOPIC_NAME,
    TOPIC_NAME_HELP,
)
from flotilla.records import BATCH_BYTES_MAX
from flotilla.units import parse_duration_s, write_duration, write_rough_size, write_size

_FOREVER = "forever"
_SETTINGS = ("retention", "retention-bytes", "batch-bytes-max", "compression")
_CREATE_HELP = f"""Create a topic.

Without --retention or --retention-bytes, the default of the managers applies: {RETENTION_MS_DEFAULT // DAY_MS} days
and no size limit, unless they are configured otherwise.
"""


def _retention(text: str) -> int | None:
    try:
        return None if text == _FOREVER else parse_duration_s(text) * 1000
    except ValueError as error:
        raise ValueError(f"{error}, or {_FOREVER}") from error


def _partition_offset(text: str) -> tuple[int, int | Literal["latest"]]:
    partition, _, offset = text.partition("=")
    if not partition.isdecimal() or not (offset == "latest" or offset.isdecimal()):
        raise ValueError(f"{text!r} is not PARTITION=OFFSET, such as 0=100 or 0=latest")
    return int(partition), "latest" if offset == "latest" else int(offset)


def _setting_options(function: Function) -> Function:
    """Add the settings of a topic. A missing option is None, except retention: UNSET, because None means forever."""
    text = "Maximum age of records, e.g. 12h or 30d, or `forever` for no limit."
    kept = ParsedType("time", _retention)
    retention = click.option(
        "--retention", "retention_ms", type=kept, default=UNSET, show_default=False, metavar="TIME", help=text
    )
    text = "Maximum size of a partition, e.g. 10GiB; the oldest records are deleted first."
    retention_bytes = click.option("--retention-bytes", type=SIZE, metavar="SIZE", help=text)
    least, most = write_size(TOPIC_BATCH_BYTES_MIN), write_size(BATCH_BYTES_MAX)
    text = f"Maximum size of a batch, {least} to {most}; {most} if not set."
    batch_bytes_max = click.option("--batch-bytes-max", type=SIZE, metavar="SIZE", help=text)
    text = "Hint to producers: those with compression `auto`, such as `flotilla produce`, apply it; none if not set."
    compression = click.option("--compression", type=click.Choice(COMPRESSIONS), help=text)
    return retention(retention_bytes(batch_bytes_max(compression(function))))


@click.group(cls=Group)
def topics() -> None:
    """Manage topics: create, list, describe, configure, grow and delete topics, and delete records."""


@topics.command("list")
@json_option
@connection_options
def list_(server: connection.ConnectionTarget, as_json: bool) -> None:
    """List topics."""
    found = connection.run(server, lambda admin: admin.topics.list())
    if as_json:
        print_json({"topics": found})
    elif found:
        heading = ("name", "partitions", "replication", "retention", "compression")
        rows = [
            (one.name, len(one.partitions), one.replication, _retention_text(one), one.compression or "none")
            for one in found
        ]
        print_lines(*format_table([heading, *rows], numbers=heading[1:3]))
    else:
        print_message("no topics found; create one with `flotilla topics create NAME`")


@topics.command(
    help=_CREATE_HELP,
    epilog=examples(
        "flotilla topics create orders --partitions 4",
        "flotilla topics create clicks --partitions 16 --retention 2d --retention-bytes 10GiB --compression zstd",
    ),
)
@topic_argument
@click.option("--partitions", type=COUNT, default=PARTITIONS_DEFAULT, metavar="N", help="Number of partitions.")
@click.option(
    "--replication",
    type=COUNT,
    default=REPLICATION_DEFAULT,
    metavar="N",
    help="Number of replicas of each partition. With fewer registered brokers, the topic gets one replica per broker, "
    "without an error; this cannot be changed later.",
)
@_setting_options
@click.option("--exist-ok", is_flag=True, help="Succeed if the topic already exists, and leave it unchanged.")
@json_option
@connection_options
def create(
    server: connection.ConnectionTarget,
    topic: str,
    partitions: int,
    replication: int,
    exist_ok: bool,
    as_json: bool,
    **settings: Any,  # noqa: ANN401 - as `topics.create` has them
) -> None:
    """Create a topic."""
    if re.match(TOPIC_NAME, topic) is None:
        raise InputInvalid(f"topic {topic!r}: {TOPIC_NAME_HELP}")
    if settings["retention_bytes"] is None:
        del settings["retention_bytes"]  # the managers' default
    settings |= {"partitions": partitions, "replication": replication}
    made, is_new = connection.run(server, lambda admin: _create(admin, topic, settings, exist_ok=exist_ok))
    if as_json:
        print_json(made)
    else:
        what = "created topic '{}'" if is_new else "topic '{}' exists"
        print_lines(f"{what.format(made.name)} with {_shape(made)}")


async def _create(
    admin: connection.Admin, topic: str, settings: Mapping[str, Any], *, exist_ok: bool
) -> tuple[TopicInfo, bool]:
    """Create a topic; return it, and whether this call is known to have created it.

    After an unknown outcome, `exist_ok` allows a retry, which cannot distinguish a topic of the first attempt from an
    older one.
    """
    try:
        return await admin.topics.create(topic, **settings), True
    except TopicExists as error:
        if not exist_ok:
            text = f"topic '{topic}' already exists; to accept an existing topic, use --exist-ok"
            raise RequestRejected(text) from error
        return await admin.topics.describe(topic), False
    except OutcomeUnknown:
        if not exist_ok:
            raise
        return await admin.topics.create(topic, exist_ok=True, **settings), False


@topics.command()
@topic_argument
@json_option
@connection_options
def describe(server: connection.ConnectionTarget, topic: str, as_json: bool) -> None:
    """Show settings and partitions of a topic."""

    async def ask(admin: connection.Admin) -> tuple[TopicInfo, tuple[PartitionDescription, ...], dict[str, str]]:
        about, partitions = await admin.topics.describe(topic), await admin.topics.partitions(topic)
        return about, partitions, {} if as_json else label_brokers(await admin.brokers.list())

    found, partitions, labels = connection.run(server, ask)
    if as_json:
        print_json({"topic": found, "partitions": [_to_json(one) for one in partitions]})
        return
    about = [("name", found.name), ("id", found.id), ("partitions", len(found.partitions))]
    print_lines(*format_table([*about, ("replication", found.replication), *_settings(found)]), "")
    heading = ("partition", "leader", "replicas", "first", "next", "records", "size")
    rows = [_row(one, labels) for one in partitions]
    print_lines(*format_table([heading, *rows], numbers={"partition", *heading[3:]}))


@topics.command(
    short_help="Show or change the settings of a topic.",
    epilog=examples(
        "flotilla topics config orders",
        "flotilla topics config orders --retention 30d --unset retention-bytes",
    ),
)
@topic_argument
@_setting_options
@click.option(
    "--unset",
    multiple=True,
    type=click.Choice(_SETTINGS),
    metavar="SETTING",
    help=f"Remove a setting ({', '.join(_SETTINGS)}): no limit for retention, the default for others; may be repeated.",
)
@json_option
@connection_options
def config(
    server: connection.ConnectionTarget,
    topic: str,
    unset: Sequence[str],
    as_json: bool,
    **given: Any,  # noqa: ANN401 - as `topics.configure` has them
) -> None:
    """Show or change the settings of a topic.

    Settings that are not given keep their value. Brokers apply changes within about a second.
    """
    changes = _changes(given, unset)

    async def ask(admin: connection.Admin) -> TopicInfo:
        return await (admin.topics.configure(topic, **changes) if changes else admin.topics.describe(topic))

    found = connection.run(server, ask)
    if as_json:
        print_json(found)
    else:
        print_lines(*format_table(_settings(found)))


@topics.command()
@topic_argument
@click.argument("partitions", type=COUNT, metavar="N", help="Total number of partitions.")
@json_option
@connection_options
def grow(server: connection.ConnectionTarget, topic: str, partitions: int, as_json: bool) -> None:
    """Add partitions to a topic, up to a total of N.

    Partitions cannot be removed later. New records of a key may go to another partition; existing records stay where
    they are.
    """
    found = connection.run(server, lambda admin: admin.topics.grow(topic, partitions))
    if as_json:
        print_json(found)
    else:
        print_lines(f"topic '{found.name}' now has {_shape(found)}")


@topics.command()
@topic_argument
@click.option("--missing-ok", is_flag=True, help="Succeed if the topic does not exist.")
@yes_option
@json_option
@connection_options
def delete(server: connection.ConnectionTarget, topic: str, missing_ok: bool, yes: bool, as_json: bool) -> None:
    """Delete a topic and all its records. This cannot be undone."""
    confirm(f"Permanently delete topic '{topic}' and all its records?", yes)
    existed = connection.run(server, lambda admin: _delete(admin, topic, missing_ok=missing_ok))
    if as_json:
        print_json({"status": "ok"})
    else:
        print_lines(f"topic '{topic}' deleted" if existed else f"topic '{topic}' does not exist")


async def _delete(admin: connection.Admin, topic: str, *, missing_ok: bool) -> bool:
    """Delete a topic; return whether it existed. After an unknown outcome, `missing_ok` allows a retry."""
    try:
        await admin.topics.delete(topic)
    except TopicMissing:
        if not missing_ok:
            raise
        return False
    except OutcomeUnknown:
        if not missing_ok:
            raise
        await admin.topics.delete(topic, missing_ok=True)
    return True


@topics.command(
    "delete-records",
    epilog=examples(
        "flotilla topics delete-records orders 0=1000 1=latest",
        "flotilla topics delete-records orders --all",
    ),
)
@topic_argument
@click.argument(
    "offsets",
    nargs=-1,
    type=ParsedType("partition=offset", _partition_offset),
    metavar="[PARTITION=OFFSET]...",
    help="Partition and the first offset to keep, or `latest` to delete all its records.",
)
@click.option("--all", "is_all", is_flag=True, help="Delete all records of all partitions.")
@yes_option
@json_option
@connection_options
def delete_records(
    server: connection.ConnectionTarget,
    topic: str,
    offsets: Sequence[tuple[int, int | Literal["latest"]]],
    is_all: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Delete the records below an offset. This cannot be undone.

    Other records keep their offsets.
    """
    before = dict(offsets)
    if bool(before) == is_all or len(before) != len(offsets):
        raise InputInvalid("expected PARTITION=OFFSET once for each partition, such as 0=100 1=latest, or --all")
    what = "all records" if is_all else ", ".join(f"partition {at} below offset {to}" for at, to in before.items())
    confirm(f"Permanently delete records of topic '{topic}': {what}?", yes)

    async def ask(admin: connection.Admin) -> Any:  # noqa: ANN401 - offsets of partitions
        if is_all:
            found = await admin.topics.describe(topic)
            before.update({one.index: "latest" for one in found.partitions})
        return await admin.topics.delete_records(topic, before)

    partitions = connection.run(server, ask)
    if as_json:
        print_json({"partitions": partitions})
    else:
        heading = ("partition", "first", "next")
        rows = [(one.index, one.first_offset, one.next_offset) for one in partitions]
        print_lines(*format_table([heading, *rows], numbers=heading))


# -- formatting --------------------------------------------------------------------------------------------


def _changes(given: dict[str, Any], unset: Sequence[str]) -> dict[str, Any]:
    absent = {"retention_ms": UNSET}
    changes = {name: value for name, value in given.items() if value is not absent.get(name)}
    for setting in unset:
        name = "retention_ms" if setting == "retention" else setting.replace("-", "_")
        if name in changes:
            raise InputInvalid(f"--{setting} and --unset {setting} are mutually exclusive")
        changes[name] = None
    return changes


def _shape(topic: TopicInfo) -> str:
    return f"{pluralize(len(topic.partitions), 'partition')}, {pluralize(topic.replication, 'replica')} each"


def _retention_text(topic: TopicInfo) -> str:
    parts = [] if topic.retention_ms is None else [write_duration(topic.retention_ms)]
    parts += [] if topic.retention_bytes is None else [write_size(topic.retention_bytes)]
    return ", ".join(parts) or _FOREVER


def _settings(topic: TopicInfo) -> list[tuple[str, object]]:
    retention = _FOREVER if topic.retention_ms is None else write_duration(topic.retention_ms)
    return [
        ("retention", retention),
        ("retention-bytes", "unlimited" if topic.retention_bytes is None else write_size(topic.retention_bytes)),
        ("batch-bytes-max", "default" if topic.batch_bytes_max is None else write_size(topic.batch_bytes_max)),
        ("compression", topic.compression or "none"),
        *([] if topic.owner is None else [("owner", topic.owner)]),
    ]


def _row(one: PartitionDescription, labels: Mapping[str, str]) -> tuple[object, ...]:
    leader = None if one.leader is None else labels.get(one.leader, shorten_id(one.leader))
    replicas = " ".join(labels.get(id_, shorten_id(id_)) for id_ in one.replicas)
    size = None if one.size_bytes is None else write_rough_size(one.size_bytes)
    return one.index, leader, replicas, one.first_offset, one.next_offset, one.records, size


def _to_json(one: PartitionDescription) -> dict[str, object]:
    return {name: getattr(one, name) for name in one.__struct_fields__}
