"""Transitions of a group: an example of each rule."""

from collections.abc import Collection
from dataclasses import replace

import pytest

from flotilla.groups import membership
from flotilla.groups.membership import InconsistentStrategy, StaleGeneration, UnknownMember
from flotilla.groups.state import Assignment, Group, GroupTopic, Holding, Member, PartitionId, Strategy

ORDERS = {"orders": GroupTopic("o", 4)}
BOTH = {**ORDERS, "payments": GroupTopic("p", 2)}
P0, P1, P2, P3 = ALL = [PartitionId("o", number) for number in range(4)]


def join(group: Group, member_id: str, *topics: str, strategy: Strategy = Strategy.STICKY) -> Group:
    return membership.join(group, member_id, topics or ["orders"], 10_000, strategy, BOTH)


def group_of(*ids: str) -> Group:
    """Let members join one after another, each when the group is stable."""
    group = Group(name="g")
    for id_ in ids:
        group = settle(join(group, id_))
    return group


def settle(group: Group) -> Group:
    """Let all members sync until the group is stable."""
    while not membership.is_stable(group):
        for id_ in group.members:
            group = membership.sync(group, id_, group.generation, owned_by(group, id_, revoked=False))
    return group


def owned_by(group: Group, member_id: str, *, revoked: bool = True) -> list[PartitionId]:
    assignment = membership.assignment_of(group, member_id)
    return [*assignment.assigned, *(assignment.revoked if revoked else ())]


def refused(group: Group, member_id: str, generation: int, partitions: Collection[PartitionId]) -> list[PartitionId]:
    member = group.members.get(member_id)
    return membership.find_not_owned(member, generation, group.generation, group.holdings, partitions)


# -- join -----------------------------------------------------------------------------------------------------


def test_first_member_owns_all_partitions_at_once() -> None:
    group = join(Group(name="g"), "a")
    assert membership.assignment_of(group, "a") == Assignment(generation=1, assigned=tuple(ALL), revoked=(), pending=0)
    assert membership.is_stable(group)
    assert not membership.should_sync(group, "a")


def test_new_member_waits_until_owners_release_partitions() -> None:
    group = join(group_of("a"), "b")
    assert membership.assignment_of(group, "b") == Assignment(generation=2, assigned=(), revoked=(), pending=2)
    assert membership.assignment_of(group, "a") == Assignment(
        generation=2, assigned=(P0, P1), revoked=(P2, P3), pending=0
    )
    assert membership.should_sync(group, "a")
    assert not membership.should_sync(group, "b")
    assert not membership.is_stable(group)


def test_topics_of_a_member_are_unique_and_sorted() -> None:
    group = membership.join(Group(name="g"), "a", ["payments", "orders", "payments"], 5_000, Strategy.RANGE, BOTH)
    assert group.members["a"].topics == ("orders", "payments")
    assert group.members["a"].timeout_ms == 5_000
    assert group.strategy == Strategy.RANGE


def test_inconsistent_strategy_is_refused_while_there_are_other_members() -> None:
    group = join(Group(name="g"), "a", strategy=Strategy.RANGE)
    with pytest.raises(
        InconsistentStrategy, match="use the strategy 'range': join with it, not with 'sticky'"
    ) as refusal:
        join(group, "b")
    assert refusal.value.current == Strategy.RANGE


def test_only_member_and_empty_group_can_change_the_strategy() -> None:
    group = join(join(Group(name="g"), "a", strategy=Strategy.RANGE), "a", strategy=Strategy.ROUND_ROBIN)
    assert group.strategy == Strategy.ROUND_ROBIN
    assert join(membership.remove(group, ["a"], BOTH), "b").strategy == Strategy.STICKY


@pytest.mark.parametrize("strategy", Strategy)
def test_rejoin_with_the_same_id_keeps_the_partitions(strategy: Strategy) -> None:
    """Static membership: a restarted process gets its partitions back, and nothing moves."""
    old = join(join(Group(name="g"), "a", strategy=strategy), "b", strategy=strategy)
    old = settle(old)
    new = join(old, "a", strategy=strategy)
    assert {tp: one.target for tp, one in new.holdings.items()} == {tp: one.target for tp, one in old.holdings.items()}
    assert membership.assignment_of(new, "a").assigned == membership.assignment_of(old, "a").assigned
    assert new.members["a"].joined == new.members["a"].synced == new.generation == old.generation + 1
    with pytest.raises(
        StaleGeneration, match="generation 2 is stale: the member joined in generation 3, and the group is in 3"
    ):
        refused(new, "a", old.generation, [P0])


def test_rejoin_with_other_topics_revokes_the_old_ones() -> None:
    group = join(join(Group(name="g"), "a", "orders"), "a", "payments")
    assert membership.assignment_of(group, "a").revoked == tuple(ALL)
    group = membership.sync(group, "a", group.generation, membership.assignment_of(group, "a").assigned)
    assert owned_by(group, "a") == [PartitionId("p", 0), PartitionId("p", 1)]
    assert group.holdings.keys() == {PartitionId("p", 0), PartitionId("p", 1)}


# -- sync -----------------------------------------------------------------------------------------------------


def test_released_partition_goes_to_its_target_at_its_next_sync() -> None:
    group = join(group_of("a"), "b")
    group = membership.sync(group, "a", 1, ALL)
    group = membership.sync(group, "a", 2, [P0, P1])
    assert group.holdings[P2] == Holding(owner=None, since=1, target="b")
    assert membership.should_sync(group, "b")
    group = membership.sync(group, "b", 2, [])
    assert group.holdings[P2] == Holding(owner="b", since=2, target="b")
    assert membership.is_stable(group)


def test_sync_without_a_change_returns_the_same_group() -> None:
    group = group_of("a", "b")
    assert membership.sync(group, "a", group.generation, owned_by(group, "a")) is group


def test_sync_older_than_the_last_one_changes_nothing() -> None:
    group = group_of("a", "b", "c")
    assert group.holdings[P0] == Holding(owner="a", since=1, target="a")
    assert group.members["a"].synced == 3
    assert membership.sync(group, "a", 2, []) is group


def test_late_sync_does_not_release_partitions_of_the_same_generation() -> None:
    """`b` syncs twice without partitions, gets two and works; `c` joins; then the second sync arrives."""
    group = settle(join(group_of("a"), "b"))
    generation, owned = group.generation, owned_by(group, "b")
    group = join(group, "c")
    late = membership.sync(group, "b", generation, [])
    assert owned_by(late, "b") == owned
    assert membership.assignment_of(late, "c").assigned == ()


def test_reporting_a_partition_does_not_make_a_member_its_owner() -> None:
    group = group_of("a", "b")
    owned = owned_by(group, "a")
    assert owned_by(membership.sync(group, "a", group.generation, [*ALL, PartitionId("x", 9)]), "a") == owned


# -- leave and remove -----------------------------------------------------------------------------------------


def test_partitions_of_a_leaving_member_become_unowned() -> None:
    group = group_of("a", "b")
    left = membership.leave(group, "b", group.generation, BOTH)
    assert left.generation == group.generation + 1
    assert membership.assignment_of(left, "a").pending == 2
    assert membership.should_sync(left, "a")
    assert owned_by(settle(left), "a") == ALL


def test_empty_group_has_no_holdings_and_keeps_its_generation() -> None:
    group = group_of("a", "b")
    empty = membership.remove(group, ["a", "b"], BOTH)
    assert (empty.members, empty.holdings, empty.strategy) == ({}, {}, Strategy.STICKY)
    assert empty.generation >= group.generation
    assert join(empty, "a").members["a"].joined > group.generation


def test_removal_of_unknown_member_changes_nothing() -> None:
    group = group_of("a")
    assert membership.remove(group, ["unknown"], BOTH) is group


def test_moving_partition_stays_with_its_owner_if_its_target_leaves() -> None:
    """Members that join and leave before any partition was released have moved nothing."""
    before = group_of("b", "a")  # so that an assignment in order of ids would differ
    after = membership.remove(join(join(before, "c"), "d"), ["c", "d"], BOTH)
    assert after.holdings == before.holdings


def test_removal_moves_no_more_partitions_than_the_removed_member_had() -> None:
    """The owner of pending moves keeps its own partitions, and gives up those that it was to release."""
    topology = {"t": GroupTopic("t", 3), "u": GroupTopic("u", 3)}
    targets = {("t", 0): "b", ("t", 1): "b", ("t", 2): "c", ("u", 0): "c", ("u", 1): "a", ("u", 2): "a"}
    holdings = {PartitionId(*tp): Holding(owner="a", since=1, target=target) for tp, target in targets.items()}
    members = {id_: Member(id=id_, topics=("t", "u"), timeout_ms=1000, joined=1, synced=3) for id_ in ("a", "b", "c")}
    group = Group(name="g", strategy=Strategy.STICKY, generation=3, members=members, holdings=holdings)
    after = membership.remove(group, {"b"}, topology)
    moved = {tp: holding.target for tp, holding in after.holdings.items() if holding.target != holdings[tp].target}
    assert moved == {PartitionId("t", 0): "a", PartitionId("t", 1): "c"}


def test_late_leave_does_not_remove_the_next_incarnation() -> None:
    group = join(group_of("a"), "a")
    with pytest.raises(StaleGeneration):
        membership.leave(group, "a", 1, BOTH)


# -- topics ---------------------------------------------------------------------------------------------------


def test_unchanged_topology_returns_the_same_group() -> None:
    group = group_of("a", "b")
    assert membership.apply_topology(group, {**BOTH, "others": GroupTopic("x", 9)}) is group
    assert membership.apply_topology(empty := Group(name="g"), BOTH) is empty


def test_new_partitions_are_assigned_and_others_stay() -> None:
    group = group_of("a", "b")
    grown = membership.apply_topology(group, {"orders": GroupTopic("o", 6)})
    assert grown.generation == group.generation + 1
    assert {tp: one for tp, one in grown.holdings.items() if tp in ALL} == group.holdings
    assert [membership.assignment_of(grown, id_).pending for id_ in "ab"] == [1, 1]


def test_topic_created_after_the_join_is_assigned() -> None:
    group = membership.join(Group(name="g"), "a", ["orders", "payments"], 10_000, Strategy.STICKY, ORDERS)
    assert membership.assignment_of(membership.apply_topology(group, BOTH), "a").pending == 2


def test_recreated_topic_is_a_new_topic() -> None:
    group = group_of("a")
    again = membership.apply_topology(group, {"orders": GroupTopic("new", 4)})
    assert membership.assignment_of(again, "a") == Assignment(generation=2, assigned=(), revoked=(), pending=4)
    assert {tp.topic_id for tp in again.holdings} == {"new"}


def test_unsubscribed_partitions_are_removed_with_their_topic() -> None:
    group = join(join(Group(name="g"), "a", "orders"), "a", "payments")
    assert membership.apply_topology(group, BOTH) is group
    gone = membership.apply_topology(group, {"payments": BOTH["payments"]})
    assert gone.generation == group.generation + 1
    assert membership.assignment_of(gone, "a").revoked == ()


# -- checks of members ----------------------------------------------------------------------------------------


def test_unknown_member_and_stale_generation_have_to_join_again() -> None:
    group = join(group_of("a"), "a")
    with pytest.raises(UnknownMember, match="join again"):
        membership.check(group, "b", 2)
    for generation in (1, 3):
        with pytest.raises(StaleGeneration, match="join again"):
            membership.check(group, "a", generation)
    assert membership.check(group, "a", 2) is group.members["a"]


def test_member_that_missed_a_response_should_sync() -> None:
    """A late sync gave it partitions, and the response was not read: only the member can report it."""
    group = group_of("a", "b")
    assert not membership.should_sync(group, "a", generation=group.generation, held=2)
    assert membership.should_sync(group, "a", generation=group.generation - 1)
    assert membership.should_sync(group, "a", held=1)


def test_group_is_not_stable_before_all_members_have_synced() -> None:
    group = group_of("a", "b")
    behind = replace(group.members["a"], synced=group.generation - 1)
    assert not membership.is_stable(replace(group, members={**group.members, "a": behind}))


# -- commit ---------------------------------------------------------------------------------------------------


def test_only_the_owner_can_commit() -> None:
    group = group_of("a", "b")
    assert refused(group, "a", group.generation, [P0, P1]) == []
    assert refused(group, "b", group.generation, [P1, P0, P2]) == [P1, P0]
    assert refused(group, "a", group.generation, [PartitionId("x", 0)]) == [PartitionId("x", 0)]
    with pytest.raises(UnknownMember):
        refused(group, "c", group.generation, [P0])


def test_owner_can_commit_revoked_partitions_until_it_releases_them() -> None:
    group = membership.sync(join(group_of("a"), "b"), "a", 1, ALL)
    assert refused(group, "a", 1, [P2]) == []
    assert refused(group, "a", 2, [P2]) == []
    assert refused(membership.sync(group, "a", 2, [P0, P1]), "a", 2, [P2]) == [P2]


def test_commit_of_an_earlier_ownership_is_refused() -> None:
    there = settle(join(group_of("a"), "b"))
    back = settle(membership.leave(there, "b", there.generation, BOTH))
    assert owned_by(back, "a") == ALL
    assert refused(back, "a", there.generation, ALL) == [P2, P3]
    assert refused(back, "a", back.generation, ALL) == []
