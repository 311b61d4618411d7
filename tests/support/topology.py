"""Golden texts about topology: commented input, `----`, output, and a small language for brokers, topics and reports.

    broker 1 2 3 rack=a                     brokers; also: inactive, cordoned, unwanted, removed
    topic orders ready 0=1,2,3 1@2=2,3,1    partitions with members, in epoch 1 if none is said; also: name=,
                                            retention=, batch=
    report 1 epoch=8 stale                  what broker 1 says; also: cluster=, bookless
      orders/0@1 leads lag=3                a replica of it; also: leader=, members=, broken, name=, retention=,
                                            batch=

Ids are short here. What a topic's id is called is also its name, if no name is given; a replica has the members and the
limits that the topic has, if it has any.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from flotilla_manager.model import Broker, Partition, Replica, Topic, TopicState

RULE = "----"


@dataclass(frozen=True)
class Case:
    """One example of a golden text."""

    title: str  # its comment
    given: tuple[str, ...]
    expected: tuple[str, ...]


def cases(path: Path) -> list[Case]:
    """Read the examples of a file. They are parted by empty lines."""
    found = []
    for block in path.read_text(encoding="utf-8").split("\n\n"):
        lines = block.strip("\n").splitlines()
        title = " ".join(line.removeprefix("#").strip() for line in lines if line.startswith("#"))
        rest = [line for line in lines if not line.startswith("#")]
        if rest:
            rule = rest.index(RULE)
            found.append(Case(title, tuple(rest[:rule]), tuple(rest[rule + 1 :])))
    return found


class Words:
    """The words of a line: plain ones, and settings."""

    def __init__(self, line: str) -> None:
        words = line.split()
        self.plain = [word for word in words if "=" not in word]
        self.settings = dict(word.split("=", 1) for word in words if "=" in word)

    def __contains__(self, word: str) -> bool:
        return word in self.plain


@dataclass(frozen=True)
class Said:
    """One line of a report, and the replicas below it."""

    words: Words
    replicas: tuple[Replica, ...] = ()


@dataclass
class World:
    """What the lines of an example say. Lines of other kinds are left in `rest`."""

    brokers: dict[str, Broker]
    topics: dict[str, Topic]
    said: list[Said]
    rest: list[Words]


def read_world(lines: tuple[str, ...]) -> World:
    """Understand the lines of an example."""
    world = World({}, {}, [], [])
    for line in lines:
        words = Words(line)
        if line.startswith(" "):
            said = world.said[-1]
            world.said[-1] = replace(said, replicas=(*said.replicas, _replica(words, said, world)))
        elif words.plain[0] == "broker":
            world.brokers.update({id_: _broker(id_, words) for id_ in words.plain[1:] if id_ not in _FLAGS})
        elif words.plain[0] == "topic":
            topic = _topic(words, len(world.topics) + 1)
            world.topics[topic.id] = topic
        elif words.plain[0] == "report":
            world.said.append(Said(words))
        else:
            world.rest.append(words)
    return world


_FLAGS = ("inactive", "cordoned", "unwanted", "removed")


def _broker(id_: str, words: Words) -> Broker:
    return make_broker(
        id_,
        rack=words.settings.get("rack"),
        active="inactive" not in words,
        cordoned="cordoned" in words,
        wanted="unwanted" not in words,
        removed="removed" in words,
    )


def make_broker(
    id_: str,
    *,
    rack: str | None = None,
    active: bool = True,
    cordoned: bool = False,
    wanted: bool = True,
    removed: bool = False,
) -> Broker:
    """Make a broker that is reached somewhere."""
    return Broker(
        id=id_,
        host=f"broker-{id_}",
        port=8090,
        peer_host=f"broker-{id_}",
        peer_port=8091,
        rack=rack,
        active=active,
        cordoned=cordoned,
        wanted=wanted,
        removed=removed,
    )


def _topic(words: Words, serial: int) -> Topic:
    _, id_, state = words.plain
    retention_ms, retention_bytes = _retention(words.settings.get("retention"))
    return Topic(
        id=id_,
        name=words.settings.get("name", id_),
        state=TopicState(state),
        serial=serial,
        partitions=tuple(_partition(key, value) for key, value in words.settings.items() if key[0].isdigit()),
        retention_ms=retention_ms,
        retention_bytes=retention_bytes,
        batch_bytes_max=_limit(words.settings.get("batch", "-")),
    )


def _partition(key: str, members: str) -> Partition:
    index, _, epoch = key.partition("@")
    return Partition(index=int(index), epoch=int(epoch or 1), members=tuple(members.split(",")))


def _retention(text: str | None) -> tuple[int | None, int | None]:
    """Read `ms/bytes`, each a number or a minus for no limit."""
    time, size = (text or "-/-").split("/")
    return _limit(time), _limit(size)


def _limit(text: str) -> int | None:
    return None if text == "-" else int(text)


def _replica(words: Words, said: Said, world: World) -> Replica:
    topic_id, _, place = words.plain[0].partition("/")
    index, _, epoch = place.partition("@")
    topic = world.topics.get(topic_id)
    known = {one.index: one.members for one in topic.partitions}.get(int(index), ()) if topic else ()
    members = words.settings.get("members")
    retention = words.settings.get("retention")
    of_topic = (topic.retention_ms, topic.retention_bytes) if topic else (None, None)
    retention_ms, retention_bytes = _retention(retention) if retention else of_topic
    batch = words.settings.get("batch")
    leads = "leads" in words
    return Replica(
        topic=words.settings.get("name", topic.name if topic else topic_id),
        topic_id=topic_id,
        partition=int(index),
        epoch=int(epoch or 1),
        members=tuple(sorted(members.split(",") if members else known)),
        leader=said.words.plain[1] if leads else words.settings.get("leader"),
        leads=leads,
        settled=leads,
        lag=int(words.settings.get("lag", 0)),
        retention_ms=retention_ms,
        retention_bytes=retention_bytes,
        batch_bytes_max=_limit(batch) if batch else topic.batch_bytes_max if topic else None,
        broken="broken" in words,
    )
