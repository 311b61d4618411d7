"""Planning: examples as golden text, and what holds for all of them."""

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
    BEHIND_MAX,
    HAND_OVERS_MAX,
    CloseReplica,
    HandOver,
    OpenReplica,
    Order,
    Plan,
    Report,
    SendBook,
    Stand,
    book_of,
    plan,
)
from support.topology import Case, Said, Words, World, cases, make_broker, read_world

GOLDEN = Path(__file__).with_name("testdata") / "planning.txt"
EPOCH = 7


def snapshot_of(brokers: Sequence[Broker], topics: Sequence[Topic]) -> Snapshot:
    return Snapshot(
        version=1,
        cluster_id="ours",
        writer=Writer(epoch=EPOCH, url="http://writer", beat=1),
        topics=tuple(topics),
        brokers=tuple(brokers),
    )


# -- golden texts ---------------------------------------------------------------------------------------------


def answer(lines: tuple[str, ...]) -> list[str]:
    world = read_world(lines)
    snapshot = snapshot_of(list(world.brokers.values()), list(world.topics.values()))
    reports = {said.words.plain[1]: read_report(said, snapshot) for said in world.said}
    recent = frozenset(read_recent(words, world) for words in world.rest)
    return show(plan(snapshot, reports, recent))


def read_report(said: Said, snapshot: Snapshot) -> Report:
    cluster = said.words.settings.get("cluster", "ours")
    return Report(
        broker=said.words.plain[1],
        cluster_id=None if cluster == "none" else cluster,
        writer_epoch=int(said.words.settings.get("epoch", EPOCH)),
        replicas=said.replicas,
        fresh="stale" not in said.words,
        book=None if "bookless" in said.words else book_of(snapshot),
    )


def read_recent(words: Words, world: World) -> Order:
    _, kind, broker, where, *target = words.plain
    topic_id, _, index = where.partition("/")
    epoch = world.topics[topic_id].partitions[int(index)].epoch
    if kind == "stand":
        return Stand(broker=broker, topic_id=topic_id, partition=int(index), epoch=epoch)
    return HandOver(broker=broker, topic_id=topic_id, partition=int(index), epoch=epoch, target=target[0])


def show(found: Plan) -> list[str]:
    lines = [
        *(f"behind: {sentence}" for sentence in found.behind),
        *(f"foreign: {broker}" for broker in found.foreign),
        *(show_order(order) for order in found.orders),
        *(f"{change.topic_id} is {change.state}" for change in found.topic_changes),
    ]
    return lines or ["nothing"]


def show_order(order: Order) -> str:
    if isinstance(order, SendBook):
        return f"{order.broker}: know " + " ".join(address.broker for address in order.book)
    where = f"{order.topic_id}/{order.partition}@{order.epoch}"
    match order:
        case CloseReplica():
            return f"{order.broker}: close {where}"
        case OpenReplica(retention_ms=time, retention_bytes=size, batch_bytes_max=batch):
            limits = f"{'-' if time is None else time}/{'-' if size is None else size}"
            limits += "" if batch is None else f" batch={batch}"
            return f"{order.broker}: open {where} as {order.topic} of {','.join(order.members)} retention={limits}"
        case Stand():
            return f"{order.broker}: stand for {where}"
        case HandOver():
            return f"{order.broker}: hand {where} over to {order.target}"


@pytest.mark.parametrize("case", cases(GOLDEN), ids=lambda case: case.title[:60])
def test_plans_are_as_written_down(case: Case) -> None:
    assert answer(case.given) == list(case.expected)


def test_a_database_that_is_far_behind_is_described_in_a_few_sentences() -> None:
    replicas = tuple(replica_of(f"t{number}", 0, 1, ("1",)) for number in range(BEHIND_MAX + 5))
    report = Report(broker="1", cluster_id="ours", writer_epoch=EPOCH, replicas=replicas)
    behind = plan(snapshot_of([make_broker("1")], []), {"1": report}).behind
    assert len(behind) == BEHIND_MAX + 1
    assert behind[-1] == "and 5 more"


# -- random worlds --------------------------------------------------------------------------------------------

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
def worlds(draw: st.DrawFn) -> tuple[Snapshot, dict[str, Report]]:
    """Draw a snapshot, and reports of which each could be: nothing in them is unknown to the snapshot."""
    snapshot = snapshot_of(draw(BROKERS), draw(topics()))
    reports = {}
    for broker in draw(st.sets(st.sampled_from(IDS))):
        reports[broker] = Report(
            broker=broker,
            cluster_id="ours",
            writer_epoch=draw(st.integers(0, EPOCH)),
            replicas=tuple(draw(replicas(snapshot, broker))),
            fresh=draw(st.sampled_from([True, True, True, False])),
            book=draw(st.sampled_from([None, book_of(snapshot)])),
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


def carry_out(snapshot: Snapshot, reports: dict[str, Report], found: Plan) -> tuple[Snapshot, dict[str, Report]]:
    """Do what a plan says, as brokers would."""
    states = {change.topic_id: change.state for change in found.topic_changes}
    changed = tuple(replace(topic, state=states.get(topic.id, topic.state)) for topic in snapshot.topics)
    reports = dict(reports)
    for order in found.orders:
        report = reports[order.broker]
        if isinstance(order, SendBook):
            reports[order.broker] = replace(report, book=order.book)
            continue
        key = (order.topic_id, order.partition, order.epoch)
        match order:
            case CloseReplica():
                assert key in {key_of(one) for one in report.replicas}
                left = tuple(one for one in report.replicas if key_of(one) != key)
                reports[order.broker] = replace(report, replicas=left)
            case OpenReplica():
                reports[order.broker] = replace(report, replicas=opened(report.replicas, order))
            case Stand(broker=leader) | HandOver(target=leader):
                reports = {name: replace(one, replicas=led(one, key, leader)) for name, one in reports.items()}
    return replace(snapshot, topics=changed), reports


def opened(held: tuple[Replica, ...], order: OpenReplica) -> tuple[Replica, ...]:
    new = replica_of(order.topic_id, order.partition, order.epoch, order.members)
    old = [one for one in held if key_of(one) == key_of(new)]
    (one,) = old or [new]
    one = replace(
        one,
        retention_ms=order.retention_ms,
        retention_bytes=order.retention_bytes,
        batch_bytes_max=order.batch_bytes_max,
    )
    return (*(other for other in held if key_of(other) != key_of(one)), one)


def led(report: Report, key: tuple[str, int, int], leader: str) -> tuple[Replica, ...]:
    is_leader = report.broker == leader
    return tuple(
        replace(one, leader=leader, leads=is_leader, settled=is_leader) if key_of(one) == key else one
        for one in report.replicas
    )


@given(worlds())
def test_plans_that_are_carried_out_come_to_an_end(world: tuple[Snapshot, dict[str, Report]]) -> None:
    """A fixed point, reached step by step because only open replicas can lead: no order is ever given twice."""
    snapshot, reports = world
    given_orders: set[Order] = set()
    for rounds in count():
        found = plan(snapshot, reports)
        assert found == plan(snapshot, reports)
        assert not found.behind
        if found.is_empty:
            break
        assert given_orders.isdisjoint(found.orders)
        assert len(set(found.orders)) == len(found.orders)
        given_orders |= set(found.orders)
        snapshot, reports = carry_out(snapshot, reports, found)
        assert rounds < 8  # open, stand, close, hand over a few at a time, and topics that change


@given(worlds())
def test_no_plan_closes_what_a_topic_wants(world: tuple[Snapshot, dict[str, Report]]) -> None:
    """What is closed is of a topic that goes, or of an earlier epoch; and only those that report are ordered about."""
    snapshot, reports = world
    found = plan(snapshot, reports)
    for order in found.orders:
        assert reports[order.broker].fresh
        if isinstance(order, CloseReplica):
            topic = snapshot.topics_by_id[order.topic_id]
            is_over = topic.state in {TopicState.DELETING, TopicState.DELETED}
            assert is_over or order.epoch < topic.partitions[order.partition].epoch
    assert sum(isinstance(order, HandOver) for order in found.orders) <= HAND_OVERS_MAX


@given(worlds(), st.randoms(use_true_random=False))
def test_a_plan_does_not_depend_on_the_order_of_reports(
    world: tuple[Snapshot, dict[str, Report]], random: Random
) -> None:
    snapshot, reports = world
    items = [(name, replace(one, replicas=shuffled(one.replicas, random))) for name, one in reports.items()]
    random.shuffle(items)
    assert plan(snapshot, dict(items)) == plan(snapshot, reports)


def shuffled(held: tuple[Replica, ...], random: Random) -> tuple[Replica, ...]:
    mixed = list(held)
    random.shuffle(mixed)
    return tuple(mixed)


@given(worlds(), st.sampled_from(IDS), st.booleans(), st.data())
def test_a_database_that_is_behind_orders_nothing_and_changes_nothing(
    world: tuple[Snapshot, dict[str, Report]], broker: str, fresh: bool, data: st.DataObject
) -> None:
    """A restored backup never deletes: one thing that it does not know is enough."""
    snapshot, reports = world
    known = [
        replica_of(topic.id, one.index, one.epoch, one.members)
        for topic in snapshot.topics
        for one in topic.partitions
        if topic.state != TopicState.DELETED
    ]
    beyond = [
        replica_of("unknown", 0, 1, (broker,)),
        *(replace(one, partition=one.partition + 3) for one in known),
        *(replace(one, epoch=one.epoch + 1) for one in known),
        *(replace(one, members=(*one.members, "5")) for one in known),
    ]
    report = Report(
        broker=broker,
        cluster_id="ours",
        writer_epoch=EPOCH,
        replicas=(data.draw(st.sampled_from(beyond)),),
        fresh=fresh,
    )
    found = plan(snapshot, {**reports, broker: report})
    assert found.behind
    assert found == Plan(behind=found.behind)


@given(worlds(), st.sampled_from(IDS))
def test_a_broker_of_another_cluster_is_as_if_it_had_not_reported(
    world: tuple[Snapshot, dict[str, Report]], broker: str
) -> None:
    snapshot, reports = world
    others = {name: one for name, one in reports.items() if name != broker}
    foreign = Report(
        broker=broker, cluster_id="theirs", writer_epoch=99, replicas=(replica_of("unknown", 0, 1, (broker,)),)
    )
    expected = replace(plan(snapshot, others), foreign=(broker,))
    assert plan(snapshot, {**others, broker: foreign}) == expected
