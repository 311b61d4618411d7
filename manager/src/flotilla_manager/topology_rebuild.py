"""Rebuild of the topology from brokers' reports: a pure function, for a lost or outdated database.

Replicas store the name and id of their topic, partition, epoch, members, retention and batch limit. `rebuild_topology`
combines the reports of all brokers of a cluster. The result contains only what brokers report. If reports are
incomplete or contradictory, `problems` has a sentence with the difference and the choice that was made. The caller
decides whether to accept the problems.

Replicas do not store the following, so it is not rebuilt:

- Order of creation of topics: they are numbered by name.
- Owners of topics, and the compression hint.
- Topics in `creating` or `deleting`: all topics are `ready`. The caller can name deleted topics, whose replicas are
  ignored.
- The last partitions of a topic, if no broker reports them.
- Producers and consumers.
- The order of members, and with it the preferred leader: the current leader is first, the others follow by id.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from flotilla_manager.model import Broker, Partition, Replica, Topic, TopicState

NAMES_MAX = 5  # listed in one sentence; the others are counted


@dataclass(frozen=True, kw_only=True)
class BrokerReport:
    """A broker and all its replicas, as reported by itself."""

    broker: Broker
    cluster_id: str | None  # None: it belongs to no cluster yet
    writer_epoch: int
    replicas: tuple[Replica, ...]


@dataclass(frozen=True, kw_only=True)
class RebuiltTopology:
    """Rebuilt topology. The next writer must take an epoch above `writer_epoch`."""

    cluster_id: str | None  # None if no broker reports one, or if brokers report different ones
    writer_epoch: int
    topics: tuple[Topic, ...]  # by name
    brokers: tuple[Broker, ...]  # by id
    problems: tuple[str, ...]  # sentences about missing and contradictory reports


ReplicasByBroker = Mapping[str, Replica]  # replicas of one partition


def rebuild_topology(reports: Sequence[BrokerReport], deleted: Collection[str] = frozenset()) -> RebuiltTopology:
    """Combine the reports of brokers, except replicas of topics whose ids are in `deleted`."""
    problems: list[str] = []
    reports = [_without_topics(report, deleted) for report in reports]
    by_broker = {report.broker.id: report for report in sorted(reports, key=lambda one: one.broker.id)}
    problems += _duplicate_reports(reports)
    cluster_id = _find_cluster(by_broker.values(), problems)
    topics = _find_topics(by_broker, problems)
    problems += _duplicate_names(topics)
    problems += _missing_brokers(topics, by_broker)
    return RebuiltTopology(
        cluster_id=cluster_id,
        writer_epoch=max((report.writer_epoch for report in reports), default=0),
        topics=topics,
        brokers=tuple(report.broker for report in by_broker.values()),
        problems=tuple(problems),
    )


def _without_topics(report: BrokerReport, deleted: Collection[str]) -> BrokerReport:
    return replace(report, replicas=tuple(one for one in report.replicas if one.topic_id not in deleted))


def _duplicate_reports(reports: Sequence[BrokerReport]) -> list[str]:
    ids = [report.broker.id for report in reports]
    repeated = {report.broker.id: report.broker.label for report in reports if ids.count(report.broker.id) > 1}
    return [
        f"broker {repeated[one]} was given more than once; only its last report is used" for one in sorted(repeated)
    ]


def _find_cluster(reports: Iterable[BrokerReport], problems: list[str]) -> str | None:
    """Return the cluster id of all brokers; None if it is unknown or ambiguous."""
    brokers: dict[str, list[str]] = defaultdict(list)
    for report in reports:
        if report.cluster_id is not None:
            brokers[report.cluster_id].append(report.broker.label)
    if not brokers:
        problems.append("no broker reports a cluster id")
    if len(brokers) > 1:
        parts = "; ".join(f"{_listed(brokers[cluster])} to {cluster}" for cluster in sorted(brokers))
        problems.append(f"the brokers belong to different clusters: {parts}; name the brokers of one cluster only")
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
    """Rebuild one topic from its replicas."""
    topic_id, name = held[0][1].topic_id, _name(held)
    names = sorted({replica.topic for _, replica in held})
    if len(names) > 1:
        problems.append(f"topic {topic_id} has several names: {_listed(names)}; the first is used")
    current = {index: _latest_epoch(held, index) for index in sorted({replica.partition for _, replica in held})}
    partitions = [_find_partition(name, index, holders, reports, problems) for index, holders in current.items()]
    problems += _missing_partitions(name, topic_id, current)
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


def _latest_epoch(held: Iterable[tuple[str, Replica]], index: int) -> ReplicasByBroker:
    """Return the replicas of a partition in the latest reported epoch. Earlier epochs are obsolete."""
    replicas = [(broker, replica) for broker, replica in held if replica.partition == index]
    epoch = max(replica.epoch for _, replica in replicas)
    return {broker: replica for broker, replica in replicas if replica.epoch == epoch}


def _missing_partitions(name: str, topic_id: str, indices: Iterable[int]) -> list[str]:
    """Report partitions that must exist, because a partition with a higher index exists."""
    known = set(indices)
    missing = [str(index) for index in range(max(known)) if index not in known]
    if not missing:
        return []
    noun = "partition" if len(missing) == 1 else "partitions"
    text = f"topic '{name}' ({topic_id}) has a partition {max(known)}, but no broker reports {noun} {_listed(missing)}"
    return [text]


def _find_retention(name: str, replicas: Iterable[Replica], problems: list[str]) -> tuple[int | None, int | None]:
    """Return the retention of a topic. If replicas differ, the longest: it deletes the fewest records."""
    times = {replica.retention_ms for replica in replicas}
    sizes = {replica.retention_bytes for replica in replicas}
    if len(times) > 1 or len(sizes) > 1:
        problems.append(f"the replicas of topic '{name}' have different retention; the longest is used")
    return _highest(times), _highest(sizes)


def _find_batch_limit(name: str, replicas: Iterable[Replica], problems: list[str]) -> int | None:
    """Return the batch limit of a topic. If replicas differ, the largest: it rejects the fewest batches."""
    limits = {replica.batch_bytes_max for replica in replicas}
    if len(limits) > 1:
        problems.append(f"the replicas of topic '{name}' have different batch limits; the largest is used")
    return _highest(limits)


def _highest(limits: set[int | None]) -> int | None:
    """Return the highest limit. None, for no limit, is the highest."""
    numbers = [limit for limit in limits if limit is not None]
    return max(numbers) if numbers and len(numbers) == len(limits) else None


# -- partitions -----------------------------------------------------------------------------------------------


def _find_partition(
    name: str, index: int, holders: ReplicasByBroker, reports: Mapping[str, BrokerReport], problems: list[str]
) -> Partition | None:
    """Rebuild one partition; None if replicas disagree about its members."""
    epoch = next(iter(holders.values())).epoch
    where = f"partition {index} of topic '{name}', epoch {epoch}"
    members = {tuple(sorted(replica.members)) for replica in holders.values()}
    if len(members) > 1:
        problems.append(f"{where}: {_describe_members(holders, reports)}; the partition is left out")
        return None
    (agreed,) = members
    problems += [
        f"{where}: broker {_label(member, reports)} is a member, but reports no replica"
        for member in agreed
        if member in reports and member not in holders
    ]
    if all(replica.broken for replica in holders.values()):
        damaged = _listed([_label(one, reports) for one in sorted(holders)])
        problems.append(f"{where}: all reported replicas are damaged ({damaged})")
    leaders = [broker for broker, replica in holders.items() if replica.leads and broker in agreed]
    first = tuple(leaders) if len(leaders) == 1 else ()
    return Partition(index=index, epoch=epoch, members=(*first, *(one for one in agreed if one not in first)))


def _describe_members(holders: ReplicasByBroker, reports: Mapping[str, BrokerReport]) -> str:
    brokers: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for broker, replica in sorted(holders.items()):
        brokers[tuple(sorted(replica.members))].append(_label(broker, reports))
    return "; ".join(
        f"members are {_listed([_label(one, reports) for one in members])} according to {_listed(brokers[members])}"
        for members in sorted(brokers)
    )


def _label(broker: str, reports: Mapping[str, BrokerReport]) -> str:
    """Return the name of a broker for users; its id if it has not reported."""
    return reports[broker].broker.label if broker in reports else broker


# -- across topics --------------------------------------------------------------------------------------------


def _duplicate_names(topics: Iterable[Topic]) -> list[str]:
    ids: dict[str, list[str]] = defaultdict(list)
    for topic in topics:
        ids[topic.name].append(topic.id)
    return [
        f"{len(ids[name])} topics have the name '{name}': {_listed(ids[name])}; delete all but one with --delete-topic"
        for name in sorted(ids)
        if len(ids[name]) > 1
    ]


def _missing_brokers(topics: Iterable[Topic], reports: Mapping[str, BrokerReport]) -> list[str]:
    """Report members without a report. They may have more topics, more partitions or later epochs."""
    missing: dict[str, list[str]] = defaultdict(list)
    for topic in topics:
        for partition in topic.partitions:
            for member in partition.members:
                if member not in reports:
                    missing[member].append(f"{topic.name}/{partition.index}")
    return [
        f"broker {member} is a member of {_listed(missing[member])}, but was not named; its metadata is missing"
        for member in sorted(missing)
    ]


def _listed(names: Sequence[str]) -> str:
    """List up to `NAMES_MAX` names, and count the others."""
    more = len(names) - NAMES_MAX
    return ", ".join(names[:NAMES_MAX]) + (f" and {more} more" if more > 0 else "")
