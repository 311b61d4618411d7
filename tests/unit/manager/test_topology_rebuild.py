"""Rebuild of the topology: golden examples, and that the plan of a rebuilt topology is empty."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flotilla_manager.model import Broker, Replica, Snapshot, Topic, TopicState, Writer
from flotilla_manager.placement import place
from flotilla_manager.planning import Plan, Report, peers_of, plan
from flotilla_manager.topology_rebuild import BrokerReport, RebuiltTopology, rebuild_topology
from support.topology import Case, ReportLine, cases, make_broker, parse_example

GOLDEN = Path(__file__).with_name("testdata") / "topology_rebuild.txt"


def rebuild_example(lines: tuple[str, ...]) -> list[str]:
    example = parse_example(lines)
    reports = [make_report(line, example.brokers[line.words.plain[1]]) for line in example.reports]
    return describe(rebuild_topology(reports))


def make_report(line: ReportLine, broker: Broker) -> BrokerReport:
    cluster = line.words.settings.get("cluster", "ours")
    return BrokerReport(
        broker=broker,
        cluster_id=None if cluster == "none" else cluster,
        writer_epoch=int(line.words.settings.get("epoch", 7)),
        replicas=line.replicas,
    )


def describe(rebuilt: RebuiltTopology) -> list[str]:
    brokers = " ".join(broker.id for broker in rebuilt.brokers) or "none"
    return [
        f"cluster {rebuilt.cluster_id or 'unknown'}, writer epoch {rebuilt.writer_epoch}, brokers {brokers}",
        *(describe_topic(topic) for topic in rebuilt.topics),
        *(f"problem: {sentence}" for sentence in rebuilt.problems),
    ]


def describe_topic(topic: Topic) -> str:
    partitions = " ".join(f"{one.index}@{one.epoch}={','.join(one.members)}" for one in topic.partitions)
    limits = "/".join("-" if one is None else str(one) for one in (topic.retention_ms, topic.retention_bytes))
    limits += "" if topic.batch_bytes_max is None else f" batch={topic.batch_bytes_max}"
    return f"topic {topic.serial} {topic.id} '{topic.name}' {topic.state} {partitions} retention={limits}"


@pytest.mark.parametrize("case", cases(GOLDEN), ids=lambda case: case.title[:60])
def test_rebuilt_topology_matches_golden_example(case: Case) -> None:
    assert rebuild_example(case.given) == list(case.expected)


def reports_of(brokers: Sequence[Broker], sizes: Sequence[tuple[int, int]]) -> list[BrokerReport]:
    """Make reports of brokers that hold all replicas of some topics. First members lead."""
    held: dict[str, list[Replica]] = {broker.id: [] for broker in brokers}
    for number, (partitions, replication) in enumerate(sizes):
        for index, members in enumerate(place(partitions, replication, brokers, ())):
            for member in members:
                replica = Replica(
                    topic=f"topic-{number}",
                    topic_id=f"{number:032x}",
                    partition=index,
                    epoch=1,
                    members=tuple(sorted(members)),
                    leader=members[0],
                    leads=member == members[0],
                    settled=member == members[0],
                )
                held[member].append(replica)
    return [
        BrokerReport(broker=broker, cluster_id="ours", writer_epoch=7, replicas=tuple(held[broker.id]))
        for broker in brokers
    ]


SIZES = st.lists(st.tuples(st.integers(1, 6), st.integers(1, 3)), max_size=4)


@given(st.integers(1, 5), SIZES)
def test_plan_is_empty_after_a_rebuild(count: int, sizes: list[tuple[int, int]]) -> None:
    """The rebuilt database is not behind the brokers, and no replica is opened or closed and no leader moved."""
    reports = reports_of([make_broker(f"b{number}") for number in range(count)], sizes)
    rebuilt = rebuild_topology(reports)
    assert rebuilt.problems == ()
    assert [len(topic.partitions) for topic in rebuilt.topics] == [partitions for partitions, _ in sizes]
    assert all(topic.state == TopicState.READY for topic in rebuilt.topics)
    snapshot = Snapshot(
        version=1,
        cluster_id=str(rebuilt.cluster_id),
        writer=Writer(epoch=rebuilt.writer_epoch + 1, url="http://writer", heartbeat=0),
        topics=rebuilt.topics,
        brokers=rebuilt.brokers,
    )
    heartbeats = {
        one.broker.id: Report(
            broker=one.broker.id,
            cluster_id=one.cluster_id,
            writer_epoch=one.writer_epoch,
            replicas=one.replicas,
            peers=peers_of(snapshot),
        )
        for one in reports
    }
    assert plan(snapshot, heartbeats) == Plan()


@given(st.integers(2, 5), SIZES, st.data())
def test_missing_brokers_are_reported_and_their_replicas_not_invented(
    count: int, sizes: list[tuple[int, int]], data: st.DataObject
) -> None:
    """A rebuild from some of the brokers contains only their replicas, and names every missing member."""
    reports = reports_of([make_broker(f"b{number}") for number in range(count)], sizes)
    given_reports = data.draw(st.permutations(reports))[: data.draw(st.integers(1, count))]
    rebuilt = rebuild_topology(given_reports)
    held = {(one.topic_id, one.partition) for report in given_reports for one in report.replicas}
    assert {(topic.id, one.index) for topic in rebuilt.topics for one in topic.partitions} == held
    reporting = {report.broker.id for report in given_reports}
    members = {member for topic in rebuilt.topics for one in topic.partitions for member in one.members}
    for absent in members - reporting:
        assert any(f"broker {absent} is a member of" in sentence for sentence in rebuilt.problems)
    assert rebuilt == rebuild_topology(sorted(given_reports, key=lambda report: report.broker.id))
