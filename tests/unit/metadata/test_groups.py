"""Groups in the database: what is written comes back, the writer is fenced, commits are those of owners."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from flotilla.groups.membership import StaleGeneration, UnknownMember
from flotilla.groups.offsets import Commit
from flotilla.groups.state import Group, Holding, Member, Place, Strategy
from flotilla_manager.metadata import Store, TopicMissing, groups, open_store
from flotilla_manager.metadata.errors import (
    Fenced,
    GroupChanged,
    GroupHasMembers,
    GroupMissing,
    NotOwner,
    TooManyGroups,
)
from flotilla_manager.model import TopicState
from support.metadata import a_topic, an_id, at_once, ready_topic, sql

ONE, TWO = Place(an_id(1), 0), Place(an_id(1), 1)
NEW = Group(name="g")
_ROUNDS = 40


@pytest.fixture
def epoch(store: Store) -> int:
    epoch = store.take_over("http://writer")
    ready_topic(store, epoch, a_topic(1, partitions=2))
    ready_topic(store, epoch, a_topic(2, "other"))
    return epoch


def a_member(id_: str = "a", **values: int) -> Member:
    return replace(Member(id=id_, topics=("orders", "other"), timeout_ms=10_000, joined=1, synced=1), **values)  # type: ignore[arg-type]


def owned(by: str | None, since: int = 1, target: str | None = None) -> Holding:
    return Holding(owner=by, since=since, target=target or by)


def a_group(name: str = "g", **values: object) -> Group:
    group = Group(
        name=name,
        strategy=Strategy.STICKY,
        generation=1,
        members={"a": a_member()},
        holdings={ONE: owned("a"), TWO: owned("a")},
    )
    return replace(group, **values)  # type: ignore[arg-type]


def at(place: Place, offset: int, note: str | None = None) -> Commit:
    return Commit(place=place, offset=offset, note=note)


def offsets_of(store: Store, name: str = "g") -> dict[Place, int]:
    return {one.place: one.offset for one in store.commits_of(name) or ()}


def test_a_group_comes_back_as_it_was_written(store: Store, epoch: int) -> None:
    group = a_group()
    store.save_group(epoch, NEW, group)
    assert store.load_group("g") == store.take_group(epoch, "g") == group
    assert store.load_group("nobody") is None
    later = replace(
        group,
        generation=2,
        strategy=Strategy.RANGE,
        members={"b": a_member("b", joined=2, synced=2)},
        holdings={TWO: owned(None, 2, "b"), Place(an_id(2), 1): owned("b", 2)},
    )
    store.save_group(epoch, group, later)
    assert store.load_group("g") == later


def test_only_what_differs_is_written(store: Store, epoch: int) -> None:
    """Rows that stay as they are are not touched: a group of a thousand members changes a row at a time."""
    group = a_group(members={"a": a_member(), "b": a_member("b")})
    store.save_group(epoch, NEW, group)
    sql(store, "UPDATE members SET timeout_ms = 77 WHERE id = 'b'")
    store.save_group(epoch, group, replace(group, members={**group.members, "a": a_member(synced=2)}))
    found = store.load_group("g")
    assert found is not None
    assert (found.members["a"].synced, found.members["b"].timeout_ms) == (2, 77)


def test_a_writer_that_was_replaced_changes_no_group(store: Store, epoch: int) -> None:
    """Guarantee 6: fenced by the epoch, in every transaction."""
    store.save_group(epoch, NEW, a_group())
    store.take_over("http://other")
    with pytest.raises(Fenced):
        store.save_group(epoch, a_group(), a_group(members={}, holdings={}, generation=2))
    with pytest.raises(Fenced):
        store.delete_group(epoch, "g", force=True)
    for read in (lambda: store.take_group(epoch, "g"), lambda: store.load_groups_with_members(epoch, "", 10)):
        with pytest.raises(Fenced):
            read()
    assert store.load_group("g") == a_group()


def test_a_group_that_is_not_as_the_writer_remembers_it_is_not_written(store: Store, epoch: int) -> None:
    """A write that was given up may take effect after all; the next one must not build on what was before it."""
    store.save_group(epoch, NEW, a_group())
    store.save_group(epoch, a_group(), a_group(generation=2))
    with pytest.raises(GroupChanged, match="has generation 2, not 1"):
        store.save_group(epoch, a_group(), a_group(members={}, holdings={}, generation=3))
    assert store.load_group("g") == a_group(generation=2)


def test_groups_with_members_are_found_page_by_page(store: Store, epoch: int) -> None:
    for name in ("a", "b", "c", "d"):
        store.save_group(epoch, Group(name=name), a_group(name))
    store.save_group(epoch, a_group("b"), a_group("b", members={}, holdings={}, generation=2))
    first = store.load_groups_with_members(epoch, "", 2)
    assert first == [a_group("a"), a_group("c")]
    assert store.load_groups_with_members(epoch, "c", 2) == [a_group("d")]


def test_groups_are_listed_with_the_topics_that_they_committed_to(store: Store, epoch: int) -> None:
    store.save_group(epoch, Group(name="a"), a_group("a"))
    store.commit("b", [at(ONE, 1), at(TWO, 2), at(Place(an_id(2), 0), 3)], None)
    listed = store.list_groups("", 10)
    assert [(one.group.name, one.committed) for one in listed] == [("a", ()), ("b", (an_id(1), an_id(2)))]
    assert listed[0].group == a_group("a")
    assert [one.group.name for one in store.list_groups("a", 10)] == ["b"]
    assert [one.group.name for one in store.list_groups("", 1)] == ["a"]


def test_a_member_commits_to_what_it_owns(store: Store, epoch: int) -> None:
    store.save_group(epoch, NEW, a_group())
    store.commit("g", [at(ONE, 5, "half-way"), at(TWO, 7)], ("a", 1))
    store.commit("g", [at(ONE, 3)], ("a", 1))
    found = store.commits_of("g")
    assert found is not None
    assert [(one.place, one.offset, one.note) for one in found] == [(ONE, 3, None), (TWO, 7, None)]
    assert all(one.committed_ms > 1_600_000_000_000 for one in found)
    assert store.commits_of("g", an_id(2)) == []
    assert store.commits_of("nobody") is None


@pytest.mark.parametrize(
    ("member", "error"),
    [
        (("stranger", 2), UnknownMember),
        (("a", 1), StaleGeneration),
        (("a", 9), StaleGeneration),
        (("a", 2), NotOwner),
        (("b", 3), NotOwner),
    ],
)
def test_a_commit_is_fenced_and_changes_nothing(
    store: Store, epoch: int, member: tuple[str, int], error: type[Exception]
) -> None:
    """A member that was replaced, fell silent, or no longer owns a partition commits to none of them."""
    members = {"a": a_member(joined=2), "b": a_member("b", joined=3)}
    holdings = {ONE: owned("a", 3), TWO: owned("a", 2)}
    store.save_group(epoch, NEW, a_group(generation=4, members=members, holdings=holdings))
    with pytest.raises(error) as caught:
        store.commit("g", [at(TWO, 8), at(ONE, 8)], member)
    if isinstance(caught.value, NotOwner):
        assert ONE in caught.value.places
    assert store.commits_of("g") == []


def test_without_members_anybody_commits_and_makes_the_group(store: Store, epoch: int) -> None:
    store.commit("g", [at(ONE, 5)], None)
    assert store.load_group("g") == Group(name="g")
    group = a_group()
    store.save_group(epoch, Group(name="g"), group)
    assert offsets_of(store) == {ONE: 5}
    with pytest.raises(GroupHasMembers, match="1 member"):
        store.commit("g", [at(ONE, 6)], None)
    with pytest.raises(UnknownMember):
        store.commit("nobody", [at(ONE, 6)], ("a", 1))
    assert store.load_group("nobody") is None


def test_a_reset_takes_the_members_out_in_the_same_transaction(store: Store, epoch: int) -> None:
    """Otherwise their next commit would undo it."""
    store.save_group(epoch, NEW, a_group())
    store.commit("g", [at(ONE, 5)], ("a", 1))
    store.save_group(epoch, a_group(), a_group(members={}, holdings={}, generation=2), [at(ONE, 0), at(TWO, 1)])
    assert offsets_of(store) == {ONE: 0, TWO: 1}
    with pytest.raises(UnknownMember):
        store.commit("g", [at(ONE, 6)], ("a", 1))


def test_a_group_with_members_is_deleted_by_force_only(store: Store, epoch: int) -> None:
    store.save_group(epoch, NEW, a_group())
    store.commit("g", [at(ONE, 5)], ("a", 1))
    with pytest.raises(GroupHasMembers):
        store.delete_group(epoch, "g")
    assert offsets_of(store) == {ONE: 5}
    store.delete_group(epoch, "g", force=True)
    assert store.load_group("g") is None
    assert [sql(store, f"SELECT * FROM {table}") for table in ("members", "holdings", "commits")] == [[], [], []]  # noqa: S608 - names of ours
    with pytest.raises(GroupMissing):
        store.delete_group(epoch, "g")


def test_groups_begin_where_those_that_were_deleted_ended(store: Store, epoch: int) -> None:
    """The generation of a name never goes back, so that nothing said in a group that is gone counts in the next."""
    store.save_group(epoch, NEW, a_group(generation=7))
    store.save_group(epoch, Group(name="other"), a_group("other"))
    store.delete_group(epoch, "g", force=True)
    store.delete_group(epoch, "other", force=True)
    assert store.take_group(epoch, "g") == Group(name="g", generation=7)
    assert store.load_group("g") is None
    store.commit("g", [at(ONE, 1)], None)
    assert store.load_group("g") == Group(name="g", generation=7)
    store.save_group(epoch, Group(name="third", generation=7), a_group("third", generation=8))
    with pytest.raises(GroupChanged):
        store.save_group(epoch, Group(name="fourth"), a_group("fourth"))


def test_there_are_only_so_many_groups(store: Store, epoch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "GROUPS_MAX", 2)
    store.save_group(epoch, Group(name="a"), a_group("a"))
    store.commit("b", [at(ONE, 1)], None)
    with pytest.raises(TooManyGroups, match="no more than 2"):
        store.save_group(epoch, Group(name="c"), a_group("c"))
    with pytest.raises(TooManyGroups):
        store.commit("c", [at(ONE, 1)], None)
    store.commit("b", [at(ONE, 2)], None)


def test_a_topic_that_is_removed_takes_its_holdings_and_commits_along(store: Store, epoch: int) -> None:
    other = Place(an_id(2), 0)
    group = a_group(holdings={ONE: owned("a"), other: owned("a")})
    store.save_group(epoch, NEW, group)
    store.commit("g", [at(ONE, 5), at(other, 6)], ("a", 1))
    store.set_topic_state(epoch, an_id(1), TopicState.DELETING)
    assert offsets_of(store) == {other: 6}
    assert store.load_group("g") == replace(group, holdings={other: owned("a")})
    with pytest.raises(TopicMissing, match="deleting"):
        store.commit("g", [at(other, 7), at(ONE, 7)], ("a", 1))
    with pytest.raises(TopicMissing):
        store.save_group(epoch, group, a_group(holdings={ONE: owned("a", 2)}))
    assert offsets_of(store) == {other: 6}


# -- at the same time ---------------------------------------------------------------------------------------


def both(url: str, one: Callable[[Store], object], other: Callable[[Store], object]) -> list[Exception | None]:
    """Do two things at once, each with connections of its own; tell what they raised."""
    start = threading.Barrier(2)

    def work(which: int) -> Exception | None:
        store = open_store(url)
        try:
            store.version()  # it is connected
            start.wait(10)
            (one, other)[which](store)
        except Exception as error:  # noqa: BLE001 - the test looks at it
            return error
        else:
            return None
        finally:
            store.close()

    return at_once(work, 2)


def test_a_commit_never_takes_effect_after_the_partition_was_taken_away(url: str, store: Store, epoch: int) -> None:
    """A commit and a take-away at the same time: the new owner begins where the last accepted commit ended."""
    group = a_group(members={"a": a_member(), "b": a_member("b")}, holdings={ONE: owned("a")})
    store.save_group(epoch, NEW, group)
    for number in range(_ROUNDS):
        owner, heir = ("a", "b") if number % 2 == 0 else ("b", "a")
        taken = replace(group, generation=group.generation + 1, holdings={ONE: owned(heir, since=group.generation + 1)})
        seen: list[dict[Place, int]] = []

        def take_away(other: Store, before: Group = group, after: Group = taken) -> None:
            other.save_group(epoch, before, after)
            seen.append(offsets_of(other))  # noqa: B023 - called within this round

        def commit(other: Store, owner: str = owner, generation: int = group.generation, offset: int = number) -> None:
            other.commit("g", [at(ONE, offset + 1)], (owner, generation))

        refused, failed = both(url, commit, take_away)
        assert failed is None
        assert refused is None or isinstance(refused, NotOwner), refused
        assert offsets_of(store) == seen[0], "what the new owner begins with is what stays"
        assert (seen[0].get(ONE) == number + 1) == (refused is None)
        group = taken


def test_a_commit_and_the_removal_of_its_topic_leave_nothing_behind(url: str, store: Store, epoch: int) -> None:
    for number in range(10, 10 + _ROUNDS // 2):
        topic = ready_topic(store, epoch, a_topic(number, f"t{number}"))
        place = Place(topic.id, 0)
        refused, failed = both(
            url,
            lambda other, place=place: other.commit("g", [at(place, 1)], None),  # type: ignore[misc]
            lambda other, topic=topic: other.set_topic_state(epoch, topic.id, TopicState.DELETING),  # type: ignore[misc]
        )
        assert failed is None
        assert refused is None or isinstance(refused, TopicMissing), refused
        assert offsets_of(store).get(place) is None


def test_a_commit_without_members_and_the_first_join_are_never_both_unaware(url: str, store: Store, epoch: int) -> None:
    for number in range(_ROUNDS // 2):
        name = f"g{number}"
        refused, failed = both(
            url,
            lambda other, name=name: other.commit(name, [at(ONE, 1)], None),  # type: ignore[misc]
            lambda other, name=name: other.save_group(epoch, Group(name=name), a_group(name)),  # type: ignore[misc]
        )
        assert failed is None
        assert refused is None or isinstance(refused, GroupHasMembers), refused
        assert store.load_group(name) == a_group(name)
        assert offsets_of(store, name) == ({ONE: 1} if refused is None else {})


def test_many_members_commit_at_once(url: str, store: Store, epoch: int) -> None:
    """They share the group's row: nobody waits in a circle, and nothing is lost."""
    places = [Place(an_id(1), 0), Place(an_id(1), 1), Place(an_id(2), 0), Place(an_id(2), 1)]
    members = {f"m{at}": a_member(f"m{at}") for at in range(4)}
    holdings = {place: owned(f"m{number}") for number, place in enumerate(places)}
    store.save_group(epoch, NEW, a_group(members=members, holdings=holdings))

    def work(number: int) -> None:
        mine = open_store(url)
        for offset in range(1, _ROUNDS + 1):
            mine.commit("g", [at(places[number], offset)], (f"m{number}", 1))
        mine.close()

    at_once(work, 4)
    assert offsets_of(store) == dict.fromkeys(places, _ROUNDS)


def test_the_writer_has_its_turn_in_a_steady_stream_of_commits(url: str, store: Store, epoch: int) -> None:
    """Who shares a lock does not keep out those who want it alone: else a busy group could never change."""
    busy = 8
    places = [Place(an_id(1), number) for number in range(busy)]
    members = {f"m{number}": a_member(f"m{number}") for number in range(busy)}
    group = a_group(members=members, holdings={place: owned(f"m{place.partition}") for place in places})
    store.save_group(epoch, NEW, group)
    stop = threading.Event()

    def change(mine: Store) -> float:
        """Change the group a few times; tell how long it took at most."""
        waited_s, current = 0.0, group
        for _ in range(5):
            following = replace(current, generation=current.generation + 1)
            began = time.monotonic()
            mine.save_group(epoch, current, following)
            current, waited_s = following, max(waited_s, time.monotonic() - began)
        return waited_s

    def work(number: int) -> float:
        mine, waited_s = open_store(url), 0.0
        try:
            if number == busy:
                waited_s = change(mine)
            else:
                while not stop.is_set():
                    mine.commit("g", [at(places[number], 1)], (f"m{number}", 1))
        finally:
            stop.set()
            mine.close()
        return waited_s

    assert max(at_once(work, busy + 1)) < 3
