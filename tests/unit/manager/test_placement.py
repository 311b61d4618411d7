"""Placement: golden examples, and invariants of random placements."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flotilla_manager.model import Broker, Partition, Topic, TopicState
from flotilla_manager.placement import CannotPlace, Members, grow, place
from support.topology import Case, cases, make_broker, parse_example

GOLDEN = Path(__file__).with_name("testdata") / "placement.txt"


def place_example(lines: tuple[str, ...]) -> list[str]:
    """Run the request in the last line; describe the members, and the replicas and leaderships of brokers."""
    example = parse_example(lines)
    brokers, topics = list(example.brokers.values()), list(example.topics.values())
    (words,) = example.rest
    partitions = int(words.settings["partitions"])
    try:
        if words.plain[0] == "grow":
            topic = example.topics[words.plain[1]]
            first, placed = len(topic.partitions), grow(topic, partitions, brokers, topics)
        else:
            first, placed = 0, place(partitions, int(words.settings["replication"]), brokers, topics)
    except CannotPlace as error:
        return [f"cannot: {error}"]
    live = [one.members for topic in topics if topic.state != TopicState.DELETED for one in topic.partitions]
    partitions_members = [*live, *placed]
    return [
        *(f"{index}: {' '.join(members)}" for index, members in enumerate(placed, start=first)),
        "replicas " + format_counts(Counter(one for members in partitions_members for one in members), brokers),
        "leaders  " + format_counts(Counter(members[0] for members in partitions_members), brokers),
    ]


def format_counts(counts: Counter[str], brokers: Sequence[Broker]) -> str:
    return " ".join(f"{broker.id}={counts[broker.id]}" for broker in brokers)


@pytest.mark.parametrize("case", cases(GOLDEN), ids=lambda case: case.title[:60])
def test_placement_matches_golden_example(case: Case) -> None:
    assert place_example(case.given) == list(case.expected)


def brokers_of(racks: Sequence[str | None]) -> list[Broker]:
    return [make_broker(f"b{number:02}", rack=rack) for number, rack in enumerate(racks)]


def topic_of(id_: str, placed: Sequence[Members]) -> Topic:
    partitions = tuple(Partition(index=index, epoch=1, members=members) for index, members in enumerate(placed))
    return Topic(
        id=id_,
        name=id_,
        state=TopicState.READY,
        serial=1,
        partitions=partitions,
        retention_ms=None,
        retention_bytes=None,
    )


def spread(counts: Counter[str], brokers: Sequence[Broker]) -> int:
    numbers = [counts[broker.id] for broker in brokers]
    return max(numbers) - min(numbers)


RACKS = st.lists(st.sampled_from([None, "a", "b", "c"]), min_size=1, max_size=9)
SIZES = st.lists(st.tuples(st.integers(1, 12), st.integers(1, 5)), min_size=1, max_size=4)


@given(RACKS, SIZES, st.randoms(use_true_random=False))
def test_placement_is_deterministic_and_independent_of_order(
    racks: list[str | None],
    sizes: list[tuple[int, int]],
    random: Random,
) -> None:
    """The result depends on the brokers and topics, not on their order."""
    brokers, topics = brokers_of(racks), list[Topic]()
    for number, (partitions, replication) in enumerate(sizes):
        placed = place(partitions, replication, brokers, topics)
        shuffled, others = list(brokers), list(topics)
        random.shuffle(shuffled)
        random.shuffle(others)
        assert place(partitions, replication, shuffled, others) == placed
        topics.append(topic_of(f"t{number}", placed))


@given(RACKS, SIZES, st.data())
def test_members_are_distinct_eligible_brokers_spread_over_racks(
    racks: list[str | None], sizes: list[tuple[int, int]], data: st.DataObject
) -> None:
    """A partition has the requested replicas, on eligible brokers, spread evenly over the racks."""
    brokers = [replace(one, cordoned=data.draw(st.booleans())) for one in brokers_of(racks)]
    able = {one.id: one.rack or one.id for one in brokers if not one.cordoned}
    for partitions, replication in sizes:
        needed = min(replication, len(brokers))
        if needed > len(able):
            with pytest.raises(CannotPlace):
                place(partitions, replication, brokers, ())
            continue
        placed = place(partitions, replication, brokers, ())
        assert len(placed) == partitions
        for members in placed:
            assert len(members) == len(set(members)) == needed
            assert set(members) <= able.keys()
            check_racks(members, able)


def check_racks(members: Members, rack_of: dict[str, str]) -> None:
    used = Counter(rack_of[member] for member in members)
    sizes = Counter(rack_of.values())
    for rack, size in sizes.items():
        assert used[rack] == size or used[rack] >= max(used.values()) - 1


@given(st.integers(1, 9), SIZES)
def test_without_racks_replicas_stay_balanced_within_one(count: int, sizes: list[tuple[int, int]]) -> None:
    """From a balanced start, the replicas of two brokers never differ by more than one."""
    brokers, topics = brokers_of([None] * count), list[Topic]()
    replicas: Counter[str] = Counter()
    for number, (partitions, replication) in enumerate(sizes):
        placed = place(partitions, replication, brokers, topics)
        topics.append(topic_of(f"t{number}", placed))
        own = Counter(one for members in placed for one in members)
        replicas.update(own)
        assert spread(replicas, brokers) <= 1
        assert spread(own, brokers) <= 2  # a topic starts where the one before it ended


@given(st.integers(1, 3), st.integers(1, 3), SIZES)
def test_with_racks_of_one_size_replicas_stay_balanced_within_one(
    racks: int, size: int, sizes: list[tuple[int, int]]
) -> None:
    """Racks do not prevent balance if all have the same number of brokers."""
    brokers, topics = brokers_of([f"r{number % racks}" for number in range(racks * size)]), list[Topic]()
    replicas: Counter[str] = Counter()
    for number, (partitions, replication) in enumerate(sizes):
        placed = place(partitions, replication, brokers, topics)
        topics.append(topic_of(f"t{number}", placed))
        replicas.update(one for members in placed for one in members)
        assert spread(replicas, brokers) <= 1


@given(RACKS, SIZES)
def test_leader_is_the_member_with_the_fewest_leaderships(
    racks: list[str | None], sizes: list[tuple[int, int]]
) -> None:
    """This holds with any racks."""
    brokers, topics = brokers_of(racks), list[Topic]()
    leaders: Counter[str] = Counter()
    for number, (partitions, replication) in enumerate(sizes):
        placed = place(partitions, replication, brokers, topics)
        topics.append(topic_of(f"t{number}", placed))
        for members in placed:
            assert leaders[members[0]] == min(leaders[member] for member in members)
            leaders[members[0]] += 1


@pytest.mark.parametrize("racks", [None, 2, 3])
@pytest.mark.parametrize("replication", range(1, 6))
@pytest.mark.parametrize("count", range(1, 10))
def test_leaderships_of_one_topic_differ_by_two_at_most(count: int, replication: int, racks: int | None) -> None:
    """All topic sizes are covered: leaders are chosen one by one, so a prefix is the result of a smaller topic."""
    brokers = brokers_of([None if racks is None else f"r{number % racks}" for number in range(count)])
    leaders: Counter[str] = Counter()
    for members in place(40, replication, brokers, ()):
        leaders[members[0]] += 1
        assert spread(leaders, brokers) <= 2


@given(RACKS, st.integers(1, 8), st.integers(1, 5), st.integers(0, 8))
def test_grown_topic_equals_a_topic_created_with_that_size(
    racks: list[str | None], partitions: int, replication: int, more: int
) -> None:
    """Existing partitions stay, and new ones continue the placement."""
    brokers = brokers_of(racks)
    whole = place(partitions + more, replication, brokers, ())
    topic = topic_of("t", whole[:partitions])
    assert grow(topic, partitions + more, brokers, [topic]) == whole[partitions:]


@given(st.integers(2, 6), st.integers(1, 30), st.integers(1, 3), st.integers(1, 30))
def test_new_broker_is_filled_first(count: int, before: int, replication: int, after: int) -> None:
    """Until brokers are balanced, every partition has a replica on a broker with the fewest replicas."""
    old = brokers_of([None] * count)
    topic = topic_of("t", place(before, replication, old, ()))
    brokers = brokers_of([None] * (count + 1))
    held = Counter(one for partition in topic.partitions for one in partition.members)
    for members in place(after, replication, brokers, [topic]):
        least = min(held[broker.id] for broker in brokers)
        assert any(held[member] == least for member in members)
        held.update(members)
