"""`flotilla topics`: list, make, describe, change, grow and delete topics, and delete records."""

from collections.abc import Sequence
from typing import Any, Literal

import click
from msgspec import UNSET

from flotilla.client.admin import PartitionDescription
from flotilla.client.cluster import TopicInfo
from flotilla.command import asking
from flotilla.command.errors import InputInvalid
from flotilla.command.options import (
    COUNT,
    SIZE,
    Function,
    Group,
    Parsed,
    answers_json,
    asks_servers,
    confirms,
    examples,
    topic_argument,
)
from flotilla.command.speaking import confirm, count, say, say_json, table, tell
from flotilla.command.units import parse_duration_s, write_duration, write_rough_size, write_size

_FOREVER = "forever"
_SETTINGS = ("retention", "retention-bytes", "batch-bytes-max", "compression")
_ID_SHOWN = 8  # characters of a broker's id; `flotilla brokers describe` takes them, too


def _retention(text: str) -> int | None:
    return None if text == _FOREVER else parse_duration_s(text) * 1000


def _cut(text: str) -> tuple[int, int | Literal["latest"]]:
    partition, _, offset = text.partition("=")
    if not partition.isdecimal() or not (offset == "latest" or offset.isdecimal()):
        raise ValueError(f"{text!r} is no partition and offset; write them as in 0=100 or 0=latest")
    return int(partition), "latest" if offset == "latest" else int(offset)


def _has_settings(function: Function) -> Function:
    """Declare the settings of a topic; those that are not given are None, but for the retention: that is for ever."""
    text = "how long records stay, as in 12h or 30d, or `forever`"
    kept = Parsed("time", _retention)
    retention = click.option("--retention", "retention_ms", type=kept, default=UNSET, metavar="TIME", help=text)
    text = "how much of each partition stays, as in 10GiB"
    retention_bytes = click.option("--retention-bytes", type=SIZE, metavar="SIZE", help=text)
    text = "how large a batch may be, as in 1MiB"
    batch_bytes_max = click.option("--batch-bytes-max", type=SIZE, metavar="SIZE", help=text)
    text = "what producers should use"
    compression = click.option("--compression", type=click.Choice(("none", "zstd")), help=text)
    return retention(retention_bytes(batch_bytes_max(compression(function))))


@click.group(cls=Group)
def topics() -> None:
    """List, make, describe, change, grow and delete topics, and delete records."""


@topics.command("list")
@answers_json
@asks_servers
def list_(server: asking.Server, as_json: bool) -> None:
    """Show all topics."""
    found = asking.run(server, lambda admin: admin.topics.list())
    if as_json:
        say_json({"topics": found})
    elif found:
        heading = ("name", "partitions", "replication", "retention", "compression")
        rows = [
            (one.name, len(one.partitions), one.replication, _kept(one), one.compression or "none") for one in found
        ]
        say(*table([heading, *rows], numbers=heading[1:3]))
    else:
        tell("there are no topics yet; `flotilla topics create --help` says how to make one")


@topics.command(
    epilog=examples(
        "flotilla topics create orders --partitions 4",
        "flotilla topics create clicks --partitions 16 --retention 2d --retention-bytes 10GiB --compression zstd",
    )
)
@topic_argument
@click.option("--partitions", type=COUNT, default=2, metavar="N", help="how many (2)")
@click.option("--replication", type=COUNT, default=3, metavar="N", help="how many brokers hold each (3)")
@_has_settings
@click.option("--exist-ok", is_flag=True, help="let one that is there be")
@answers_json
@asks_servers
def create(
    server: asking.Server,
    topic: str,
    partitions: int,
    replication: int,
    exist_ok: bool,
    as_json: bool,
    **settings: Any,  # noqa: ANN401 - as `topics.create` has them
) -> None:
    """Make a topic."""
    made = asking.run(
        server,
        lambda admin: admin.topics.create(
            topic, partitions=partitions, replication=replication, exist_ok=exist_ok, **settings
        ),
    )
    if as_json:
        say_json(made)
    else:
        say(f"topic '{made.name}' has {_shape(made)}")


@topics.command()
@topic_argument
@answers_json
@asks_servers
def describe(server: asking.Server, topic: str, as_json: bool) -> None:
    """Show a topic and its partitions."""

    async def ask(admin: asking.Admin) -> tuple[TopicInfo, tuple[PartitionDescription, ...]]:
        return await admin.topics.describe(topic), await admin.topics.partitions(topic)

    found, partitions = asking.run(server, ask)
    if as_json:
        say_json({"topic": found, "partitions": [_for_json(one) for one in partitions]})
        return
    say(f"topic '{found.name}' has {_shape(found)}; its id is {found.id}", *_settings(found), "")
    heading = ("partition", "leader", "replicas", "first", "next", "records", "size")
    say(*table([heading, *map(_row, partitions)], numbers={"partition", *heading[3:]}))


@topics.command(
    short_help="Show a topic's settings, or change some.",
    epilog=examples(
        "flotilla topics config orders",
        "flotilla topics config orders --retention 30d --unset retention-bytes",
    ),
)
@topic_argument
@_has_settings
@click.option(
    "--unset",
    multiple=True,
    type=click.Choice(_SETTINGS),
    metavar="SETTING",
    help=f"take a setting away: {', '.join(_SETTINGS)}; several are fine",
)
@answers_json
@asks_servers
def config(
    server: asking.Server,
    topic: str,
    unset: Sequence[str],
    as_json: bool,
    **given: Any,  # noqa: ANN401 - as `topics.configure` has them
) -> None:
    """Show a topic's settings, or change some: what is not named stays.

    --unset takes one away, so that the default holds. Brokers go by new settings within about a second.
    """
    changes = _changes(given, unset)

    async def ask(admin: asking.Admin) -> TopicInfo:
        return await (admin.topics.configure(topic, **changes) if changes else admin.topics.describe(topic))

    found = asking.run(server, ask)
    if as_json:
        say_json(found)
    else:
        say(*_settings(found))


@topics.command()
@topic_argument
@click.argument("partitions", type=COUNT, metavar="N", help="how many there should be")
@answers_json
@asks_servers
def grow(server: asking.Server, topic: str, partitions: int, as_json: bool) -> None:
    """Add partitions to a topic, so that there are N.

    There cannot be fewer later. Producers that choose partitions by key send a key to another partition from then on:
    its old records stay where they are.
    """
    found = asking.run(server, lambda admin: admin.topics.grow(topic, partitions))
    if as_json:
        say_json(found)
    else:
        say(f"topic '{found.name}' has {_shape(found)}")


@topics.command()
@topic_argument
@click.option("--missing-ok", is_flag=True, help="be content if there is none")
@confirms
@answers_json
@asks_servers
def delete(server: asking.Server, topic: str, missing_ok: bool, is_sure: bool, as_json: bool) -> None:
    """Delete a topic and all of its records, for good."""
    confirm(f"delete topic '{topic}' and all of its records, for good?", is_sure)
    asking.run(server, lambda admin: admin.topics.delete(topic, missing_ok=missing_ok))
    if as_json:
        say_json({"status": "ok"})
    else:
        say(f"topic '{topic}' is deleted")


@topics.command(
    "delete-records",
    epilog=examples(
        "flotilla topics delete-records orders 0=1000 1=latest",
        "flotilla topics delete-records orders --all",
    ),
)
@topic_argument
@click.argument(
    "cuts",
    nargs=-1,
    type=Parsed("partition=offset", _cut),
    metavar="[PARTITION=OFFSET]...",
    help="up to where, in which partition; `latest` is all that are there",
)
@click.option("--all", "is_all", is_flag=True, help="all records of all partitions")
@confirms
@answers_json
@asks_servers
def delete_records(
    server: asking.Server,
    topic: str,
    cuts: Sequence[tuple[int, int | Literal["latest"]]],
    is_all: bool,
    is_sure: bool,
    as_json: bool,
) -> None:
    """Delete the records below an offset, for all readers and for good.

    All other records keep their offsets.
    """
    before = dict(cuts)
    if bool(before) == is_all or len(before) != len(cuts):
        raise InputInvalid("give PARTITION=OFFSET once for each partition, as in 0=100 1=latest, or --all")
    what = "all records" if is_all else ", ".join(f"those below {to} of partition {at}" for at, to in before.items())
    confirm(f"delete records of topic '{topic}', for good: {what}?", is_sure)

    async def ask(admin: asking.Admin) -> Any:  # noqa: ANN401 - offsets of partitions
        if is_all:
            found = await admin.topics.describe(topic)
            before.update({one.index: "latest" for one in found.partitions})
        return await admin.topics.delete_records(topic, before)

    partitions = asking.run(server, ask)
    if as_json:
        say_json({"partitions": partitions})
    else:
        heading = ("partition", "first", "next")
        rows = [(one.index, one.first_offset, one.next_offset) for one in partitions]
        say(*table([heading, *rows], numbers=heading))


# -- how it is written --------------------------------------------------------------------------------------------


def _changes(given: dict[str, Any], unset: Sequence[str]) -> dict[str, Any]:
    absent = {"retention_ms": UNSET}
    changes = {name: value for name, value in given.items() if value is not absent.get(name)}
    for setting in unset:
        name = "retention_ms" if setting == "retention" else setting.replace("-", "_")
        if name in changes:
            raise InputInvalid(f"--{setting} and --unset {setting} contradict each other; give one of them")
        changes[name] = None
    return changes


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
