"""Assignors: examples as golden text, and properties."""

from collections import Counter
from collections.abc import Collection, Mapping
from itertools import product
from pathlib import Path
from random import Random
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flotilla.groups.assignors import assign
from flotilla.groups.state import GroupTopic, PartitionId, Strategy, Topology
from support.groupsim import partitions_of
from support.topology import Case, cases

GOLDEN = Path(__file__).with_name("testdata") / "assignors.txt"

Members = dict[str, frozenset[str]]
T = TypeVar("T")


def id_of(topic: str) -> str:
    """Return a topic's id, such that ids and names sort differently: a confusion of the two fails."""
    return topic[::-1]


# -- golden texts ---------------------------------------------------------------------------------------------


def answer(lines: tuple[str, ...]) -> list[str]:
    topology: dict[str, GroupTopic] = {}
    members: Members = {}
    current: dict[PartitionId, str] = {}
    for kind, name, *rest in map(str.split, lines):
        if kind == "topic":
            topology[name] = GroupTopic(id_of(name), int(rest[0]))
        elif kind == "member":
            members[name] = frozenset(rest)
        else:
            current.update((read_partition(word), name) for word in rest)
    return [
        line for strategy in Strategy for line in show(strategy, members, assign(strategy, members, topology, current))
    ]


def read_partition(word: str) -> PartitionId:
    topic, _, partition = word.partition("/")
    return PartitionId(id_of(topic), int(partition))


def show(strategy: Strategy, members: Members, targets: Mapping[PartitionId, str]) -> list[str]:
    held: dict[str, list[str]] = {member: [] for member in sorted(members)}
    for (topic_id, partition), member in targets.items():
        held[member].append(f"{id_of(topic_id)}/{partition}")
    return [f"{strategy:<12} {member}: {' '.join(sorted(places))}".rstrip() for member, places in held.items()]


@pytest.mark.parametrize("case", cases(GOLDEN), ids=lambda case: case.title[:60])
def test_assignment_matches_golden_text(case: Case) -> None:
    assert answer(case.given) == list(case.expected)


# -- properties -----------------------------------------------------------------------------------------------

NAMES = ["ant", "bee", "cat"]
IDS = ["a", "b", "c", "d", "e"]
TOPOLOGIES = st.dictionaries(st.sampled_from(NAMES), st.integers(1, 7)).map(
    lambda sizes: {name: GroupTopic(id_of(name), size) for name, size in sizes.items()}
)
SUBSCRIPTIONS = st.frozensets(st.sampled_from([*NAMES, "nowhere"]), min_size=1)
MEMBERS = st.dictionaries(st.sampled_from(IDS), SUBSCRIPTIONS)
EQUALS = st.lists(st.sampled_from(IDS), min_size=1, unique=True).map(
    lambda ids: dict.fromkeys(ids, frozenset(NAMES)),
)
CURRENT = st.dictionaries(
    st.builds(PartitionId, st.sampled_from([id_of(name) for name in NAMES]), st.integers(0, 8)),
    st.sampled_from([*IDS, "gone"]),
)
STRATEGIES = st.sampled_from(list(Strategy))


def loads(members: Collection[str], targets: Mapping[PartitionId, str]) -> Counter[str]:
    counted = Counter(dict.fromkeys(members, 0))
    counted.update(targets.values())
    return counted


def spread(members: Collection[str], targets: Mapping[PartitionId, str]) -> int:
    counted = loads(members, targets).values()
    return max(counted) - min(counted)


def kept(before: Mapping[PartitionId, str], after: Mapping[PartitionId, str]) -> int:
    return sum(before.get(tp) == member for tp, member in after.items())


@given(STRATEGIES, MEMBERS, TOPOLOGIES, CURRENT)
def test_every_subscribed_partition_gets_one_subscriber(
    strategy: Strategy, members: Members, topology: Topology, current: dict[PartitionId, str]
) -> None:
    """Every partition once (it is a key), to a subscriber of its topic, and no other partitions."""
    targets = assign(strategy, members, topology, current)
    assert targets.keys() == partitions_of({topic for topics in members.values() for topic in topics}, topology)
    assert all(id_of(topic_id) in members[member] for (topic_id, _), member in targets.items())


def shuffled(keys: Collection[T], random: Random) -> list[T]:
    return random.sample(list(keys), len(keys))


@given(STRATEGIES, MEMBERS, TOPOLOGIES, CURRENT, st.randoms(use_true_random=False))
def test_assignment_does_not_depend_on_input_order(
    strategy: Strategy, members: Members, topology: Topology, current: dict[PartitionId, str], random: Random
) -> None:
    lists = {member: sorted(members[member]) * 2 for member in shuffled(members, random)}
    topics = {topic: topology[topic] for topic in shuffled(topology, random)}
    has = {tp: current[tp] for tp in shuffled(current, random)}
    assert assign(strategy, lists, topics, has) == assign(strategy, members, topology, current)


@given(MEMBERS, TOPOLOGIES)
def test_range_assigns_contiguous_ranges_in_order_of_ids(members: Members, topology: Topology) -> None:
    targets = assign(Strategy.RANGE, members, topology, {})
    for id_, partitions in topology.values():
        row = [targets[PartitionId(id_, number)] for number in range(partitions) if PartitionId(id_, number) in targets]
        sizes = [row.count(member) for member in sorted(members) if id_of(id_) in members[member]]
        assert row == sorted(row)
        assert sizes == sorted(sizes, reverse=True)
        assert not sizes or sizes[0] - sizes[-1] <= 1


@given(EQUALS, TOPOLOGIES)
def test_round_robin_is_balanced_over_all_topics_for_equal_subscriptions(members: Members, topology: Topology) -> None:
    assert spread(members, assign(Strategy.ROUND_ROBIN, members, topology, {})) <= 1


@given(MEMBERS, TOPOLOGIES)
def test_round_robin_assigns_to_the_next_subscriber(members: Members, topology: Topology) -> None:
    """Compared with a direct implementation: a circle of members, where non-subscribers are skipped."""
    circle = sorted(member for member in members if members[member] & topology.keys())
    expected = {}
    for topic in sorted(topology):
        for partition in range(topology[topic].partitions if circle else 0):
            wants = [topic in members[member] for member in circle]
            if any(wants):
                turn = wants.index(True)
                expected[PartitionId(topology[topic].id, partition)] = circle[turn]
                circle = circle[turn + 1 :] + circle[: turn + 1]
    assert assign(Strategy.ROUND_ROBIN, members, topology, {}) == expected


# -- sticky ---------------------------------------------------------------------------------------------------


@given(EQUALS, TOPOLOGIES, CURRENT)
def test_sticky_is_balanced_for_equal_subscriptions(
    members: Members, topology: Topology, current: dict[PartitionId, str]
) -> None:
    assert spread(members, assign(Strategy.STICKY, members, topology, current)) <= 1


@given(st.sampled_from([1, 2, 3]), st.integers(1, 5), st.data())
def test_sticky_moves_as_little_as_any_balanced_assignment(count: int, partitions: int, data: st.DataObject) -> None:
    """Compared with all possible assignments."""
    places = [PartitionId("t", number) for number in range(partitions)]
    members = dict.fromkeys(IDS[:count], frozenset({"t"}))
    current = data.draw(st.dictionaries(st.sampled_from(places), st.sampled_from([*members, "gone"])))
    deals = [dict(zip(places, deal, strict=True)) for deal in product(members, repeat=partitions)]
    best = max(kept(current, deal) for deal in deals if spread(members, deal) <= 1)
    assert kept(current, assign(Strategy.STICKY, members, {"t": GroupTopic("t", partitions)}, current)) == best


@given(MEMBERS, TOPOLOGIES, CURRENT)
def test_no_single_move_makes_sticky_more_balanced(
    members: Members, topology: Topology, current: dict[PartitionId, str]
) -> None:
    targets = assign(Strategy.STICKY, members, topology, current)
    load = loads(members, targets)
    for (topic_id, _), member in targets.items():
        others = [other for other in members if id_of(topic_id) in members[other]]
        assert load[member] - min(load[other] for other in others) <= 1


@given(MEMBERS, TOPOLOGIES, CURRENT)
def test_sticky_moves_nothing_without_a_change(
    members: Members, topology: Topology, current: dict[PartitionId, str]
) -> None:
    targets = assign(Strategy.STICKY, members, topology, current)
    assert assign(Strategy.STICKY, members, topology, targets) == targets


@given(EQUALS, TOPOLOGIES, CURRENT, st.sampled_from([*IDS, "f"]))
def test_new_member_moves_only_its_own_share(
    members: Members, topology: Topology, current: dict[PartitionId, str], joiner: str
) -> None:
    before = assign(Strategy.STICKY, members, topology, current)
    after = assign(Strategy.STICKY, {**members, joiner: frozenset(NAMES)}, topology, before)
    moved = {member for tp, member in after.items() if before[tp] != member}
    assert moved <= {joiner} - members.keys()
    assert len(after) - kept(before, after) == (0 if joiner in members else len(after) // (len(members) + 1))


@given(EQUALS, TOPOLOGIES, CURRENT, st.data())
def test_leaving_member_moves_only_its_own_partitions(
    members: Members, topology: Topology, current: dict[PartitionId, str], data: st.DataObject
) -> None:
    before = assign(Strategy.STICKY, members, topology, current)
    leaver = data.draw(st.sampled_from(sorted(members)))
    left = {member: topics for member, topics in members.items() if member != leaver}
    after = assign(Strategy.STICKY, left, topology, before)
    assert all(after[tp] == member for tp, member in before.items() if member != leaver and left)


@given(EQUALS, TOPOLOGIES, CURRENT, st.sampled_from(NAMES), st.integers(1, 5))
def test_new_partitions_of_a_topic_move_no_existing_ones(
    members: Members, topology: Topology, current: dict[PartitionId, str], name: str, more: int
) -> None:
    before = assign(Strategy.STICKY, members, topology, current)
    grown = GroupTopic(id_of(name), (topology[name].partitions if name in topology else 0) + more)
    after = assign(Strategy.STICKY, members, {**topology, name: grown}, before)
    assert all(after[tp] == member for tp, member in before.items())
