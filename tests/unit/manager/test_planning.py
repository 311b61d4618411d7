"""Planning: golden examples, and invariants of random plans."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flotilla_manager.model import Broker, Partition, Replica, Snapshot, Topic, TopicState, Writer, key_of
from flotilla_manager.planning import (
    OUTDATED_MAX,
    TRANSFERS_MAX,
    Campaign,
    Command,
    DeleteReplica,
    Plan,
    PutReplica,
    Report,
    TransferLeadership,
    UpdatePeers,
    peers_of,
    plan,
)
from support.topology import Case, Example, ReportLine, Words, cases, make_broker, parse_example

GOLDEN = Path(__file__).with_name("testdata") / "planning.txt"
EPOCH = 7


def snapshot_of(brokers: Sequence[Broker], topics: Sequence[Topic]) -> Snapshot:
    return Snapshot(
        version=1,
        cluster_id="ours",
        writer=Writer(epoch=EPOCH, url="http://writer", heartbeat=1),
        topics=tuple(topics),
        brokers=tuple(brokers),
    )


# -- golden texts ---------------------------------------------------------------------------------------------


def plan_example(lines: tuple[str, ...]) -> list[str]:
    example = parse_example(lines)
    snapshot = snapshot_of(list(example.brokers.values()), list(example.topics.values()))
    reports = {line.words.plain[1]: make_report(line, snapshot) for line in example.reports}
    recent = frozenset(parse_recent(words, example) for words in example.rest)
    return describe(plan(snapshot, reports, recent))


def make_report(line: ReportLine, snapshot: Snapshot) -> Report:
    cluster = line.words.settings.get("cluster", "ours")
    return Report(
        broker=line.words.plain[1],
        cluster_id=None if cluster == "none" else cluster,
        writer_epoch=int(line.words.settings.get("epoch", EPOCH)),
        replicas=line.replicas,
        fresh="stale" not in line.words,
        peers=None if "no-peers" in line.words else peers_of(snapshot),
    )


def parse_recent(words: Words, example: Example) -> Command:
    _, kind, broker, replica, *target = words.plain
    topic_id, _, index = replica.partition("/")
    epoch = example.topics[topic_id].partitions[int(index)].epoch
    if kind == "campaign":
        return Campaign(broker=broker, topic_id=topic_id, partition=int(index), epoch=epoch)
    return TransferLeadership(broker=broker, topic_id=topic_id, partition=int(index), epoch=epoch, target=target[0])


def describe(found: Plan) -> list[str]:
    lines = [
        *(f"behind: {sentence}" for sentence in found.outdated),
        *(describe_command(command) for command in found.commands),
        *(f"{change.topic_id} is {change.state}" for change in found.topic_changes),
    ]
    return lines or ["nothing"]


def describe_command(command: Command) -> str:
    if isinstance(command, UpdatePeers):
        return f"{command.broker}: peers " + " ".join(address.broker for address in command.peers)
    where = f"{command.topic_id}/{command.partition}@{command.epoch}"
    match command:
        case DeleteReplica():
            return f"{command.broker}: close {where}"
        case PutReplica(retention_ms=time, retention_bytes=size, batch_bytes_max=batch):
            limits = f"{'-' if time is None else time}/{'-' if size is None else size}"
            limits += "" if batch is None else f" batch={batch}"
            return (
                f"{command.broker}: open {where} as {command.topic} of {','.join(command.members)} retention={limits}"
            )
        case Campaign():
            return f"{command.broker}: campaign {where}"
        case TransferLeadership():
            return f"{command.broker}: transfer {where} to {command.target}"


@pytest.mark.parametrize("case", cases(GOLDEN), ids=lambda case: case.title[:60])
def test_plan_matches_golden_example(case: Case) -> None:
    assert plan_example(case.given) == list(case.expected)


def test_plan_lists_a_limited_number_of_differences() -> None:
    replicas = tuple(replica_of(f"t{number}", 0, 1, ("1",)) for number in range(OUTDATED_MAX + 5))
    report = Report(broker="1", cluster_id="ours", writer_epoch=EPOCH, replicas=replicas)
    behind = plan(snapshot_of([make_broker("1")], []), {"1": report}).outdated
    assert len(behind) == OUTDATED_MAX + 1
    assert behind[-1] == "and 5 more"


# -- random clusters ------------------------------------------------------------------------------------------

IDS = ["1", "2", "3", "4"]
MEMBERS = st.permutations(IDS).flatmap(lambda ids: st.integers(1, 3).map(lambda size: tuple(ids[:size])))
BROKERS = st.tuples(
    *(
        st.builds(lambda id_, active, cordoned: make_broker(id_, active=active, cordoned=cordoned), st.just(id_), b, b)
        for id_, b in ((id_, st.sampled_from([True, True, False])) for id_ in IDS)
    )
)


def replica_of(topic_id: str, index: int, epoch: int, members: tuple[str, ...]) -> Replica:
    return Replica(
        topic=topic_id, topic_id=topic_id, partition=index, epoch=epoch, members=tuple(sorted(members)), leader=None
    )


@st.composite
def topics(draw: st.DrawFn) -> tuple[Topic, ...]:
    return tuple(
        Topic(
            id=f"t{serial}",
            name=f"t{serial}",
            state=draw(st.sampled_from(TopicState)),
            serial=serial,
            partitions=tuple(
                Partition(index=index, epoch=draw(st.integers(1, 2)), members=draw(MEMBERS))
                for index in range(draw(st.integers(1, 3)))
            ),
            retention_ms=draw(st.sampled_from([None, 1000])),
            retention_bytes=None,
            batch_bytes_max=draw(st.sampled_from([None, 4096])),
        )
        for serial in range(1, draw(st.integers(0, 4)) + 1)
    )


@st.composite
def clusters(draw: st.DrawFn) -> tuple[Snapshot, dict[str, Report]]:
    """Draw a snapshot, and possible reports: all replicas in them are known to the snapshot."""
    snapshot = snapshot_of(draw(BROKERS), draw(topics()))
    reports = {}
    for broker in draw(st.sets(st.sampled_from(IDS))):
        reports[broker] = Report(
            broker=broker,
            cluster_id="ours",
            writer_epoch=draw(st.integers(0, EPOCH)),
            replicas=tuple(draw(replicas(snapshot, broker))),
            fresh=draw(st.sampled_from([True, True, True, False])),
            peers=draw(st.sampled_from([None, peers_of(snapshot)])),
        )
    return snapshot, reports


@st.composite
def replicas(draw: st.DrawFn, snapshot: Snapshot, broker: str) -> list[Replica]:
    held = []
    for topic in snapshot.topics:
        for partition in topic.partitions:
            for epoch in range(1, partition.epoch + 1):
                members = partition.members if epoch == partition.epoch else (broker,)
                if broker in members and draw(st.booleans()):
                    leader = draw(st.sampled_from([None, *members]))
                    held.append(
                        replace(
                            replica_of(topic.id, partition.index, epoch, members),
                            leader=leader,
                            leads=leader == broker,
                            settled=leader == broker,
                            lag=draw(st.sampled_from([0, 0, 3])),
                            broken=draw(st.sampled_from([False, False, False, True])),
                        )
                    )
    return held


def apply_plan(snapshot: Snapshot, reports: dict[str, Report], found: Plan) -> tuple[Snapshot, dict[str, Report]]:
    """Apply a plan to the reports, as brokers would."""
    states = {change.topic_id: change.state for change in found.topic_changes}
    changed = tuple(replace(topic, state=states.get(topic.id, topic.state)) for topic in snapshot.topics)
    reports = dict(reports)
    for command in found.commands:
        report = reports[command.broker]
        if isinstance(command, UpdatePeers):
            reports[command.broker] = replace(report, peers=command.peers)
            continue
        key = (command.topic_id, command.partition, command.epoch)
        match command:
            case DeleteReplica():
                assert key in {key_of(one) for one in report.replicas}
                left = tuple(one for one in report.replicas if key_of(one) != key)
                reports[command.broker] = replace(report, replicas=left)
            case PutReplica():
                reports[command.broker] = replace(report, replicas=put_replica(report.replicas, command))
            case Campaign(broker=leader) | TransferLeadership(target=leader):
                reports = {name: replace(one, replicas=set_leader(one, key, leader)) for name, one in reports.items()}
    return replace(snapshot, topics=changed), reports


def put_replica(held: tuple[Replica, ...], command: PutReplica) -> tuple[Replica, ...]:
    new = replica_of(command.topic_id, command.partition, command.epoch, command.members)
    old = [one for one in held if key_of(one) == key_of(new)]
    (one,) = old or [new]
    one = replace(
        one,
        retention_ms=command.retention_ms,
        retention_bytes=command.retention_bytes,
        batch_bytes_max=command.batch_bytes_max,
    )
    return (*(other for other in held if key_of(other) != key_of(one)), one)


def set_leader(report: Report, key: tuple[str, int, int], leader: str) -> tuple[Replica, ...]:
    is_leader = report.broker == leader
    return tuple(
        replace(one, leader=leader, leads=is_leader, settled=is_leader) if key_of(one) == key else one
        for one in report.replicas
    )


@given(clusters())
def test_applied_plans_converge(cluster: tuple[Snapshot, dict[str, Report]]) -> None:
    """Plans reach a fixed point, and repeat no command. It takes several, because only existing replicas can lead."""
    snapshot, reports = cluster
    commands: set[Command] = set()
    for rounds in count():
        found = plan(snapshot, reports)
        assert found == plan(snapshot, reports)
        assert not found.outdated
        if found == Plan():
            break
        assert commands.isdisjoint(found.commands)
        assert len(set(found.commands)) == len(found.commands)
        commands |= set(found.commands)
        snapshot, reports = apply_plan(snapshot, reports, found)
        assert rounds < 8  # puts, campaigns, deletes, limited transfers, and changes of topics


@given(clusters())
def test_plan_deletes_only_obsolete_replicas(cluster: tuple[Snapshot, dict[str, Report]]) -> None:
    """Deleted replicas are of a deleted topic or an earlier epoch; only brokers with fresh reports get commands."""
    snapshot, reports = cluster
    found = plan(snapshot, reports)
    for command in found.commands:
        assert reports[command.broker].fresh
        if isinstance(command, DeleteReplica):
            topic = snapshot.topics_by_id[command.topic_id]
            is_deleted = topic.state in {TopicState.DELETING, TopicState.DELETED}
            assert is_deleted or command.epoch < topic.partitions[command.partition].epoch
    assert sum(isinstance(command, TransferLeadership) for command in found.commands) <= TRANSFERS_MAX


@given(clusters(), st.randoms(use_true_random=False))
def test_plan_does_not_depend_on_the_order_of_reports(
    cluster: tuple[Snapshot, dict[str, Report]], random: Random
) -> None:
    snapshot, reports = cluster
    items = [(name, replace(one, replicas=shuffled(one.replicas, random))) for name, one in reports.items()]
    random.shuffle(items)
    assert plan(snapshot, dict(items)) == plan(snapshot, reports)


def shuffled(held: tuple[Replica, ...], random: Random) -> tuple[Replica, ...]:
    mixed = list(held)
    random.shuffle(mixed)
    return tuple(mixed)


@given(clusters(), st.sampled_from(IDS), st.booleans(), st.data())
def test_plan_is_empty_if_the_database_is_behind(
    cluster: tuple[Snapshot, dict[str, Report]], broker: str, fresh: bool, data: st.DataObject
) -> None:
    """A restored backup must not delete replicas: one unknown replica is sufficient."""
    snapshot, reports = cluster
    known = [
        replica_of(topic.id, one.index, one.epoch, one.members)
        for topic in snapshot.topics
        for one in topic.partitions
        if topic.state != TopicState.DELETED
    ]
    unknown = [
        replica_of("unknown", 0, 1, (broker,)),
        *(replace(one, partition=one.partition + 3) for one in known),
        *(replace(one, epoch=one.epoch + 1) for one in known),
        *(replace(one, members=(*one.members, "5")) for one in known),
    ]
    report = Report(
        broker=broker,
        cluster_id="ours",
        writer_epoch=EPOCH,
        replicas=(data.draw(st.sampled_from(unknown)),),
        fresh=fresh,
    )
    found = plan(snapshot, {**reports, broker: report})
    assert found.outdated
    assert found == Plan(outdated=found.outdated)


@given(clusters(), st.sampled_from(IDS))
def test_report_of_another_cluster_is_ignored(cluster: tuple[Snapshot, dict[str, Report]], broker: str) -> None:
    snapshot, reports = cluster
    others = {name: one for name, one in reports.items() if name != broker}
    foreign = Report(
        broker=broker, cluster_id="theirs", writer_epoch=99, replicas=(replica_of("unknown", 0, 1, (broker,)),)
    )
    assert plan(snapshot, {**others, broker: foreign}) == plan(snapshot, others)


def test_broker_without_a_name_gets_addresses_without_names() -> None:
    """Brokers before 0.3 reject an address with a name, and could not connect to others."""
    named, nameless = replace(make_broker("b1"), name="broker-1"), make_broker("b2")
    reports = {
        one.id: Report(broker=one.id, cluster_id="ours", writer_epoch=EPOCH, replicas=()) for one in (named, nameless)
    }
    found = plan(snapshot_of((named, nameless), ()), reports)
    sent = {command.broker: command for command in found.commands}
    names = {
        id_: [address.name for address in command.peers]
        for id_, command in sent.items()
        if isinstance(command, UpdatePeers)
    }
    assert names == {"b1": ["broker-1", ""], "b2": ["", ""]}
