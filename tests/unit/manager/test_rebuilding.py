"""Rebuilding metadata: examples as golden text, and that planning agrees with what was rebuilt."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flotilla_manager.model import Broker, Replica, Snapshot, Topic, TopicState, Writer
from flotilla_manager.placement import place
from flotilla_manager.planning import Report, book_of, plan
from flotilla_manager.rebuilding import BrokerReport, Rebuilt, rebuild
from support.topology import Case, Said, cases, make_broker, read_world

GOLDEN = Path(__file__).with_name("testdata") / "rebuilding.txt"


def answer(lines: tuple[str, ...]) -> list[str]:
    world = read_world(lines)
    return show(rebuild([read_report(said, world.brokers[said.words.plain[1]]) for said in world.said]))


def read_report(said: Said, broker: Broker) -> BrokerReport:
    cluster = said.words.settings.get("cluster", "ours")
    return BrokerReport(
        broker=broker,
        cluster_id=None if cluster == "none" else cluster,
        writer_epoch=int(said.words.settings.get("epoch", 7)),
        replicas=said.replicas,
    )


def show(found: Rebuilt) -> list[str]:
    brokers = " ".join(broker.id for broker in found.brokers) or "none"
    return [
        f"cluster {found.cluster_id or 'unknown'}, writer epoch {found.writer_epoch}, brokers {brokers}",
        *(show_topic(topic) for topic in found.topics),
        *(f"problem: {sentence}" for sentence in found.problems),
    ]


def show_topic(topic: Topic) -> str:
    partitions = " ".join(f"{one.index}@{one.epoch}={','.join(one.members)}" for one in topic.partitions)
    limits = "/".join("-" if one is None else str(one) for one in (topic.retention_ms, topic.retention_bytes))
    limits += "" if topic.batch_bytes_max is None else f" batch={topic.batch_bytes_max}"
    return f"topic {topic.serial} {topic.id} '{topic.name}' {topic.state} {partitions} retention={limits}"


@pytest.mark.parametrize("case", cases(GOLDEN), ids=lambda case: case.title[:60])
def test_metadata_is_rebuilt_as_written_down(case: Case) -> None:
    assert answer(case.given) == list(case.expected)


def reports_of(brokers: Sequence[Broker], sizes: Sequence[tuple[int, int]]) -> list[BrokerReport]:
    """Make brokers that hold all replicas of some topics, each led by its first member."""
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
def test_after_a_rebuild_there_is_nothing_to_order(count: int, sizes: list[tuple[int, int]]) -> None:
    """A rebuilt database is not behind, closes nothing, opens nothing and moves no leader."""
    reports = reports_of([make_broker(f"b{number}") for number in range(count)], sizes)
    found = rebuild(reports)
    assert found.problems == ()
    assert [len(topic.partitions) for topic in found.topics] == [partitions for partitions, _ in sizes]
    assert all(topic.state == TopicState.READY for topic in found.topics)
    snapshot = Snapshot(
        version=1,
        cluster_id=str(found.cluster_id),
        writer=Writer(epoch=found.writer_epoch + 1, url="http://writer", beat=0),
        topics=found.topics,
        brokers=found.brokers,
    )
    said = {
        one.broker.id: Report(
            broker=one.broker.id,
            cluster_id=one.cluster_id,
            writer_epoch=one.writer_epoch,
            replicas=one.replicas,
            book=book_of(snapshot),
        )
        for one in reports
    }
    assert plan(snapshot, said).is_empty


@given(st.integers(2, 5), SIZES, st.data())
def test_what_is_missing_is_said_and_not_invented(
    count: int, sizes: list[tuple[int, int]], data: st.DataObject
) -> None:
    """Of reports of some brokers, nothing is found but what they say, and every missing member is named."""
    reports = reports_of([make_broker(f"b{number}") for number in range(count)], sizes)
    given_reports = data.draw(st.permutations(reports))[: data.draw(st.integers(1, count))]
    found = rebuild(given_reports)
    held = {(one.topic_id, one.partition) for report in given_reports for one in report.replicas}
    assert {(topic.id, one.index) for topic in found.topics for one in topic.partitions} == held
    there = {report.broker.id for report in given_reports}
    members = {member for topic in found.topics for one in topic.partitions for member in one.members}
    for absent in members - there:
        assert any(f"broker {absent} is a member of" in sentence for sentence in found.problems)
    assert found == rebuild(sorted(given_reports, key=lambda report: report.broker.id))
