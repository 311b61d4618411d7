"""Metadata from brokers: what a lost database knew, as far as the replicas tell.

Replicas store the name and the id of their topic, partition, epoch, members, retention and how large batches may be.
`rebuild` puts together what the brokers of a cluster report. It invents nothing: what no broker reports is not there,
and where reports leave something open or contradict each other, a sentence in `problems` says what, and how it was
left. Whoever asks has to decide whether that is good enough.

Not in replicas, and therefore not rebuilt: the order in which topics were made (they are numbered by name), who owns
them, which compression producers should use, which ones were being made or deleted (all are ready), the last partitions
of a topic if nobody reports them, and producers and consumers. Topics that are known to be deleted can be named: what
brokers still hold of them is left out. The order of members, which says who should lead, is not stored either: whoever
leads comes first, and the others follow by id.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from flotilla_manager.model import Broker, Partition, Replica, Topic, TopicState

NAMES_MAX = 5  # named in one sentence; of the rest it says how many they are


@dataclass(frozen=True, kw_only=True)
class BrokerReport:
    """What one broker says of itself and of all its replicas."""

    broker: Broker
    cluster_id: str | None  # None: it belongs to no cluster yet
    writer_epoch: int
    replicas: tuple[Replica, ...]


@dataclass(frozen=True, kw_only=True)
class Rebuilt:
    """What could be found. The next writer has to take an epoch above `writer_epoch`."""

    cluster_id: str | None  # None if nobody knows it, or if brokers differ
    writer_epoch: int
    topics: tuple[Topic, ...]  # by name
    brokers: tuple[Broker, ...]  # by id
    problems: tuple[str, ...]  # sentences


Holders = Mapping[str, Replica]  # replicas of one partition, by the broker that holds them


def rebuild(reports: Sequence[BrokerReport], deleted: Collection[str] = frozenset()) -> Rebuilt:
    """Put together what brokers report, but for topics whose ids are in `deleted`."""
    problems: list[str] = []
    reports = [_without(report, deleted) for report in reports]
    by_broker = {report.broker.id: report for report in sorted(reports, key=lambda one: one.broker.id)}
    problems += _repeated(reports)
    cluster_id = _find_cluster(by_broker.values(), problems)
    topics = _find_topics(by_broker, problems)
    problems += _same_names(topics)
    problems += _absent_members(topics, by_broker)
    return Rebuilt(
        cluster_id=cluster_id,
        writer_epoch=max((report.writer_epoch for report in reports), default=0),
        topics=topics,
        brokers=tuple(report.broker for report in by_broker.values()),
        problems=tuple(problems),
    )


def _without(report: BrokerReport, deleted: Collection[str]) -> BrokerReport:
    return replace(report, replicas=tuple(one for one in report.replicas if one.topic_id not in deleted))


def _repeated(reports: Sequence[BrokerReport]) -> list[str]:
    ids = [report.broker.id for report in reports]
    twice = sorted({one for one in ids if ids.count(one) > 1})
    return [f"broker {one} was given more than once; only its last report counts" for one in twice]


def _find_cluster(reports: Iterable[BrokerReport], problems: list[str]) -> str | None:
    """Find the one cluster that all brokers belong to."""
    brokers: dict[str, list[str]] = defaultdict(list)
    for report in reports:
        if report.cluster_id is not None:
            brokers[report.cluster_id].append(report.broker.id)
    if not brokers:
        problems.append("no broker that was given knows the id of its cluster, or none was given")
    if len(brokers) > 1:
        parts = "; ".join(f"{_some(brokers[cluster])} to {cluster}" for cluster in sorted(brokers))
        problems.append(f"the brokers belong to different clusters: {parts}; give those of one cluster only")
    return next(iter(brokers)) if len(brokers) == 1 else None


# -- topics ---------------------------------------------------------------------------------------------------


def _find_topics(reports: Mapping[str, BrokerReport], problems: list[str]) -> tuple[Topic, ...]:
    found: dict[str, list[tuple[str, Replica]]] = defaultdict(list)
    for broker, report in reports.items():
        for replica in report.replicas:
            found[replica.topic_id].append((broker, replica))
    ordered = sorted(found, key=lambda topic_id: (_name(found[topic_id]), topic_id))
    return tuple(
        _find_topic(serial, found[topic_id], reports, problems) for serial, topic_id in enumerate(ordered, start=1)
    )


def _name(held: Iterable[tuple[str, Replica]]) -> str:
    return min(replica.topic for _, replica in held)


def _find_topic(
    serial: int, held: Sequence[tuple[str, Replica]], reports: Mapping[str, BrokerReport], problems: list[str]
) -> Topic:
    """Put one topic together from its replicas."""
    topic_id, name = held[0][1].topic_id, _name(held)
    names = sorted({replica.topic for _, replica in held})
    if len(names) > 1:
        problems.append(f"topic {topic_id} has several names: {_some(names)}; the first was taken")
    current = {index: _newest(held, index) for index in sorted({replica.partition for _, replica in held})}
    partitions = [_find_partition(name, index, holders, reports, problems) for index, holders in current.items()]
    problems += _gaps(name, topic_id, current)
    sound = [one for holders in current.values() for one in holders.values() if not one.broken]
    retention_ms, retention_bytes = _find_retention(name, sound, problems)
    return Topic(
        id=topic_id,
        name=name,
        state=TopicState.READY,
        serial=serial,
        partitions=tuple(one for one in partitions if one is not None),
        retention_ms=retention_ms,
        retention_bytes=retention_bytes,
        batch_bytes_max=_find_batch_limit(name, sound, problems),
    )


def _newest(held: Iterable[tuple[str, Replica]], index: int) -> Holders:
    """Find who holds the latest epoch of a partition that anybody reports; earlier ones are over."""
    here = [(broker, replica) for broker, replica in held if replica.partition == index]
    epoch = max(replica.epoch for _, replica in here)
    return {broker: replica for broker, replica in here if replica.epoch == epoch}


def _gaps(name: str, topic_id: str, indices: Iterable[int]) -> list[str]:
    """Say which partitions must have been there, because later ones are."""
    known = set(indices)
    missing = [str(index) for index in range(max(known)) if index not in known]
    if not missing:
        return []
    noun, verb = ("partition", "is") if len(missing) == 1 else ("partitions", "are")
    text = f"topic '{name}' ({topic_id}) has a partition {max(known)}, but no broker reports {noun} {_some(missing)}"
    return [f"{text}, which {verb} left out"]


def _find_retention(name: str, replicas: Iterable[Replica], problems: list[str]) -> tuple[int | None, int | None]:
    """Find how long records stay. Where replicas differ, the longest is taken: it deletes least."""
    times = {replica.retention_ms for replica in replicas}
    sizes = {replica.retention_bytes for replica in replicas}
    if len(times) > 1 or len(sizes) > 1:
        problems.append(f"the replicas of topic '{name}' differ in their retention; the longest was taken")
    return _longest(times), _longest(sizes)


def _find_batch_limit(name: str, replicas: Iterable[Replica], problems: list[str]) -> int | None:
    """Find how large batches may be. Where replicas differ, the largest is taken: it refuses least."""
    limits = {replica.batch_bytes_max for replica in replicas}
    if len(limits) > 1:
        problems.append(f"the replicas of topic '{name}' differ in their limit for batches; the largest was taken")
    return _longest(limits)


def _longest(limits: set[int | None]) -> int | None:
    numbers = [limit for limit in limits if limit is not None]
    return max(numbers) if numbers and len(numbers) == len(limits) else None


# -- partitions -----------------------------------------------------------------------------------------------


def _find_partition(
    name: str, index: int, holders: Holders, reports: Mapping[str, BrokerReport], problems: list[str]
) -> Partition | None:
    """Put one partition together; None if it cannot be known who its members are."""
    epoch = next(iter(holders.values())).epoch
    where = f"partition {index} of topic '{name}', epoch {epoch}"
    members = {tuple(sorted(replica.members)) for replica in holders.values()}
    if len(members) > 1:
        problems.append(f"{where}: {_differing(holders)}; which is right cannot be known, so it is left out")
        return None
    (agreed,) = members
    problems += [
        f"{where}: broker {member} is a member, but reports no replica of it"
        for member in agreed
        if member in reports and member not in holders
    ]
    if all(replica.broken for replica in holders.values()):
        problems.append(f"{where}: every replica that is reported is broken ({_some(sorted(holders))})")
    leaders = [broker for broker, replica in holders.items() if replica.leads and broker in agreed]
    first = tuple(leaders) if len(leaders) == 1 else ()
    return Partition(index=index, epoch=epoch, members=(*first, *(one for one in agreed if one not in first)))


def _differing(holders: Holders) -> str:
    brokers: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for broker, replica in sorted(holders.items()):
        brokers[tuple(sorted(replica.members))].append(broker)
    return "; ".join(
        f"the members are {_some(members)} according to {_some(brokers[members])}" for members in sorted(brokers)
    )


# -- across topics --------------------------------------------------------------------------------------------


def _same_names(topics: Iterable[Topic]) -> list[str]:
    ids: dict[str, list[str]] = defaultdict(list)
    for topic in topics:
        ids[topic.name].append(topic.id)
    return [
        f"there are {len(ids[name])} topics with the name '{name}': {_some(ids[name])}; "
        "which one is the later cannot be known: choose one, and have the others deleted"
        for name in sorted(ids)
        if len(ids[name]) > 1
    ]


def _absent_members(topics: Iterable[Topic], reports: Mapping[str, BrokerReport]) -> list[str]:
    """Say which brokers are missing: they may know more topics, more partitions and later epochs."""
    absent: dict[str, list[str]] = defaultdict(list)
    for topic in topics:
        for partition in topic.partitions:
            for member in partition.members:
                if member not in reports:
                    absent[member].append(f"{topic.name}/{partition.index}")
    return [
        f"broker {member} is a member of {_some(absent[member])}, but no report of it was given; "
        "what it alone knows is not there"
        for member in sorted(absent)
    ]


def _some(names: Sequence[str]) -> str:
    more = len(names) - NAMES_MAX
    return ", ".join(names[:NAMES_MAX]) + (f" and {more} more" if more > 0 else "")
