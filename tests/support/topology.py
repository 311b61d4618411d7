"""Golden examples of topologies: comment, input, `----`, output. The input describes brokers, topics and reports.

    broker 1 2 3 rack=a                     brokers; also: inactive, cordoned, unwanted, removed
    topic orders ready 0=1,2,3 1@2=2,3,1    partitions with members, in epoch 1 by default; also: name=, retention=,
                                            batch=
    report 1 epoch=8 stale                  report of broker 1; also: cluster=, no-peers
      orders/0@1 leads lag=3                one of its replicas; also: leader=, members=, broken, name=, retention=,
                                            batch=

Ids are short. A topic's default name is its id. A replica's default members and limits are those of its topic.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from flotilla_manager.model import Broker, Partition, Replica, Topic, TopicState

RULE = "----"


@dataclass(frozen=True)
class Case:
    """One example of a golden file."""

    title: str  # its comment
    given: tuple[str, ...]
    expected: tuple[str, ...]


def cases(path: Path) -> list[Case]:
    """Read the examples of a file, separated by empty lines."""
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
    """The words of a line: plain words and settings."""

    def __init__(self, line: str) -> None:
        words = line.split()
        self.plain = [word for word in words if "=" not in word]
        self.settings = dict(word.split("=", 1) for word in words if "=" in word)

    def __contains__(self, word: str) -> bool:
        return word in self.plain


@dataclass(frozen=True)
class ReportLine:
    """A report, and its replicas."""

    words: Words
    replicas: tuple[Replica, ...] = ()


@dataclass
class Example:
    """The parsed lines of an example. Other lines are in `rest`."""

    brokers: dict[str, Broker]
    topics: dict[str, Topic]
    reports: list[ReportLine]
    rest: list[Words]


def parse_example(lines: tuple[str, ...]) -> Example:
    """Parse the lines of an example."""
    example = Example({}, {}, [], [])
    for line in lines:
        words = Words(line)
        if line.startswith(" "):
            report = example.reports[-1]
            example.reports[-1] = replace(report, replicas=(*report.replicas, _replica(words, report, example)))
        elif words.plain[0] == "broker":
            example.brokers.update({id_: _broker(id_, words) for id_ in words.plain[1:] if id_ not in _FLAGS})
        elif words.plain[0] == "topic":
            topic = _topic(words, len(example.topics) + 1)
            example.topics[topic.id] = topic
        elif words.plain[0] == "report":
            example.reports.append(ReportLine(words))
        else:
            example.rest.append(words)
    return example


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
    """Make a broker with an address."""
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
    """Parse `ms/bytes`, each a number, or a minus for no limit."""
    time, size = (text or "-/-").split("/")
    return _limit(time), _limit(size)


def _limit(text: str) -> int | None:
    return None if text == "-" else int(text)


def _replica(words: Words, report: ReportLine, example: Example) -> Replica:
    topic_id, _, partition = words.plain[0].partition("/")
    index, _, epoch = partition.partition("@")
    topic = example.topics.get(topic_id)
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
        leader=report.words.plain[1] if leads else words.settings.get("leader"),
        leads=leads,
        settled=leads,
        lag=int(words.settings.get("lag", 0)),
        retention_ms=retention_ms,
        retention_bytes=retention_bytes,
        batch_bytes_max=_limit(batch) if batch else topic.batch_bytes_max if topic else None,
        broken="broken" in words,
    )
