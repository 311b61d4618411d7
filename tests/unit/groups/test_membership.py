"""How a group changes: each rule by an example."""

from collections.abc import Collection
from dataclasses import replace

import pytest

from flotilla.groups import membership
from flotilla.groups.membership import OtherStrategy, StaleGeneration, UnknownMember
from flotilla.groups.state import Group, Holding, Place, Strategy, Subscribed, Told

ORDERS = {"orders": Subscribed("o", 4)}
BOTH = {**ORDERS, "payments": Subscribed("p", 2)}
P0, P1, P2, P3 = ALL = [Place("o", number) for number in range(4)]


def join(group: Group, member_id: str, *topics: str, strategy: Strategy = Strategy.STICKY) -> Group:
    return membership.join(group, member_id, topics or ["orders"], 10_000, strategy, BOTH)


def group_of(*ids: str) -> Group:
    """Let members join one after the other, each as soon as all is well."""
    group = Group(name="g")
    for id_ in ids:
        group = settle(join(group, id_))
    return group


def settle(group: Group) -> Group:
    """Let everybody do as it is told until nobody has to."""
    while not membership.is_stable(group):
        for id_ in group.members:
            group = membership.sync(group, id_, group.generation, owned_by(group, id_, revoked=False))
    return group


def owned_by(group: Group, member_id: str, *, revoked: bool = True) -> list[Place]:
    told = membership.told(group, member_id)
    return [*told.assigned, *(told.revoked if revoked else ())]


def refused(group: Group, member_id: str, generation: int, places: Collection[Place]) -> list[Place]:
    member = group.members.get(member_id)
    return membership.may_commit(member, generation, group.generation, group.holdings, places)


# -- join -----------------------------------------------------------------------------------------------------


def test_the_first_member_has_everything_at_once() -> None:
    group = join(Group(name="g"), "a")
    assert membership.told(group, "a") == Told(generation=1, assigned=tuple(ALL), revoked=(), pending=0)
    assert membership.is_stable(group)
    assert not membership.should_sync(group, "a")


def test_a_member_that_comes_waits_until_the_others_have_let_go() -> None:
    group = join(group_of("a"), "b")
    assert membership.told(group, "b") == Told(generation=2, assigned=(), revoked=(), pending=2)
    assert membership.told(group, "a") == Told(generation=2, assigned=(P0, P1), revoked=(P2, P3), pending=0)
    assert membership.should_sync(group, "a")
    assert not membership.should_sync(group, "b")
    assert not membership.is_stable(group)


def test_a_member_knows_its_topics_each_once_and_in_order() -> None:
    group = membership.join(Group(name="g"), "a", ["payments", "orders", "payments"], 5_000, Strategy.RANGE, BOTH)
    assert group.members["a"].topics == ("orders", "payments")
    assert group.members["a"].timeout_ms == 5_000
    assert group.strategy == Strategy.RANGE


def test_another_strategy_is_refused_while_others_are_there() -> None:
    group = join(Group(name="g"), "a", strategy=Strategy.RANGE)
    with pytest.raises(OtherStrategy, match="use the strategy 'range': join with it, not with 'sticky'") as refusal:
        join(group, "b")
    assert refusal.value.theirs == Strategy.RANGE


def test_the_only_member_and_an_empty_group_may_change_the_strategy() -> None:
    group = join(join(Group(name="g"), "a", strategy=Strategy.RANGE), "a", strategy=Strategy.ROUND_ROBIN)
    assert group.strategy == Strategy.ROUND_ROBIN
    assert join(membership.remove(group, ["a"], BOTH), "b").strategy == Strategy.STICKY


@pytest.mark.parametrize("strategy", Strategy)
def test_a_join_of_an_id_that_is_there_is_a_new_life_with_what_the_old_one_had(strategy: Strategy) -> None:
    """Static membership: a process that starts again gets its partitions back, and nothing moves."""
    old = join(join(Group(name="g"), "a", strategy=strategy), "b", strategy=strategy)
    old = settle(old)
    new = join(old, "a", strategy=strategy)
    assert {place: one.target for place, one in new.holdings.items()} == {
        place: one.target for place, one in old.holdings.items()
    }
    assert membership.told(new, "a").assigned == membership.told(old, "a").assigned
    assert new.members["a"].joined == new.members["a"].synced == new.generation == old.generation + 1
    with pytest.raises(StaleGeneration, match="joined in generation 3, and the group is in 3: 2 is from another life"):
        refused(new, "a", old.generation, [P0])


def test_who_joins_again_with_other_topics_has_to_let_go_of_the_old_ones() -> None:
    group = join(join(Group(name="g"), "a", "orders"), "a", "payments")
    assert membership.told(group, "a").revoked == tuple(ALL)
    group = membership.sync(group, "a", group.generation, membership.told(group, "a").assigned)
    assert owned_by(group, "a") == [Place("p", 0), Place("p", 1)]
    assert group.holdings.keys() == {Place("p", 0), Place("p", 1)}


# -- sync -----------------------------------------------------------------------------------------------------


def test_what_is_let_go_of_goes_to_its_target_with_the_next_sync_of_that_one() -> None:
    group = join(group_of("a"), "b")
    group = membership.sync(group, "a", 1, ALL)
    group = membership.sync(group, "a", 2, [P0, P1])
    assert group.holdings[P2] == Holding(owner=None, since=1, target="b")
    assert membership.should_sync(group, "b")
    group = membership.sync(group, "b", 2, [])
    assert group.holdings[P2] == Holding(owner="b", since=2, target="b")
    assert membership.is_stable(group)


def test_a_sync_without_news_changes_nothing() -> None:
    group = group_of("a", "b")
    assert membership.sync(group, "a", group.generation, owned_by(group, "a")) is group


def test_a_sync_that_was_sent_before_the_last_one_changes_nothing() -> None:
    group = group_of("a", "b", "c")
    assert group.holdings[P0] == Holding(owner="a", since=1, target="a")
    assert group.members["a"].synced == 3
    assert membership.sync(group, "a", 2, []) is group


def test_a_late_sync_takes_nothing_away_that_the_member_got_in_the_same_generation() -> None:
    """`b` syncs twice with nothing, gets two, and starts to work; a third member comes; then the second one arrives."""
    group = settle(join(group_of("a"), "b"))
    generation, owned = group.generation, owned_by(group, "b")
    group = join(group, "c")
    late = membership.sync(group, "b", generation, [])
    assert owned_by(late, "b") == owned
    assert membership.told(late, "c").assigned == ()


def test_a_place_that_is_not_its_own_does_not_become_so_by_saying_so() -> None:
    group = group_of("a", "b")
    owned = owned_by(group, "a")
    assert owned_by(membership.sync(group, "a", group.generation, [*ALL, Place("x", 9)]), "a") == owned


# -- going ----------------------------------------------------------------------------------------------------


def test_what_a_member_had_is_free_when_it_leaves() -> None:
    group = group_of("a", "b")
    left = membership.leave(group, "b", group.generation, BOTH)
    assert left.generation == group.generation + 1
    assert membership.told(left, "a").pending == 2
    assert membership.should_sync(left, "a")
    assert owned_by(settle(left), "a") == ALL


def test_an_empty_group_has_no_holdings_and_keeps_its_generation() -> None:
    group = group_of("a", "b")
    empty = membership.remove(group, ["a", "b"], BOTH)
    assert (empty.members, empty.holdings, empty.strategy) == ({}, {}, Strategy.STICKY)
    assert empty.generation >= group.generation
    assert join(empty, "a").members["a"].joined > group.generation


def test_the_removal_of_nobody_changes_nothing() -> None:
    group = group_of("a")
    assert membership.remove(group, ["nobody"], BOTH) is group


def test_a_partition_on_its_way_stays_with_its_owner_if_its_target_goes() -> None:
    """Who comes and goes before anything was handed over has moved nothing."""
    before = group_of("b", "a")  # so that a deal of what is free, in order of ids, would mix it up
    after = membership.remove(join(join(before, "c"), "d"), ["c", "d"], BOTH)
    assert after.holdings == before.holdings


def test_a_late_leave_does_not_end_the_next_life() -> None:
    group = join(group_of("a"), "a")
    with pytest.raises(StaleGeneration):
        membership.leave(group, "a", 1, BOTH)


# -- topics ---------------------------------------------------------------------------------------------------


def test_a_group_whose_topics_are_as_they_were_stays_the_same_object() -> None:
    group = group_of("a", "b")
    assert membership.refit(group, {**BOTH, "others": Subscribed("x", 9)}) is group
    assert membership.refit(empty := Group(name="g"), BOTH) is empty


def test_new_partitions_are_dealt_and_the_others_stay() -> None:
    group = group_of("a", "b")
    grown = membership.refit(group, {"orders": Subscribed("o", 6)})
    assert grown.generation == group.generation + 1
    assert {place: one for place, one in grown.holdings.items() if place in ALL} == group.holdings
    assert [membership.told(grown, id_).pending for id_ in "ab"] == [1, 1]


def test_a_topic_that_appears_later_is_fitted_in() -> None:
    group = membership.join(Group(name="g"), "a", ["orders", "payments"], 10_000, Strategy.STICKY, ORDERS)
    assert membership.told(membership.refit(group, BOTH), "a").pending == 2


def test_a_topic_that_is_made_again_is_another_one() -> None:
    group = group_of("a")
    again = membership.refit(group, {"orders": Subscribed("new", 4)})
    assert membership.told(again, "a") == Told(generation=2, assigned=(), revoked=(), pending=4)
    assert {place.topic_id for place in again.holdings} == {"new"}


def test_what_nobody_subscribes_to_any_more_is_gone_with_its_topic() -> None:
    group = join(join(Group(name="g"), "a", "orders"), "a", "payments")
    assert membership.refit(group, BOTH) is group
    gone = membership.refit(group, {"payments": BOTH["payments"]})
    assert gone.generation == group.generation + 1
    assert membership.told(gone, "a").revoked == ()


# -- what members ask -----------------------------------------------------------------------------------------


def test_who_is_not_there_and_who_is_from_another_life_is_told_to_join() -> None:
    group = join(group_of("a"), "a")
    with pytest.raises(UnknownMember, match="join again"):
        membership.check(group, "b", 2)
    for generation in (1, 3):
        with pytest.raises(StaleGeneration, match="join again"):
            membership.check(group, "a", generation)
    assert membership.check(group, "a", 2) is group.members["a"]


def test_a_member_that_did_not_hear_the_last_answer_should_sync() -> None:
    """A late sync got something for it, and nobody read the answer: only the member can know that it does not know."""
    group = group_of("a", "b")
    assert not membership.should_sync(group, "a", generation=group.generation, held=2)
    assert membership.should_sync(group, "a", generation=group.generation - 1)
    assert membership.should_sync(group, "a", held=1)


def test_a_group_is_not_stable_before_everybody_has_synced() -> None:
    group = group_of("a", "b")
    behind = replace(group.members["a"], synced=group.generation - 1)
    assert not membership.is_stable(replace(group, members={**group.members, "a": behind}))


# -- commit ---------------------------------------------------------------------------------------------------


def test_only_the_owner_may_commit() -> None:
    group = group_of("a", "b")
    assert refused(group, "a", group.generation, [P0, P1]) == []
    assert refused(group, "b", group.generation, [P1, P0, P2]) == [P1, P0]
    assert refused(group, "a", group.generation, [Place("x", 0)]) == [Place("x", 0)]
    with pytest.raises(UnknownMember):
        refused(group, "c", group.generation, [P0])


def test_an_owner_may_commit_what_it_has_to_let_go_of_until_it_has() -> None:
    group = membership.sync(join(group_of("a"), "b"), "a", 1, ALL)
    assert refused(group, "a", 1, [P2]) == []
    assert refused(group, "a", 2, [P2]) == []
    assert refused(membership.sync(group, "a", 2, [P0, P1]), "a", 2, [P2]) == [P2]


def test_a_commit_from_before_a_partition_was_given_away_is_refused_when_it_has_come_back() -> None:
    there = settle(join(group_of("a"), "b"))
    back = settle(membership.leave(there, "b", there.generation, BOTH))
    assert owned_by(back, "a") == ALL
    assert refused(back, "a", there.generation, ALL) == [P2, P3]
    assert refused(back, "a", back.generation, ALL) == []
